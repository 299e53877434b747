"""Where a schedule's time goes, so that two of them can be held against each other part by part."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

import numpy as np

from explorer.core.op import Kind
from explorer.core.placement import IntArray
from explorer.core.problem import Problem
from explorer.core.timeline import Timeline
from explorer.evaluation.memory import fits, levels
from explorer.evaluation.metrics import device_figures, producers
from solvers.space import limited_stash, room


class Loss(StrEnum):
    """Why a device is idle.

    ==================  =================================================================================
    ``warm-up``         before its first op
    ``memory stall``    between ops, while the input of a forward is there that would pass the memory limit; not told
                        of a schedule that passes it anyway
    ``communication``   between ops, while an input is on its way, or a blocking send keeps it
    ``overhead``        launching ops and posting sends
    ``steady state``    between ops, for want of anything to do
    ``drain``           behind its last op, with gradient synchronisation and the optimiser's step
    ==================  =================================================================================
    """

    WARM_UP = "warm-up"
    MEMORY = "memory stall"
    COMMUNICATION = "communication"
    OVERHEAD = "overhead"
    STEADY = "steady state"
    DRAIN = "drain"


def losses(timeline: Timeline, problem: Problem) -> dict[Loss, Fraction]:
    """Ticks of each loss, as a mean over the devices: together with the mean work they make the makespan exactly."""
    schedule, devices = timeline.schedule, timeline.schedule.devices
    figures = device_figures(timeline, problem)
    totals = dict.fromkeys(Loss, 0)
    for device in range(devices):
        rows = schedule.rows(device)
        if not len(rows):
            totals[Loss.WARM_UP] += timeline.makespan
            continue
        before = int(timeline.start[rows.start])
        behind = timeline.makespan - int(timeline.free[rows.stop - 1])
        exposed = int(figures.exposed_communication[device]) - _exposed_warm_up(timeline, rows.start)
        overhead = int(figures.overhead[device])
        inside = int(figures.idle[device]) - before - behind - exposed - overhead
        stalled = min(inside, _stalled(timeline, problem, device))
        for loss, ticks in zip(Loss, (before, stalled, exposed, overhead, inside - stalled, behind), strict=True):
            totals[loss] += ticks
    return {loss: Fraction(ticks, devices) for loss, ticks in totals.items()}


def _exposed_warm_up(timeline: Timeline, row: int) -> int:
    """What of the time before a device's first op passes while its input is on its way: it counts as warm-up."""
    source = int(producers(timeline.schedule)[row])
    if source < 0 or timeline.arrival[source] < 0:
        return 0
    return int(timeline.arrival[source] - timeline.end[source])


def _stalled(timeline: Timeline, problem: Problem, device: int) -> int:
    """How long a device is idle between ops, with no input on its way, while a forward is there that does not fit."""
    spaces = room(problem, timeline.schedule.placement.resident)
    if spaces is None or problem.memory_limit is None or not fits(timeline.schedule, problem):
        return 0
    schedule, stash = timeline.schedule, limited_stash(problem, problem.memory_limit)
    rows = np.arange(schedule.rows(device).start, schedule.rows(device).stop)
    after = levels(schedule, problem, stash).after[rows]
    held = stash.held[problem.profile_of[schedule.microbatch], schedule.chunk][rows]
    there = _there(timeline)[rows]
    forward = schedule.kind[rows] == Kind.F
    ticks = 0
    for place in np.flatnonzero(timeline.start[rows[1:]] > timeline.free[rows[:-1]]):
        begin, end = int(timeline.free[rows[place]]), int(timeline.start[rows[place + 1]])
        full = forward[place + 1 :] & (after[place] + held[place + 1 :] > spaces[device])
        waiting = there[place + 1 :][full]
        if len(waiting):
            ticks += max(0, end - max(begin, int(waiting.min())))
    return ticks


def _there(timeline: Timeline) -> IntArray:
    """(ops,) When the input of each row is on its device."""
    source = producers(timeline.schedule)
    remote = timeline.arrival[source] >= 0
    there: IntArray = np.where(source < 0, 0, np.where(remote, timeline.arrival[source], timeline.end[source]))
    return there
