"""Whether everything in a timeline starts as early as its order allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise

from explorer.core.op import Op
from explorer.core.timeline import Timeline
from solvers.model.variables import Model, Task, Transfer
from solvers.work import every_op, input_of


def loose(model: Model, timeline: Timeline) -> str | None:
    """What starts later than it could, in words; None where nothing does.

    Each op must start at 0, or exactly when its device or an input releases it; each transfer when it is ready, or
    exactly when the one served before it releases a link; each synchronisation when its gradients are there, or exactly
    when another one on one of its devices, or what is served before it on a link, ends; each optimiser step exactly
    when the last of its device's ops and synchronisations is done. A timeline that satisfies the model and this is
    the earliest one of its order, as long as no ops wait for one another in a circle. Linear in the number of ops, but
    for sorting.
    """
    return (
        _loose_op(model, timeline)
        or _loose_transfer(model, timeline)
        or _loose_sync(model, timeline)
        or _loose_step(model, timeline)
    )


def _rows(timeline: Timeline) -> dict[Op, int]:
    return {op: row for row, op in enumerate(every_op(timeline.schedule))}


def _loose_op(model: Model, timeline: Timeline) -> str | None:
    row_of = _rows(timeline)
    released: dict[Task, int] = {}
    start, end, free, arrival = (getattr(timeline, name).tolist() for name in ("start", "end", "free", "arrival"))
    for device in range(timeline.schedule.devices):
        tasks = list(dict.fromkeys(model.task_of[op] for op in timeline.schedule.ops(device)))
        for before, after in pairwise(tasks):
            released[after] = free[row_of[before.occupancy.ops[0]]]
    for task in model.all_tasks():
        begin = start[row_of[task.occupancy.ops[0]]]
        moments = {0, released.get(task, 0)}
        for op in task.occupancy.ops:
            wanted = input_of(op, model.scope.placement)
            if wanted is not None:
                source = model.maker[wanted]
                here = model.costs.device(source) == task.occupancy.device
                moments.add((end if here else arrival)[row_of[source]])
        if begin not in moments:
            return f"{task.occupancy} starts at {begin}, but could at {max(m for m in moments if m < begin)}"
    return None


def _loose_transfer(model: Model, timeline: Timeline) -> str | None:
    row_of, released = _rows(timeline), _released(model, timeline)
    sent, ready = timeline.sent.tolist(), _ready(timeline)
    for op, transfer in model.transfers.items():
        leaves = sent[row_of[op]]
        if leaves != ready(transfer) and leaves not in released[op]:
            return f"the transfer of {op} starts at {leaves}, but was ready at {ready(transfer)} and no link held it up"
    return None


def _ready(timeline: Timeline) -> Callable[[Transfer], int]:
    """When a transfer could leave."""
    row_of, start = _rows(timeline), timeline.start.tolist()
    return lambda transfer: int(start[row_of[transfer.send.op]]) + transfer.send.offset


def _gradients(model: Model, timeline: Timeline) -> defaultdict[int, int]:
    """When each chunk's gradients are there."""
    found: defaultdict[int, int] = defaultdict(int)
    for op, row in _rows(timeline).items():
        chunk = model.costs.chunk(op)
        found[chunk] = max(found[chunk], int(timeline.end[row]))
    return found


def _released(model: Model, timeline: Timeline) -> defaultdict[Op | int, set[int]]:
    """For each transfer, and each chunk whose all-reduce holds links, when those served before it let it go."""
    row_of, ready, gradients = _rows(timeline), _ready(timeline), _gradients(model, timeline)
    freed, done = timeline.released.tolist(), {sync.chunk: sync.end for sync in timeline.syncs}
    released = defaultdict[Op | int, set[int]](set)
    for name, transfers in model.links.items():
        served: list[tuple[tuple[int, ...], Op | int, tuple[int, ...], int]] = [
            ((ready(t), 0, t.send.source, row), t.send.op, (t.send.source, t.send.target), freed[row])
            for t in transfers
            for row in (row_of[t.send.op],)
        ]
        served += [
            ((gradients[sync.chunk], 1, sync.chunk), sync.chunk, (sync.chunk,), done[sync.chunk])
            for sync in model.reduced.get(name, ())
        ]
        served.sort(key=lambda user: user[0])
        if model.servers[name] == 1:
            for before, after in pairwise(served):
                released[after[1]].add(before[3])
            continue
        ends: dict[tuple[int, ...], int] = {}
        for _, user, pair, end in served:
            others = sorted((other_end for other, other_end in ends.items() if other != pair), reverse=True)
            released[user].update(others[model.servers[name] - 1 : model.servers[name]])
            ends[pair] = max(ends.get(pair, 0), end)
    return released


def _loose_sync(model: Model, timeline: Timeline) -> str | None:
    ready, released = _gradients(model, timeline), _released(model, timeline)
    for sync in timeline.syncs:
        ends = {other.end for other in timeline.syncs if other is not sync and set(other.devices) & set(sync.devices)}
        if sync.start != ready[sync.chunk] and sync.start not in ends | released[sync.chunk]:
            return f"the synchronisation of chunk {sync.chunk} starts at {sync.start}, but could earlier"
    return None


def _loose_step(model: Model, timeline: Timeline) -> str | None:
    row_of = _rows(timeline)
    for update in timeline.updates:
        done = [int(timeline.free[row_of[task.occupancy.ops[0]]]) for task in model.tasks[update.device]]
        done += [sync.end for sync in timeline.syncs if update.device in sync.devices]
        if update.start > max(done, default=0):
            return f"the optimiser step of device {update.device} starts at {update.start}, but could earlier"
    return None
