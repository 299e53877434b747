"""What a timeline amounts to: per-device figures and the critical path."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from explorer.core.dataflow import flow, product
from explorer.core.op import Kind
from explorer.core.placement import IntArray
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.contended import paths, senders


def producers(schedule: Schedule) -> IntArray:
    """(ops,) The row whose product each row waits for; -1 for none."""
    placement, table = schedule.placement, flow(schedule.placement)
    stages = placement.stages
    made = np.array([-1 if (p := product(kind)) is None else int(p) for kind in Kind])[schedule.kind]
    row_of = np.full(placement.microbatches * 2 * stages, -1, np.int64)
    makes = made >= 0
    row_of[((schedule.microbatch.astype(np.int64) * 2 + made) * stages + schedule.stage)[makes]] = np.flatnonzero(makes)
    route = placement.columns.route_of[schedule.microbatch]
    wanted = table.needs[route, schedule.kind, schedule.stage]
    found = row_of[np.where(wanted >= 0, schedule.microbatch.astype(np.int64) * 2 * stages + wanted, 0)]
    return np.where(wanted >= 0, found, -1)


def work(schedule: Schedule, problem: Problem) -> IntArray:
    """(ops,) Ticks of computing in each row, without launch overhead.

    The two ops of an overlapped pair take their common duration once: it stands in the pair's first row.
    """
    durations = problem.durations[problem.profile_of[schedule.microbatch], schedule.chunk, schedule.kind]
    if not schedule.overlaps:
        return durations
    first = np.flatnonzero(~schedule.joined)
    sums = np.add.reduceat(durations, first)
    sizes = np.diff(np.append(first, len(schedule)))
    factor = problem.overlap
    sums = np.where(sizes > 1, sums * factor.numerator // factor.denominator, sums)
    result = np.zeros_like(durations)
    result[first] = sums
    return result


@dataclass(frozen=True, eq=False)
class DeviceFigures:
    """Per-device ticks; each an array over devices.

    Parameters
    ----------
    busy
        Computing.
    idle
        The rest of the makespan.
    exposed_communication
        The part of idle in which some input that the device waits for is on its way, or a blocking send keeps it.
    overhead
        The part of idle spent on launching ops and posting sends.
    """

    busy: IntArray
    idle: IntArray
    exposed_communication: IntArray
    overhead: IntArray


def device_figures(timeline: Timeline, problem: Problem) -> DeviceFigures:
    """Where every device's time goes."""
    schedule = timeline.schedule
    busy = np.zeros(schedule.devices, np.int64)
    np.add.at(busy, schedule.device, work(schedule, problem))
    posted = np.where(timeline.sent >= 0, problem.posting, 0)
    last_of_occupancy = np.append(~schedule.joined[1:], True) if len(schedule) else schedule.joined
    overhead = posted + np.where(schedule.joined, 0, problem.launch)
    sending = np.where(last_of_occupancy, timeline.free - timeline.end, 0) - posted
    exposed = waited_for_transfers(timeline) + sending
    totals = [np.zeros(schedule.devices, np.int64) for _ in range(2)]
    for total, column in zip(totals, (exposed, overhead), strict=True):
        np.add.at(total, schedule.device, column)
    return DeviceFigures(busy, timeline.makespan - busy, *totals)


def waited_for_transfers(timeline: Timeline) -> IntArray:
    """(ops,) How much of the gap before each occupancy passes while an input is on its way; in its first row."""
    schedule = timeline.schedule
    source = producers(schedule)
    remote = (source >= 0) & (schedule.kind != Kind.W)
    remote &= timeline.arrival[source] >= 0
    gap_from = np.concatenate(([0], timeline.free[:-1]))
    gap_from[schedule.offsets[:-1][schedule.offsets[:-1] < len(schedule)]] = 0
    first = np.maximum.accumulate(np.where(schedule.joined, 0, np.arange(len(schedule))))
    gap_from = gap_from[first]
    since = np.where(remote, np.maximum(timeline.end[source], gap_from), np.iinfo(np.int64).max)
    until = np.where(remote, timeline.arrival[source], -1)
    waited = np.maximum(np.where(remote, until - since, 0), 0)
    if not schedule.overlaps:
        return waited
    for row in np.flatnonzero(schedule.joined):  # two inputs: the time in which either is on its way
        head = first[row]
        both = max(0, min(int(until[head]), int(until[row])) - max(int(since[head]), int(since[row])))
        if waited[head] > 0 and waited[row] > 0:
            waited[row] -= both
    return waited


class Part(StrEnum):
    """What the critical path spends time on."""

    COMPUTE = "compute"
    OVERHEAD = "overhead"
    COMMUNICATION = "communication"
    SYNCHRONISATION = "synchronisation"
    OPTIMIZER = "optimiser step"


class Step(NamedTuple):
    """A piece of the critical path, in ticks; ``row`` is the op that runs or sends, -1 where none does."""

    part: Part
    row: int
    start: int
    end: int


def critical_path(timeline: Timeline, problem: Problem) -> tuple[Step, ...]:
    """A chain of ops and transfers without gap from time 0 to the makespan, earliest first.

    Where an op waited for its device and for an input alike, the chain follows the device.
    """
    schedule = timeline.schedule
    if not len(schedule):
        return ()
    source = producers(schedule)
    steps: list[Step] = []
    before_on_link = _before_on_link(timeline, problem)
    row = _ending_steps(timeline, problem, before_on_link, steps)
    while row >= 0:
        start, end = int(timeline.start[row]), int(timeline.end[row])
        steps.append(Step(Part.COMPUTE, row, start, end))
        if start == 0:
            break
        head = row
        while schedule.joined[head]:
            head -= 1
        previous = head - 1
        if head > schedule.offsets[schedule.device[row]] and timeline.free[previous] == start:
            if timeline.end[previous] < start:
                steps.append(Step(Part.COMMUNICATION, previous, int(timeline.end[previous]), start))
            row = previous
            continue
        tail = head + 1
        while tail < len(schedule) and schedule.joined[tail]:
            tail += 1
        row = next(
            int(source[r])
            for r in range(head, tail)
            if source[r] >= 0 and max(timeline.arrival[source[r]], timeline.end[source[r]]) == start
        )
        row = _transfer_steps(timeline, before_on_link, row, steps)
    return tuple(reversed(steps))


def _ending_steps(timeline: Timeline, problem: Problem, before: dict[int, int], steps: list[Step]) -> int:
    """Walk back over the step and the synchronisations that end the makespan, if they do; the row that goes on.

    -1 where a synchronisation waits for nothing.
    """
    schedule = timeline.schedule
    reached = timeline.makespan
    if reached > timeline.synchronised:
        update = next(update for update in timeline.updates if update.end == reached)
        steps.append(Step(Part.OPTIMIZER, -1, update.start, update.end))
        reached = update.start
        rows = schedule.rows(update.device)
        if len(rows) and timeline.free[rows.stop - 1] == reached:
            return _sending(timeline, rows.stop - 1, reached, steps)
        syncs = [sync for sync in timeline.syncs if update.device in sync.devices]
    else:
        syncs = list(timeline.syncs)
    while True:
        sync = next((s for s in syncs if s.end == reached and s.end > s.start), None)
        syncs = list(timeline.syncs)
        if sync is None or (not steps and timeline.compute_end == reached):
            break
        if problem.syncs_compete:
            return _transfer_steps(timeline, before, len(schedule) + sync.chunk, steps)
        steps.append(Step(Part.SYNCHRONISATION, -1, sync.start, sync.end))
        reached = sync.start
        of_chunk = np.flatnonzero((schedule.chunk == sync.chunk) & (timeline.end == reached))
        if len(of_chunk):
            return int(of_chunk[0])
        if not reached:
            return -1
    ending = np.flatnonzero(timeline.free == reached)
    return _sending(timeline, int(ending[-1]), reached, steps)


def _sending(timeline: Timeline, row: int, reached: int, steps: list[Step]) -> int:
    """Walk back over what a device's last op sends; the row of that op."""
    if timeline.end[row] < reached:
        steps.append(Step(Part.COMMUNICATION, row, int(timeline.end[row]), reached))
    return row


def _before_on_link(timeline: Timeline, problem: Problem) -> dict[int, int]:
    """For each transfer that found a resource on its path occupied, by sending row, the one that freed it then.

    Where a resource serves one transfer at a time, those that pass through it are in the order of their times.
    An all-reduce that competes with them has the number of all ops + its chunk in place of a row.
    """
    schedule = timeline.schedule
    rows, pair = senders(schedule, timeline.sent)
    path = paths(problem, schedule.placement)
    begins, ends = timeline.sent, timeline.released
    if problem.syncs_compete:
        chunks, begun, done = np.array([(s.chunk, s.start, s.end) for s in timeline.syncs], np.int64).reshape(-1, 3).T
        rows = np.concatenate((rows, len(schedule) + chunks))
        pair = np.concatenate((pair, schedule.devices**2 + chunks))
        begins, ends = (np.concatenate((one, np.zeros(schedule.placement.chunks, np.int64))) for one in (begins, ends))
        begins[len(schedule) + chunks], ends[len(schedule) + chunks] = begun, done
    counts = np.diff(path.first)[pair]
    shares = np.repeat(np.arange(len(rows)), counts)
    place = np.arange(len(shares)) - np.repeat(np.cumsum(counts) - counts, counts)
    own_link = pair + path.resources
    users = rows[np.concatenate((np.arange(len(rows)), shares))]
    resource = np.concatenate((own_link, path.resource[path.first[pair[shares]] + place]))
    order = np.lexsort((users, ends[users], begins[users], resource))
    users, resource = users[order], resource[order]
    followed = (resource[1:] == resource[:-1]) & (ends[users[:-1]] == begins[users[1:]])
    before = dict(zip(users[1:][followed].tolist(), users[:-1][followed].tolist(), strict=True))
    for several in np.flatnonzero(np.diff(path.slots) > 1).tolist():
        own = users[resource == several].tolist()
        freed = {int(ends[row]): row for row in own if ends[row] > begins[row]}
        before |= {row: freed[sent] for row in own if (sent := int(begins[row])) in freed and row not in before}
    return before


def _transfer_steps(timeline: Timeline, before: dict[int, int], row: int, steps: list[Step]) -> int:
    """Walk back over a transfer and those that it queued behind, to the row whose end set the first of them going.

    All-reduces among them have the numbers that `_before_on_link` gives them; -1 where the first of all is one that
    waits for nothing.
    """
    schedule = timeline.schedule
    syncs = {len(schedule) + sync.chunk: sync for sync in timeline.syncs}
    if row not in syncs and timeline.sent[row] < 0:
        return row
    until = syncs[row].end if row in syncs else int(timeline.arrival[row])
    while True:
        if row in syncs:
            sync = syncs[row]
            steps.append(Step(Part.SYNCHRONISATION, -1, sync.start, until))
            last = np.flatnonzero((schedule.chunk == sync.chunk) & (timeline.end == sync.start))
            if len(last) or not sync.start:
                return int(last[0]) if len(last) else -1
            row, until = before[row], sync.start
            continue
        sent = int(timeline.sent[row])
        if row not in before or timeline.end[row] == sent:
            steps.append(Step(Part.COMMUNICATION, row, int(timeline.end[row]), until))
            return row
        steps.append(Step(Part.COMMUNICATION, row, sent, until))
        row, until = before[row], sent


def split(path: tuple[Step, ...], problem: Problem) -> dict[Part, int]:
    """Ticks of the critical path by what they are spent on; launch overheads are taken out of compute."""
    totals = dict.fromkeys(Part, 0)
    for step in path:
        overhead = problem.launch if step.part is Part.COMPUTE else 0
        totals[step.part] += step.end - step.start - overhead
        totals[Part.OVERHEAD] += overhead
    return totals


def bubble_ratio(timeline: Timeline, problem: Problem) -> Fraction:
    """1 - work / (devices x makespan); 0 where nothing takes time."""
    whole = timeline.schedule.devices * timeline.makespan
    return 1 - Fraction(int(work(timeline.schedule, problem).sum()), whole) if whole else Fraction(0)
