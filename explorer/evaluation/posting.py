"""The order in which ``torch.distributed.pipelining`` posts messages, for a schedule of ops alone.

Ranks take turns, an action each where its inputs are there. A send follows its op at once, and the matching receive is
posted at the same moment in the other rank's line; so all messages have one order on which every rank agrees. Fetching
and dropping the weights of a stage (three are kept) and reducing its gradients are actions, and take turns too. Read in
``_add_unshard_reshard``, ``_add_reduce_grad`` and ``_add_send_recv`` of PyTorch 2.13's ``schedules.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from explorer.core.dataflow import flow
from explorer.core.errors import Deadlock
from explorer.core.op import Kind
from explorer.core.schedule import Schedule
from explorer.evaluation.kernel import PRODUCT

STAGES_KEPT = 3
"""How many stages' weights a rank keeps at a time."""


class Turn(NamedTuple):
    """What a device does in a turn: the rows of one occupancy, or, without rows, reducing a stage's gradients."""

    device: int
    rows: range
    reduces: int = -1


_NOTHING = range(0)


def turns(schedule: Schedule) -> Iterator[Turn]:
    """Every occupancy and reduction in the order in which PyTorch writes them; turns that move weights are left out.

    Raises
    ------
    Deadlock
        If the order gets stuck.
    """
    lines = [_line(schedule, device) for device in range(schedule.devices)]
    ahead = [next(line, None) for line in lines]
    placement, table = schedule.placement, flow(schedule.placement)
    route_of, stages = placement.route_of, placement.stages
    needs = table.needs.tolist()
    made: set[tuple[int, int]] = set()  # (product * stages + stage, microbatch)
    while any(turn is not None for turn in ahead):
        progress = False
        for device, turn in enumerate(ahead):
            if turn is None:
                continue
            ops = [schedule.op(row) for row in turn.rows]
            wanted = [(needs[route_of[op.microbatch]][op.kind][op.stage], op.microbatch) for op in ops]
            if not all(place[0] < 0 or place in made for place in wanted):
                continue
            made.update((PRODUCT[op.kind] * stages + op.stage, op.microbatch) for op in ops)
            ahead[device] = next(lines[device], None)
            progress = True
            if turn.rows or turn.reduces >= 0:
                yield turn
        if not progress:
            stuck = next(turn for turn in ahead if turn is not None)
            raise Deadlock(f"the order gets stuck at {schedule.op(stuck.rows[0])} on device {stuck.device}", ())


def _line(schedule: Schedule, device: int) -> Iterator[Turn]:
    """A device's turns: an occupancy behind those that move its weights, a reduction behind a stage's last backward."""
    slots = _slots(schedule, device)
    microbatches = len(schedule.placement.route_of)
    backwards: dict[int, int] = {}
    kept: set[int] = set()
    for slot, wanted in zip(slots, _wanted(schedule, slots), strict=True):
        moved = kept.symmetric_difference(wanted)
        yield from (Turn(device, _NOTHING) for _ in moved)
        kept = set(wanted)
        yield Turn(device, slot)
        for row in slot:
            if schedule.kind[row] in (Kind.W, Kind.B):
                stage = int(schedule.stage[row])
                backwards[stage] = backwards.get(stage, 0) + 1
                if backwards[stage] == microbatches:
                    yield Turn(device, _NOTHING, stage)


def _slots(schedule: Schedule, device: int) -> list[range]:
    rows = schedule.rows(device)
    heads = [row for row in rows if not schedule.joined[row]]
    return [range(head, end) for head, end in zip(heads, [*heads[1:], rows.stop], strict=True)]


def _wanted(schedule: Schedule, slots: list[range]) -> list[tuple[int, ...]]:
    """For each occupancy the stages that come next, itself included, up to `STAGES_KEPT` (a pair is not cut)."""
    found: list[tuple[int, ...]] = []
    following: dict[int, int] = {}  # stage to the occupancy in which it comes next
    stages: tuple[int, ...] = ()
    for number in range(len(slots) - 1, -1, -1):
        for row in slots[number]:
            following[int(schedule.stage[row])] = number
        soonest = sorted(following.items(), key=lambda item: item[1])
        last = soonest[min(STAGES_KEPT, len(soonest)) - 1][1]
        now = tuple(stage for stage, place in soonest if place <= last)
        stages = stages if now == stages else now
        found.append(stages)
    return found[::-1]
