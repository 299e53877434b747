"""Schedules for ``torch.distributed.pipelining``: what its runtime needs is checked here, and said with its reason.

Facts about the runtime are those of ``torch/distributed/pipelining/schedules.py`` (read in PyTorch 2.13):
``_PipelineScheduleRuntime._load_csv`` reads one line a rank, as *compute only* (it then adds sends and receives itself)
or as *compute and communication*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from explorer.core.errors import Deadlock, Inapplicable, Incomplete
from explorer.core.op import Kind, Op, Overlapped
from explorer.core.placement import loop, vee
from explorer.core.schedule import Schedule
from explorer.evaluation.order_checker import Rule, verify_order
from explorer.evaluation.posting import turns
from explorer.io.cells import Action, Message, Upkeep, Verb


class Prepared(NamedTuple):
    """A schedule as PyTorch can run it, its microbatches' former numbers, and what a person must know of it."""

    schedule: Schedule
    numbers: list[int]
    notes: tuple[str, ...]


def prepare(schedule: Schedule) -> Prepared:
    """Check what PyTorch needs, and number the microbatches as it does.

    Losses are kept in the order in which the last stage's forwards run and are looked up by microbatch, so these
    forwards must ascend: microbatches are renumbered in that order.

    Raises
    ------
    Inapplicable
        If a stage lives on several devices, or a device has no stage; the reason is said.
    Incomplete, Deadlock
        If the schedule cannot run at all.
    """
    _require_one_rank_a_stage(schedule)
    for violation in verify_order(schedule):
        message = f"{violation.where}: {violation.message}"
        raise Deadlock(message, ()) if violation.kind == Rule.DEADLOCK else Incomplete(message)
    notes = [placement_note(schedule)]
    if len(set(schedule.placement.shares)) > 1:
        notes.append("the file does not hold the stages' unequal shares of the model; give them where the model is cut")
    order = last_stage_order(schedule)
    if order != sorted(order):
        schedule = renumbered(schedule, order)
        notes.append(
            "PyTorch keeps losses in the order of the last stage's forwards, so microbatches are renumbered in that "
            f"order: {_shortened(order)} became 0 to {len(order) - 1}"
        )
    return Prepared(schedule, order, tuple(notes))


def _require_one_rank_a_stage(schedule: Schedule) -> None:
    routes = schedule.placement.routes
    for stage, hops in enumerate(zip(*routes, strict=False)):
        devices = sorted({hop.device for hop in hops})
        if len(devices) > 1:
            raise Inapplicable(
                f"PyTorch gives each stage to one rank, and stage {stage} of this schedule lives on devices "
                f"{', '.join(map(str, devices))}: pipelines in several directions (chimera, dualpipe) do not fit its "
                "runtime; write it as JSON"
            )
    if len(routes) > 1:
        raise Inapplicable(f"PyTorch takes one route for all microbatches, and this schedule has {len(routes)}")
    idle = sorted(set(range(schedule.devices)) - {hop.device for hop in routes[0]})
    if idle:
        raise Inapplicable(f"PyTorch needs a stage on every rank, and device {idle[0]} has none")


def last_stage_order(schedule: Schedule) -> list[int]:
    """The microbatches in the order in which the last stage runs their forwards."""
    rows = (schedule.kind == Kind.F) & (schedule.stage == schedule.placement.stages - 1)
    return [int(microbatch) for microbatch in schedule.microbatch[rows]]


def renumbered(schedule: Schedule, order: list[int]) -> Schedule:
    """The same schedule with microbatch ``order[i]`` called i; for a placement with one route.

    Parameters
    ----------
    order
        A permutation of the microbatches.
    """
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return Schedule(
        schedule.placement,
        schedule.offsets,
        schedule.stage,
        schedule.kind,
        number[schedule.microbatch],
        schedule.joined,
    )


def placement_note(schedule: Schedule) -> str:
    """Which options of torchtitan place the stages as this schedule does (``torchtitan/distributed``)."""
    placement = schedule.placement
    devices, stages = placement.devices, placement.stages
    home = [hop.device for hop in placement.routes[0]]
    chunks, rest = divmod(stages, devices)
    if not rest and home == [hop.device for hop in loop(devices, 1, chunks).routes[0]]:
        name = "1F1B" if chunks == 1 else "Interleaved1F1B"
        placed = f"stage s on rank s mod {devices}" if chunks > 1 else "one stage a rank"
    elif home == [hop.device for hop in vee(devices, 1).routes[0]]:
        name, placed = "ZBVZeroBubble", "down and back up, a V"
    else:
        return (
            "torchtitan cannot place these stages: it knows stage s on rank s mod D and the V only; build the stages "
            f"yourself, on ranks {_shortened(home)}"
        )
    cut = ""
    if chunks > 2:
        cut = (
            f"; torchtitan cuts two stages a rank by itself, so cut the model into {stages} with "
            "--parallelism.pipeline_parallel_layers_per_stage"
        )
    return (
        f"with torchtitan, --parallelism.pipeline_parallel_schedule {name} gives these stages their ranks ({placed}), "
        f"next to --parallelism.pipeline_parallel_degree {devices} and a batch of {schedule.microbatches} "
        f"microbatches{cut}"
    )


def compute_only(schedule: Schedule) -> Iterator[str]:
    """The lines of a compute-only file, with their ends, for a schedule that `prepare` returned."""
    return (",".join(map(str, order)) + "\n" for order in schedule.orders())


def with_communication(schedule: Schedule) -> Iterator[str]:
    """The same with sends, receives and gradient reduction."""
    return (",".join(map(str, actions)) + "\n" for actions in lowered(schedule))


def lowered(schedule: Schedule) -> list[list[Action]]:
    """Each device's ops with the messages between them, for a schedule that `prepare` returned.

    They stand where PyTorch itself puts them (see `explorer.evaluation.posting`). Both devices see the messages between
    them in one order, so none can be taken for another. UNSHARD and RESHARD, which only FSDP needs, are left out.
    """
    home = [hop.device for hop in schedule.placement.routes[0]]
    lines: list[list[Action]] = [[] for _ in range(schedule.devices)]
    for device, rows, reduces in turns(schedule):
        ops = [schedule.op(row) for row in rows]
        if reduces >= 0:
            lines[device].append(Upkeep(reduces, "REDUCE_GRAD"))
        elif len(ops) == 1:
            lines[device].append(ops[0])
        else:
            lines[device].append(Overlapped(*ops))
        for op in ops:
            if (send := message(op, home)) is not None:
                lines[device].append(send)
                lines[home[send.peer]].append(send.other_end())
    return lines


def message(op: Op, home: list[int]) -> Message | None:
    """What an op sends to another device, ``home`` giving each stage's; None where its product stays or ends here."""
    if op.kind == Kind.W:
        return None
    send = Message(op.stage, Verb.SEND_F if op.kind == Kind.F else Verb.SEND_B, op.microbatch)
    if not 0 <= send.peer < len(home) or home[send.peer] == home[op.stage]:
        return None
    return send


def _shortened(numbers: list[int], most: int = 16) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return shown + ", ..." if len(numbers) > most else shown
