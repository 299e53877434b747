"""From a solution of the model to a timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from explorer.core.op import Overlapped
from explorer.core.schedule import Schedule
from explorer.core.timeline import Sync, Timeline, Update
from solvers.model.variables import Model, Task
from solvers.work import every_op

Value = Callable[..., int]
"""A solver's value of a linear expression."""


def chosen_order(model: Model, value: Value) -> Schedule:
    """The schedule whose devices run their tasks in the order of their starts.

    Tasks that start together and take no time stay in the order of the scope's entries, which respects dependencies.
    """

    def when(task: Task) -> tuple[int, int]:
        return value(task.start), task.occupancy.busy

    return Schedule.from_orders(
        model.scope.placement,
        [
            [
                task.occupancy.ops[0] if len(task.occupancy.ops) == 1 else Overlapped(*task.occupancy.ops)
                for task in order
            ]
            for order in (sorted(tasks, key=when) for tasks in model.tasks)
        ],
    )


def timeline_of(model: Model, schedule: Schedule, value: Value) -> Timeline:
    """The solution's times, in the rows of a schedule of the same ops."""
    ops = every_op(schedule)
    tasks = [model.task_of[op] for op in ops]
    starts = np.array([value(task.start) for task in tasks], np.int64)
    transfers = [model.transfers.get(op) for op in ops]

    def column(values: Iterable[int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.fromiter(values, np.int64, len(ops))

    return Timeline(
        schedule,
        starts,
        starts + column(task.occupancy.duration for task in tasks),
        starts + column(task.occupancy.busy for task in tasks),
        column(-1 if t is None else value(t.sent) for t in transfers),
        column(-1 if t is None else value(t.sent) + t.send.hold for t in transfers),
        column(-1 if t is None else value(t.sent) + t.send.delay for t in transfers),
        tuple(
            sorted(
                (Sync(s.chunk, s.hosts, value(s.start), value(s.start) + s.ticks) for s in model.syncs),
                key=lambda sync: (sync.start, sync.chunk),
            )
        ),
        tuple(Update(s.device, value(s.start), value(s.start) + s.ticks) for s in model.steps),
    )


def difference(one: Timeline, other: Timeline) -> str | None:
    """Where two timelines of the same schedule differ first, in words; None where they are equal."""
    for name in ("start", "end", "free", "sent", "released", "arrival"):
        ours, theirs = getattr(one, name), getattr(other, name)
        rows = np.flatnonzero(ours != theirs)
        if len(rows):
            row = int(rows[0])
            where = f"{one.schedule.op(row)} on device {one.schedule.device[row]}"
            return f"{name} of {where} is {ours[row]} in one, {theirs[row]} in the other"
    if one.syncs != other.syncs:
        return f"gradient synchronisations are {one.syncs} in one, {other.syncs} in the other"
    if one.updates != other.updates:
        return f"optimiser steps are {one.updates} in one, {other.updates} in the other"
    return None
