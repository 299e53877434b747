"""The period of a schedule without a flush, measured exactly from the part of its timeline that repeats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from explorer.core.errors import Inapplicable, NoAnswer
from explorer.core.op import KINDS, Kind
from explorer.core.placement import IntArray
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate

MOST = 4096
"""Microbatches after which the search for a repetition ends."""


@dataclass(frozen=True)
class SteadyState:
    """What repeats.

    Parameters
    ----------
    period
        Time from one microbatch to the next in the long run, in the problem's unit.
    repeats_after
        Microbatches after which the timeline is the same again, later by as many periods.
    reached_at
        The first microbatch of the part that repeats.
    utilisation
        [device] the part of the period in which it computes.
    """

    period: Fraction
    repeats_after: int
    reached_at: int
    utilisation: tuple[Fraction, ...]


def steady_state(build: Callable[[int], Schedule], problem: Problem) -> SteadyState:
    """Evaluate more and more microbatches until the timeline is seen to repeat.

    An op waits only for ops of microbatches at most ``reach`` away. Once all starts of ``reach`` microbatches in a row
    are those of ``reach`` earlier ones, plus one constant, the recurrence goes on like that for ever; that is what is
    looked for, so the period is exact.

    Parameters
    ----------
    build
        Gives the order over a number of microbatches: each device's must be the beginning of an endless one, up to its
        last forward.
    problem
        Costs on the schedule's placement, of any number of microbatches; these must be alike.

    Raises
    ------
    Inapplicable
        If microbatches differ, or routes do.
    NoAnswer
        If nothing repeats within `MOST` microbatches.
    """
    if len(np.unique(problem.profile_of)) > 1:
        raise Inapplicable("a steady state needs microbatches of equal cost")
    microbatches = 4 * problem.devices
    while microbatches <= MOST:
        schedule = build(microbatches)
        if len(schedule.placement.routes) > 1:
            raise Inapplicable("a steady state needs one route for all microbatches")
        costs = replace(problem, profile_of=np.full(microbatches, problem.profile_of[0], np.int64))
        found = _repetition(schedule, evaluate(schedule, costs).start)
        if found is not None:
            first, length, ticks = found
            period = Fraction(ticks, length)
            return SteadyState(period * problem.time.tick, length, first, _utilisation(schedule, costs, period))
        microbatches *= 2
    raise NoAnswer(f"the timeline does not repeat within {MOST} microbatches")


def _repetition(schedule: Schedule, start: IntArray) -> tuple[int, int, int] | None:
    """The first microbatch, the length in microbatches and the ticks of the shortest repetition, or None."""
    reach, whole = _reach(schedule)
    column = schedule.stage.astype(np.int64) * len(KINDS) + schedule.kind
    columns, index = np.unique(column, return_inverse=True)
    starts = np.zeros((schedule.microbatches, len(columns)), np.int64)
    starts[schedule.microbatch, index] = start
    starts = starts[:whole]
    for length in range(1, (whole - reach) // 2 + 1):
        steps = starts[length:] - starts[:-length]
        same = (steps == steps[-1, 0]).all(axis=1)
        unlike = np.flatnonzero(~same)
        first = int(unlike[-1]) + 1 if len(unlike) else 0
        if len(same) - first >= reach:
            return first, length, int(steps[-1, 0])
    return None


def _reach(schedule: Schedule) -> tuple[int, int]:
    """How far apart in microbatches neighbours on a device are, and how many microbatches end before any drain."""
    reach, whole = 1, schedule.microbatches
    for device in range(schedule.devices):
        rows = slice(*schedule.offsets[device : device + 2])
        kind, microbatch = schedule.kind[rows], schedule.microbatch[rows].astype(np.int64)
        last = int(np.flatnonzero(kind == Kind.F)[-1])
        reach = max(reach, int(np.abs(np.diff(microbatch[: last + 1])).max(initial=0)))
        drained = microbatch[last + 1 :]
        whole = min(whole, int(drained.min(initial=whole)))
    return reach + 1, whole


def _utilisation(schedule: Schedule, problem: Problem, period: Fraction) -> tuple[Fraction, ...]:
    ticks = problem.durations[problem.profile_of[schedule.microbatch], schedule.chunk, schedule.kind]
    work = np.bincount(schedule.device, ticks, schedule.devices)
    return tuple(Fraction(int(total), schedule.microbatches) / period if period else Fraction(0) for total in work)
