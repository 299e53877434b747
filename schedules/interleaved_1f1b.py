"""Interleaved 1F1B: several chunks a device, so that the pipeline fills in smaller steps."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from explorer.core.errors import Inapplicable
from explorer.core.op import B, F, Op
from explorer.core.placement import loop
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.registry import named


@named(
    "interleaved-1f1b",
    summary="1F1B over several chunks a device: the bubble shrinks with the chunks, transfers and memory grow",
    source="Megatron-LM, arXiv:2104.04473; NVIDIA/Megatron-LM megatron/core/pipeline_parallel/schedules.py",
)
def interleaved_1f1b(devices: int, microbatches: int, chunks: int = 2, group: int | None = None) -> Schedule:
    """Build interleaved 1F1B.

    The virtual order goes through groups of microbatches; in a group chunk by chunk, in a chunk microbatch by
    microbatch (backwards: last chunk first). Along it, each device runs a warm-up, then one forward and one backward
    in turn, then the backwards that are left.

    D = 2, N = 4, chunks = 2; microbatches of the second chunk in lower case::

        0: F0 F1 f0 f1 F2 b0 F3 b1 f2 B0 f3 B1 b2 b3 B2 B3
        1: F0 F1 f0 b0 f1 b1 F2 B0 F3 B1 f2 b2 f3 b3 B2 B3

    Parameters
    ----------
    chunks
        How many a device; chunk k of device r is stage kD + r.
    group
        How many microbatches in a row pass a chunk (Megatron-LM's microbatch group size per virtual stage); D by
        default.

    Raises
    ------
    Inapplicable
        Where Megatron-LM would refuse: the group must lie between D and N, and the last group must be whole or hold at
        least D microbatches.
    """
    group = devices if group is None else group
    _require_groups(devices, microbatches, group)

    def passes() -> Iterator[tuple[int, int]]:
        for first in range(0, microbatches, group):
            for chunk in range(chunks):
                for m in range(first, min(first + group, microbatches)):
                    yield chunk, m

    def order(rank: int) -> Iterator[Op]:
        forwards = [F(chunk * devices + rank, m) for chunk, m in passes()]
        backwards = [B((chunks - 1 - chunk) * devices + rank, m) for chunk, m in passes()]
        warmup = min(len(forwards), _warmup(devices, rank, chunks, group))
        yield from forwards[:warmup]
        for forward, backward in zip(forwards[warmup:], backwards, strict=False):
            yield forward
            yield backward
        yield from backwards[len(forwards) - warmup :]

    return Schedule.from_orders(loop(devices, microbatches, chunks), map(order, range(devices)))


def _warmup(devices: int, rank: int, chunks: int, group: int) -> int:
    """Forwards before a device's first forward-backward pair; with one chunk those of 1F1B."""
    return (devices - rank - 1) * (1 if chunks == 1 else 2) + (chunks - 1) * group


def _require_groups(devices: int, microbatches: int, group: int) -> None:
    if group < devices:
        raise Inapplicable(
            f"interleaved-1f1b needs groups of at least {devices} microbatches, one a device, got {group}"
        )

    def fits(n: int) -> bool:
        return n >= group and (n % group == 0 or n % group >= devices)

    if not fits(microbatches):
        below = next((n for n in range(microbatches, 0, -1) if fits(n)), None)
        above = next(n for n in range(microbatches, 2 * group + microbatches) if fits(n))
        near = f"{above}" if below is None else f"{below} or {above}"
        raise Inapplicable(
            f"interleaved-1f1b with {devices} devices and groups of {group} needs microbatches in whole groups, "
            f"or a last group of at least {devices}, got {microbatches}; {near} would do"
        )


@interleaved_1f1b.closed_form
def _formula(case: Case) -> Formula:
    """Idle (D-1)(F+B)/chunks; device r holds at most its warm-up and one more chunk, D + (D-1)/chunks on device 0."""
    d, n, v = case.devices, case.microbatches, case.count("chunks")
    group = d if case.options["group"] is None else case.count("group")
    held = [min(n * v, _warmup(d, r, v, group) + 1) for r in range(d)]
    return Formula.idle(
        case,
        (d - 1) * (case.forward + case.backward) / v,
        [Fraction(chunk_activations, v) for chunk_activations in held],
        "equal stages, no transfer time",
    )
