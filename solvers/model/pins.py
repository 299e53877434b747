"""Pins: rows that fix what is known. They are added behind a built model and change nothing in it."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from explorer.core.errors import UsageError
from explorer.core.op import Op
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from solvers.model.variables import Model, Transfer
from solvers.work import every_op


def pin_order(model: Model, schedule: Schedule) -> None:
    """``start[b] >= free[a]`` for each a and the next b of its device, and each device's sends served in its order.

    Raises
    ------
    UsageError
        If the schedule's placement, ops or overlapped pairs are not those of the model.
    """
    if schedule.placement != model.scope.placement:
        raise UsageError("the schedule's placement is not the model's")
    position: dict[Op, int] = {}
    for device, order in enumerate(schedule.orders()):
        if sorted(map(str, order)) != sorted(map(str, model.scope.entries[device])):
            raise UsageError(f"what the schedule runs on device {device} is not what the model runs there")
        ops = schedule.ops(device)
        position |= {op: place for place, op in enumerate(ops)}
        tasks = list(dict.fromkeys(model.task_of[op] for op in ops))
        for before, after in pairwise(tasks):
            model.cp.add(after.start >= before.free)
    for name, transfers in model.links.items():
        if model.servers[name] > 1:
            continue  # the turns that follow say who is before whom, and `few_at_once` what that means
        by_sender: defaultdict[int, list[Transfer]] = defaultdict(list)
        for transfer in transfers:
            by_sender[transfer.send.source].append(transfer)
        for sent in by_sender.values():
            for one, next_one in pairwise(sorted(sent, key=lambda transfer: position[transfer.send.op])):
                model.cp.add(next_one.sent >= one.released)
    for turn in model.turns:
        if turn.literal is not None and turn.one_sender:
            model.cp.add(turn.literal == int(position[turn.first.send.op] < position[turn.second.send.op]))


def pin_times(model: Model, timeline: Timeline) -> None:
    """``start[a] = t`` for every op, ``sent[a] = t`` for every transfer, ``sync[c] = t`` and ``step[d] = t`` likewise.

    Raises
    ------
    UsageError
        If the timeline is of other ops, synchronisations or optimiser steps.
    """
    schedule = timeline.schedule
    columns = zip(timeline.start.tolist(), timeline.sent.tolist(), strict=True)
    rows = dict(zip(every_op(schedule), columns, strict=True))
    syncs = {sync.chunk: sync.start for sync in timeline.syncs}
    steps = {update.device: update.start for update in timeline.updates}
    if rows.keys() != model.task_of.keys() or syncs.keys() != {sync.chunk for sync in model.syncs}:
        raise UsageError("the timeline's ops or synchronisations are not those of the model")
    if steps.keys() != {step.device for step in model.steps}:
        raise UsageError("the timeline's optimiser steps are not those of the model")
    for op, (start, sent) in rows.items():
        model.cp.add(model.task_of[op].start == start)
        if op in model.transfers:
            model.cp.add(model.transfers[op].sent == sent)
    for sync in model.syncs:
        model.cp.add(sync.start == syncs[sync.chunk])
    for step in model.steps:
        model.cp.add(step.start == steps[step.device])
