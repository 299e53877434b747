"""Why one schedule is faster than another: where the devices' time goes, on average, part by part."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

import numpy as np

from explorer.core.problem import Problem
from explorer.core.timeline import Timeline
from explorer.evaluation.metrics import device_figures, waited_for_transfers


class Share(StrEnum):
    """What the time from 0 to the makespan goes to on a device; nothing is counted twice, and nothing is left out."""

    WORK = "work"
    WARM_UP = "warm-up"
    STEADY_STATE = "waiting in the steady state"
    DRAIN = "drain"
    COMMUNICATION = "exposed communication"
    OVERHEAD = "launch and posting overhead"
    SYNCHRONISATION = "gradient synchronisation"
    OPTIMIZER = "optimiser step"


def shares(timeline: Timeline, problem: Problem) -> dict[Share, Fraction]:
    """The mean over devices of each share, in ticks; they add up to the makespan.

    Warm-up is idle time before a device's first op and drain that between its last one and the end of all computing,
    both without waiting for a transfer that is on its way, which is exposed communication.
    """
    schedule = timeline.schedule
    figures = device_figures(timeline, problem)
    offsets = schedule.offsets
    some = np.flatnonzero(offsets[1:] > offsets[:-1])
    first, last = offsets[some], offsets[some + 1] - 1
    warm_up = np.full(schedule.devices, timeline.compute_end, np.int64)
    drain = np.zeros(schedule.devices, np.int64)
    waited_at = np.append(waited_for_transfers(timeline), 0)
    second = np.append(schedule.joined, False)[first + 1]  # the first occupancy is an overlapped pair
    warm_up[some] = timeline.start[first] - waited_at[first] - np.where(second, waited_at[first + 1], 0)
    drain[some] = timeline.compute_end - timeline.free[last]
    step = timeline.makespan - timeline.synchronised
    sync = timeline.synchronised - timeline.compute_end
    known = {
        Share.WORK: figures.busy,
        Share.WARM_UP: warm_up,
        Share.DRAIN: drain,
        Share.COMMUNICATION: figures.exposed_communication,
        Share.OVERHEAD: figures.overhead,
    }
    waited = figures.idle - sync - step - sum(known[share] for share in known if share is not Share.WORK)
    totals = {share: int(column.sum()) for share, column in (known | {Share.STEADY_STATE: waited}).items()}
    means = {share: Fraction(total, schedule.devices) for share, total in totals.items()}
    return means | {Share.SYNCHRONISATION: Fraction(sync), Share.OPTIMIZER: Fraction(step)}
