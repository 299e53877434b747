"""Long schedules from short ones."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from explorer.config.recipe import AbstractCosts
from explorer.core.placement import Placement, linear, mirrored, vee
from explorer.evaluation.checker import verify
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import fits
from solvers.outcome import Infeasible, Proved
from solvers.pace import entering, entering_edges
from solvers.relaxation import makespans
from solvers.search import search
from solvers.shop import Shop
from solvers.stretch import short_case, stretched
from solvers.windows import windows
from tests.solver.cases import uniform


@pytest.mark.parametrize("placement", [linear(3, 40), vee(2, 40)], ids=["linear", "vee"])
def test_a_repeated_block_is_a_schedule_at_the_pace_of_the_short_one(placement: Placement) -> None:
    problem = uniform(placement, (2, 2, 2, 4), limit=4)
    case = short_case(problem, placement, 8)
    assert case is not None
    answer = search(*case, split=True, time_limit=2.0)
    assert not isinstance(answer.outcome, Infeasible)
    shop, short = Shop.of(problem, placement, True), Shop.of(*case, True)
    found = list(stretched(shop, short, answer.outcome.timeline))
    assert found
    spans = []
    for schedule in found:
        schedule.require_complete()
        assert fits(schedule, problem)
        timeline = evaluate(schedule, problem)
        assert verify(timeline, problem) == []
        spans.append(timeline.makespan)
    work = 32 * 6 * placement.stages // placement.devices
    assert min(spans) <= answer.outcome.ticks + work * Fraction(5, 4)


def test_what_differs_by_microbatch_is_not_stretched() -> None:
    assert short_case(uniform(mirrored(2, 8)), mirrored(2, 8), 4) is None
    lengths = AbstractCosts(microbatch_factors=tuple(Fraction(1 + m % 2) for m in range(8)))
    assert short_case(lengths.problem(linear(2, 8)), linear(2, 8), 4) is None


COSTS = AbstractCosts(
    forward=Fraction(10), input_grad=Fraction(11), weight_grad=Fraction(9), freed_at_input=Fraction(1, 2)
)


def test_a_long_case_is_answered_within_a_small_gap() -> None:
    placement = linear(4, 256)
    problem = replace(COSTS, memory_limit="4").problem(placement)
    answer = search(problem, placement, split=True, time_limit=2.0)
    assert not isinstance(answer.outcome, Infeasible)
    assert answer.bound is not None
    assert 200 * (answer.outcome.ticks - answer.bound.ticks) <= answer.outcome.ticks


def test_the_pace_is_slower_than_memory_alone_would_have_it() -> None:
    placement = linear(4, 24)
    problem = replace(COSTS, memory_limit="2").problem(placement)
    shop = Shop.of(problem, placement, True)
    pace = entering(problem, placement, True, 12, 5.0)
    alone = windows(shop).longest
    assert windows(shop, more=entering_edges(shop, 12, pace)).longest > alone


@pytest.mark.parametrize("limit", [1, 2, 3, None])
@pytest.mark.parametrize("placement", [linear(2, 4), vee(2, 3)], ids=["linear", "vee"])
def test_the_pace_of_few_holds_in_every_schedule_of_many(placement: Placement, limit: int | None) -> None:
    problem = uniform(placement, (2, 3, 2, 5), limit=None if limit is None else limit * placement.stages // 2)
    shop = Shop.of(problem, placement, True)
    pace = entering(problem, placement, True, 2, 5.0)
    edges = entering_edges(shop, 2, pace)
    bound = max(bound.ticks for bound in makespans(windows(shop, more=edges)))
    answer = search(problem, placement, split=True)
    assert isinstance(answer.outcome, Proved)
    assert bound <= answer.outcome.ticks
    timeline = answer.outcome.timeline
    start, schedule = timeline.start, timeline.schedule
    first = [row for row in schedule.rows(0) if str(schedule.op(row)).startswith("0F")]
    for i, j in zip(first, first[2:], strict=False):
        assert start[j] - start[i] >= pace


def test_a_tight_limit_sets_the_pace() -> None:
    placement = linear(2, 8)
    problem = uniform(placement, (2, 2, 2, 4), limit=1)
    trip = 2 + 2 + 2 + 2 + 2
    assert entering(problem, placement, True, 3, 5.0) == 3 * trip
    assert entering(uniform(mirrored(2, 8)), mirrored(2, 8), True, 3, 5.0) == 0
