"""The options with which Megatron-Core runs a schedule, where it can.

It knows two orders (``megatron/core/pipeline_parallel/schedules.py``): 1F1B with one stage a rank, and interleaved 1F1B
with several, dealt round and round. Options are those of ``megatron/training/arguments.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import schedules
from explorer.core.errors import Inapplicable
from explorer.core.op import Kind
from explorer.core.placement import loop
from explorer.core.schedule import Schedule


def options(schedule: Schedule) -> Iterator[str]:
    """Lines with the options, and what goes with them.

    Raises
    ------
    Inapplicable
        If Megatron-Core cannot run this order; the reason is said.
    """
    devices, microbatches = schedule.devices, schedule.microbatches
    chunks = _chunks(schedule)
    _require_whole_ops(schedule)
    if chunks == 1:
        known: Schedule | None = schedules.find("1f1b")(devices, microbatches)
        lines = _plain(schedule)
    else:
        group = _group(schedule)
        known = _interleaved(devices, microbatches, chunks, group)
        lines = _virtual(schedule, chunks, group)
    _require_same(schedule, known, "1F1B" if chunks == 1 else f"interleaved 1F1B in groups of {group}")
    return (line + "\n" for line in [*lines, *_batch(microbatches)])


def _chunks(schedule: Schedule) -> int:
    placement = schedule.placement
    chunks, rest = divmod(placement.stages, placement.devices)
    if len(placement.routes) > 1:
        raise Inapplicable("Megatron-Core sends all microbatches one way; this schedule has several directions")
    if rest or placement.routes != loop(placement.devices, 1, max(1, chunks)).routes:
        raise Inapplicable("Megatron-Core places stage s on rank s mod D; this schedule places its stages otherwise")
    return chunks


def _require_whole_ops(schedule: Schedule) -> None:
    if schedule.overlaps:
        raise Inapplicable("Megatron-Core does not run overlapped pairs as an order of its own")
    if schedule.splits_backward:
        raise Inapplicable("Megatron-Core runs whole backwards; this schedule splits them (zero bubble)")


def _group(schedule: Schedule) -> int:
    """How many microbatches of a chunk device 0 runs forwards of before its next chunk."""
    count = 0
    for op in schedule.ops(0):
        if op.kind == Kind.F and op.stage:
            break
        count += op.kind == Kind.F
    return count


def _interleaved(devices: int, microbatches: int, chunks: int, group: int) -> Schedule | None:
    try:
        return schedules.find("interleaved-1f1b")(devices, microbatches, chunks=chunks, group=group)
    except Inapplicable:
        return None


def _require_same(schedule: Schedule, known: Schedule | None, name: str) -> None:
    for device in range(schedule.devices):
        theirs = known.ops(device) if known is not None else []
        for position, op in enumerate(schedule.ops(device)):
            if position >= len(theirs) or op != theirs[position]:
                instead = f"{name} has {theirs[position]}" if position < len(theirs) else f"{name} does not exist here"
                raise Inapplicable(
                    "Megatron-Core runs 1F1B and interleaved 1F1B only: device "
                    f"{device} runs {op} at position {position}, where {instead}"
                )


def _plain(schedule: Schedule) -> list[str]:
    lines = [f"--pipeline-model-parallel-size {schedule.devices}", *_layout(schedule)]
    lines.append("# sends and receives are blocking without virtual stages: overlap of p2p does not apply")
    return lines


def _virtual(schedule: Schedule, chunks: int, group: int) -> list[str]:
    devices = schedule.devices
    layout = _layout(schedule) or [
        f"--num-layers-per-virtual-pipeline-stage LAYERS/{devices * chunks}"
        f"  # of the whole model's layers; or --num-virtual-stages-per-pipeline-rank {chunks}"
    ]
    return [
        f"--pipeline-model-parallel-size {devices}",
        *layout,
        f"--microbatch-group-size-per-virtual-pipeline-stage {group}",
        "# p2p overlap is on unless --no-overlap-p2p-communication is given;",
        "# --overlap-p2p-communication-warmup-flush adds it to warm-up and cool-down",
    ]


def _layout(schedule: Schedule) -> list[str]:
    """Stages of unequal size, for the fewest layers that measure them."""
    shares = schedule.placement.shares
    if len(set(shares)) == 1:
        return []
    layers = math.lcm(*(share.denominator for share in shares))
    parts = ["t" * int(shares[hop.chunk] * layers) for hop in schedule.placement.routes[0]]
    return [f'--pipeline-model-parallel-layout "E{"|".join(parts)}L"  # {layers} layers, or in proportion']


def _batch(microbatches: int) -> list[str]:
    return [
        f"--global-batch-size {microbatches}*MICRO*DP  # with --micro-batch-size MICRO, and DP data-parallel copies"
    ]
