"""Refuted horizons: never above an optimum, and up to it where time is no limit."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from explorer.config.recipe import AbstractCosts
from explorer.core.placement import linear, loop, mirrored
from explorer.core.problem import Communication
from solvers.bounds import best_bound, span_bound
from solvers.incumbent import Incumbent, Progress
from solvers.optimum import one_by_one, waiting_can_help
from solvers.outcome import Infeasible
from solvers.refute import Heed, refute, within
from solvers.scope import Objective
from tests.solver.agreement import kept
from tests.solver.brute import every_run
from tests.solver.cases import comparable_case, uniform

COSTS = AbstractCosts(
    forward=Fraction(10), input_grad=Fraction(11), weight_grad=Fraction(9), freed_at_input=Fraction(1, 2)
)


def silent(progress: Progress) -> None:
    """Nobody watches."""


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("kind", ["linear", "loop", "v", "mirrored", "irregular"])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_refuted_is_below_the_best_of_all_orders(seed: int, kind: str, objective: Objective) -> None:
    placement, problem, split = comparable_case(seed, kind, list(Communication)[seed % len(Communication)])
    runs = kept(problem, list(every_run(placement, problem, split)))
    if not runs:
        return
    spans = objective is Objective.SPAN
    optimum = min(run.span if spans else run.makespan for run in runs)
    simple = (span_bound if spans else best_bound)(problem, placement, split)
    best = Incumbent(problem, objective, one_by_one(placement, split), "first", simple, silent)
    refute(best, split, math.inf, workers=1, seed=0, watch=Heed())
    assert best.bound.ticks <= optimum <= best.ticks
    if not waiting_can_help(problem, placement, objective):
        assert best.proved


def test_a_bound_is_raised_to_the_optimum_from_below() -> None:
    placement = linear(3, 6)
    problem = replace(COSTS, memory_limit="2").problem(placement)
    best = Incumbent(
        problem, Objective.MAKESPAN, one_by_one(placement, True), "first", best_bound(problem, placement, True), silent
    )
    before = best.bound.ticks
    refute(best, True, math.inf, workers=1, seed=0, watch=Heed())
    assert before < best.bound.ticks == best.ticks
    options = {"time_limit": math.inf, "workers": 1, "seed": 0}
    assert isinstance(within(best, True, best.ticks - 1, watch=Heed(), **options), Infeasible)  # type: ignore[arg-type]
    assert not isinstance(within(best, True, best.ticks, watch=Heed(), **options), Infeasible)  # type: ignore[arg-type]


def test_spans_without_known_first_starts_are_left_alone() -> None:
    placement = mirrored(2, 2)
    problem = uniform(placement)
    best = Incumbent(
        problem, Objective.SPAN, one_by_one(placement, True), "first", span_bound(problem, placement, True), silent
    )
    assert within(best, True, 1, time_limit=1.0, workers=1, seed=0, watch=Heed()) is None


def test_an_interruption_ends_it() -> None:
    placement = loop(2, 2, 4)
    problem = uniform(placement, (2, 3, 2, 5), limit=4)
    best = Incumbent(
        problem, Objective.MAKESPAN, one_by_one(placement, True), "first", best_bound(problem, placement, True), silent
    )
    before, heed = best.bound, Heed()
    heed.interrupted()
    refute(best, True, math.inf, workers=1, seed=0, watch=heed)
    assert best.bound == before
