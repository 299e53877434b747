"""Raising a bound by refuting horizons below the best schedule.

With a horizon below the optimum the windows of many ops leave no choice, and CP-SAT refutes it much sooner than it
raises its own bound under the horizon of a known schedule (destructive bounds: Klein and Scholl, EJOR 112, 1999).
"""

from __future__ import annotations

from solvers.bounds import Bound
from solvers.incumbent import Incumbent
from solvers.model import build
from solvers.optimum import evaluated_again
from solvers.outcome import Found, Infeasible, Outcome, Proved, Unknown
from solvers.scope import Objective, first_starts, searching
from solvers.solve import Watch, solve

NEAR = 2000
"""A horizon nearer to the bound than one in so many is left to the search."""

EACH = 0.4
"""The part of the time left that one horizon gets at most."""


class Heed:
    """Listens for an interruption alone."""

    def __init__(self) -> None:
        self.stopped = False

    def solution(self, ticks: int) -> None:
        """A schedule is there; the incumbent takes it when its horizon is done with."""

    def bound(self, ticks: int) -> None:
        """A bound under a horizon need not be one of the whole."""

    def interrupted(self) -> None:
        """Ctrl-C has ended the search."""
        self.stopped = True


def refute(best: Incumbent, split: bool, until: float, *, workers: int, seed: int, watch: Heed) -> None:
    """Halve the gap from below: a horizon that is refuted raises the bound, one that is not gives a schedule.

    Parameters
    ----------
    best
        Takes bounds and schedules.
    until
        Seconds of the whole search after which this ends.
    watch
        Is told of an interruption, which ends it too.
    """
    known, precedences = best.ticks, True
    while known > best.bound.ticks and best.seconds < until and not watch.stopped:
        half = (known - best.bound.ticks) // 2
        if half < best.ticks // NEAR:
            return
        horizon = best.bound.ticks + half
        limit = (until - best.seconds) * EACH
        outcome = within(
            best, split, horizon, time_limit=limit, workers=workers, seed=seed, watch=watch, precedences=precedences
        )
        if outcome is None:
            return
        if isinstance(outcome, Unknown):  # from here on it is hard
            precedences = False
        if isinstance(outcome, Infeasible):
            best.raise_bound(Bound(horizon + 1, f"search (CP-SAT): no order is done in {horizon} ticks"))
            continue
        if isinstance(outcome, Proved | Found):
            best.offer(evaluated_again(outcome, best.problem, best.objective).timeline.schedule, "CP-SAT")
        if isinstance(outcome, Proved):
            best.raise_bound(Bound(outcome.ticks, "exhausted search (CP-SAT)"))
        known = min(horizon, best.ticks)


def within(
    best: Incumbent,
    split: bool,
    horizon: int,
    *,
    time_limit: float,
    workers: int,
    seed: int,
    watch: Watch,
    precedences: bool = True,
) -> Outcome | None:
    """Search the orders whose objective is a horizon at most.

    Returns
    -------
    Outcome or None
        Infeasible if there is none, whatever else; None where a span says nothing of when all is done.
    """
    problem, placement, last = best.problem, best.timeline.schedule.placement, horizon
    if best.objective is Objective.SPAN:
        starts = first_starts(problem, placement)
        if not starts:
            return None
        last += max(starts)
    floor = min(best.bound.ticks, horizon)
    scope = searching(problem, placement, split=split, objective=best.objective, horizon=last, floor=floor)
    model = build(problem, scope)
    model.cp.add(model.value <= horizon)
    return solve(model, time_limit=time_limit, workers=workers, seed=seed, watch=watch, precedences=precedences)
