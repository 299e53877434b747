"""The fast evaluator: a fixed schedule's earliest timeline, the least fixed point of its order and dependencies.

Where directed pairs of devices share resources, requests are served in order of readiness; see `kernel`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from explorer.core.dataflow import flow
from explorer.core.errors import Deadlock, Inexact
from explorer.core.op import Kind
from explorer.core.placement import IntArray, Placement
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Sync, Timeline, Update
from explorer.core.units import HORIZON
from explorer.evaluation.contended import owed_syncs, paths
from explorer.evaluation.kernel import PRODUCT, advance, compiled

COMPILE_FROM = 200_000
"""Ops from which loading the compiled loop is quicker than running the plain one  (see benchmarks/evaluator.py)."""


def evaluate(schedule: Schedule, problem: Problem, *, compile: bool | None = None) -> Timeline:
    """When everything runs, each op and transfer as early as order, dependencies and links allow.

    Parameters
    ----------
    schedule
        Complete, or an error says what is missing.
    problem
        Costs for the schedule's placement.
    compile
        Whether to use the compiled loop; by size if None.

    Raises
    ------
    Incomplete
        If an op is missing, repeated or on the wrong device.
    Deadlock
        If order and dependencies form a cycle; the error names it.
    Inexact
        If times pass the horizon, or an overlapped pair takes no whole number of ticks.
    UsageError
        If the problem is one of other sizes.
    """
    problem.require_fits(schedule.placement)
    if compile is None:
        compile = len(schedule) >= COMPILE_FROM
    *columns, begun = _run(schedule, problem, compile)
    start, end, free, sent, released, arrival = columns
    syncs = _competing(schedule, problem, begun) if problem.syncs_compete else synchronise(schedule, problem, end)
    updates = step(schedule, problem, free, syncs)
    timeline = Timeline(schedule, start, end, free, sent, released, arrival, syncs, updates)
    if timeline.makespan > HORIZON:
        raise Inexact(f"the makespan passes 2^42 ticks of {problem.time.tick} {problem.time.unit}; use a coarser tick")
    return timeline


def _run(schedule: Schedule, problem: Problem, compile: bool) -> tuple[IntArray, ...]:
    placement, table = schedule.placement, flow(schedule.placement)
    devices, transfers = placement.devices, problem.transfer_times()
    microbatches, stages = placement.microbatches, placement.stages
    ops = len(schedule)
    _require_horizon(schedule, problem)
    path = paths(problem, placement)
    syncs = placement.chunks if problem.syncs_compete else 0
    requests = ops + syncs if path.resources else 0

    def flat(array: Any) -> Any:
        array = np.ascontiguousarray(array).ravel()
        return array if compile else array.tolist()

    def filled(size: int, value: int) -> Any:
        return np.full(size, value, np.int64) if compile else [value] * size

    products = 4 if bool(((schedule.kind == Kind.I) | (schedule.kind == Kind.W)).any()) else 2
    cursor, made, synced = filled(devices, 0), filled(3, 0), filled(syncs, 0)
    outputs = [np.empty(ops, np.int64) if compile else [0] * ops for _ in range(6)]
    loop = compiled() if compile else advance
    fault = loop(
        flat(schedule.offsets), flat(schedule.stage), flat(schedule.kind), flat(schedule.microbatch),
        flat(schedule.joined), flat(np.array(PRODUCT, np.int64)),
        flat(placement.columns.route_of), flat(problem.profile_of), microbatches, stages,
        flat(placement.columns.device), flat(placement.columns.chunk),
        flat(table.needs), flat(table.target), flat(table.message),
        devices, placement.chunks, flat(problem.durations), problem.overlap.numerator, problem.overlap.denominator,
        problem.launch, problem.posting,
        flat(problem.network.link), len(problem.network.names),
        flat(transfers.delay), flat(transfers.hold), flat(transfers.busy),
        flat(path.first), flat(path.resource), flat(path.slots),
        filled(microbatches * products * stages, -1), filled(len(path.first) - 1, 0), filled(devices, -1),
        filled(devices, 0), cursor, filled(devices, 0), made,
        filled(int(path.slots[-1]), 0), filled(int(path.slots[-1]), -1), filled(len(path.resource), 0),
        filled(requests, 0), filled(requests, 0),
        syncs, flat(problem.sync), flat(_backwards(placement, problem)), filled(syncs, 0), synced, *outputs,
    )  # fmt: skip
    cells = int(placement.columns.length[placement.columns.route_of].sum())
    stuck = any(cursor[d] < schedule.offsets[d + 1] for d in range(devices))
    if (
        fault >= 0
        or stuck
        or made[0] != cells
        or made[1] != cells
        or (products > 2 and made[2] != (schedule.kind == Kind.I).sum())
    ):
        schedule.require_complete()
        if fault < 0:
            raise _deadlock(schedule, [int(row) for row in cursor])
        raise Inexact(
            f"the pair {schedule.op(fault)} and {schedule.op(fault + 1)} takes {problem.overlap} of its parts' sum, "
            "which is no whole number of ticks"
        )
    return tuple(np.asarray(output, np.int64) for output in (*outputs, synced))


def _backwards(placement: Placement, problem: Problem) -> IntArray:
    """(chunks,) How many W and B each all-reduce waits for, -1 where there is none to compete."""
    counts = np.full(placement.chunks, -1, np.int64)
    columns = placement.columns
    visits = np.zeros(placement.chunks, np.int64)
    routes, times = np.unique(columns.route_of, return_counts=True)
    for route, count in zip(routes.tolist(), times.tolist(), strict=True):
        np.add.at(visits, columns.chunk[route, : columns.length[route]], count)
    owed = owed_syncs(problem, placement) if problem.syncs_compete else []
    counts[owed] = visits[owed]
    return counts


def _competing(schedule: Schedule, problem: Problem, begun: IntArray) -> tuple[Sync, ...]:
    hosts = schedule.placement.hosts
    starts = {chunk: int(begun[chunk]) for chunk in owed_syncs(problem, schedule.placement)}
    syncs = (Sync(chunk, hosts[chunk], start, start + int(problem.sync[chunk])) for chunk, start in starts.items())
    return tuple(sorted(syncs, key=lambda sync: (sync.start, sync.chunk)))


def _require_horizon(schedule: Schedule, problem: Problem) -> None:
    """Refuse problems whose times could overflow: no timeline is longer than all its ops and transfers in a row."""
    transfers = problem.transfer_times()
    longest = max(int(problem.durations.max(initial=0)) * max(1, int(problem.overlap) + 1) + problem.launch, 1)
    longest += problem.posting + max(int(transfers.delay.max(initial=0)), int(transfers.hold.max(initial=0)))
    if longest * len(schedule) + sum(problem.sync.tolist()) >= 2**62:
        raise Inexact(f"times could pass 2^62 ticks of {problem.time.tick} {problem.time.unit}; use a coarser tick")


def synchronise(schedule: Schedule, problem: Problem, end: IntArray) -> tuple[Sync, ...]:
    """The gradient all-reduces: each when its chunk's last backward is done everywhere, one at a time on a device.

    Parameters
    ----------
    schedule, problem
        Of which the replicas and the costs are taken.
    end
        (ops,) ticks at which each op ends.

    Returns
    -------
    tuple of Sync
        In order of their start; requests are served in order of readiness, ties by chunk.
    """
    placement = schedule.placement
    owed = owed_syncs(problem, placement)
    if not owed:
        return ()
    done = np.zeros(placement.chunks, np.int64)
    np.maximum.at(done, schedule.chunk, end)
    idle_from = [0] * placement.devices
    syncs = []
    for ready, chunk in sorted((int(done[chunk]), chunk) for chunk in owed):
        hosts = placement.hosts[chunk]
        begin = max(ready, *(idle_from[device] for device in hosts))
        finish = begin + int(problem.sync[chunk])
        for device in hosts:
            idle_from[device] = finish
        syncs.append(Sync(chunk, hosts, begin, finish))
    return tuple(sorted(syncs, key=lambda sync: (sync.start, sync.chunk)))


def step(schedule: Schedule, problem: Problem, free: IntArray, syncs: tuple[Sync, ...]) -> tuple[Update, ...]:
    """Each device's optimiser step: once its last op lets it go, and its last gradient synchronisation is done.

    Parameters
    ----------
    schedule, problem
        Of which the devices' orders and the costs are taken.
    free
        (ops,) ticks at which each op lets its device go.
    syncs
        Gradient synchronisations.
    """
    begin = [int(free[rows.stop - 1]) if len(rows := schedule.rows(d)) else 0 for d in range(schedule.devices)]
    for sync in syncs:
        for device in sync.devices:
            begin[device] = max(begin[device], sync.end)
    return tuple(
        Update(device, start, start + ticks)
        for device, (start, ticks) in enumerate(zip(begin, problem.steps, strict=True))
        if ticks
    )


def _deadlock(schedule: Schedule, cursor: list[int]) -> Deadlock:
    """The cycle: each stuck device's next op waits for one that stands later in a stuck device's order."""
    placement, table = schedule.placement, flow(schedule.placement)
    row_of = {
        (op.stage, PRODUCT[op.kind], op.microbatch): row
        for row in range(len(schedule))
        if (op := schedule.op(row)).kind != 2
    }
    finished = {
        row for device in range(schedule.devices) for row in range(int(schedule.offsets[device]), cursor[device])
    }

    def waits_for(device: int) -> int:
        row = cursor[device]
        while True:  # of an overlapped pair, the op whose input is missing
            op = schedule.op(row)
            wanted = int(table.needs[placement.route_of[op.microbatch], op.kind, op.stage])
            if wanted >= 0:
                made, stage = divmod(wanted, placement.stages)
                source = row_of[stage, made, op.microbatch]
                if source not in finished:
                    return source
            row += 1

    device = next(d for d in range(schedule.devices) if cursor[d] < schedule.offsets[d + 1])
    seen: list[int] = []
    while device not in seen:
        seen.append(device)
        device = int(schedule.device[waits_for(device)])
    ring = seen[seen.index(device) :]
    steps, cycle = [], []
    for device in ring:
        waiting, source = schedule.op(cursor[device]), schedule.op(waits_for(device))
        steps.append(f"device {device} is at {waiting}, which waits for {source}")
        cycle.append((device, str(waiting)))
    where = "device" if len(ring) == 1 else "devices"
    return Deadlock(f"the order deadlocks on {where} {', '.join(map(str, ring))}: {'; '.join(steps)}", tuple(cycle))
