"""Bounds: below every schedule, and reached by some."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings

from explorer.core.op import B, F, Overlapped
from explorer.core.placement import Placement, linear, loop, mirrored, vee
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate
from schedules.one_f_one_b import one_f_one_b
from solvers.bounds import Bound, best_bound, schedule_bound, simple_bounds, span_bound
from tests.solver.brute import every_run
from tests.solver.cases import random_case, uniform
from tests.strategies import instances

Instance = tuple[Schedule, Problem]


@settings(max_examples=300)
@given(instances())
def test_no_schedule_is_below_its_bounds(instance: Instance) -> None:
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    kinds = set(schedule.kind.tolist())
    split = None if {1, 3} <= kinds else 1 in kinds
    for bound in simple_bounds(problem, schedule.placement, split, pairs=schedule.overlaps):
        assert bound.ticks <= timeline.makespan, bound.reason
    assert span_bound(problem, schedule.placement, split, pairs=schedule.overlaps).ticks <= timeline.spans.max()
    assert schedule_bound(problem, schedule) == best_bound(problem, schedule.placement, split, pairs=schedule.overlaps)


@pytest.mark.parametrize("seed", range(1, 24, 3))
def test_no_order_of_a_tiny_case_is_below_the_bound(seed: int) -> None:
    placement, problem, split = random_case(seed)
    runs = list(every_run(placement, problem, split))
    assert best_bound(problem, placement, split).ticks <= min(run.makespan for run in runs)
    assert span_bound(problem, placement, split).ticks <= min(run.span for run in runs)


@pytest.mark.parametrize("mode", list(Communication))
@pytest.mark.parametrize("placement", [linear(3, 1), loop(2, 1, 2), vee(2, 1)], ids=["linear", "loop", "vee"])
def test_one_microbatch_takes_its_critical_path(placement: Placement, mode: Communication) -> None:
    problem = uniform(placement, (2, 3, 1, 4), mode, latency=1, occupancy=2, launch=1, posting=1)
    last = placement.stages - 1
    orders: list[list[object]] = [[] for _ in range(placement.devices)]
    for kind, stages in ((F, range(last + 1)), (B, range(last, -1, -1))):
        for stage in stages:
            orders[placement.route(0)[stage].device].append(kind(stage, 0))
    schedule = Schedule.from_orders(placement, orders)  # type: ignore[arg-type]
    bound = best_bound(problem, placement, split=False)
    assert bound == Bound(evaluate(schedule, problem).makespan, "critical path of one microbatch")


@pytest.mark.parametrize("mode", [Communication.NONE, Communication.LATENCY])
def test_work_with_head_and_tail_is_reached(mode: Communication) -> None:
    schedule = one_f_one_b(3, 6)
    problem = uniform(schedule.placement, (1, 1, 1, 2), mode, latency=0)
    bound = schedule_bound(problem, schedule)
    assert bound == Bound(
        evaluate(schedule, problem).makespan, "work of device 2, with what must precede and follow it"
    )


def test_an_overlap_lowers_the_work() -> None:
    placement = linear(1, 4)
    orders = [[F(0, 0), *(Overlapped(F(0, m + 1), B(0, m)) for m in range(3)), B(0, 3)]]
    schedule = Schedule.from_orders(placement, orders)
    whole = uniform(placement, (2, 2, 2, 4))
    half = Problem(**{**vars(whole), "overlap": Fraction(1, 2)})
    assert schedule_bound(whole, schedule).ticks == 24
    assert 12 == schedule_bound(half, schedule).ticks <= evaluate(schedule, half).makespan == 15
    assert best_bound(half, placement, split=False).ticks == 24


def test_synchronisations_follow_the_gradients() -> None:
    placement = mirrored(2, 2)
    problem = uniform(placement, sync=20, posting=10)
    bound = best_bound(problem, placement, split=False)
    schedule = Schedule.from_orders(
        placement, [[F(0, 0), F(1, 1), B(1, 1), B(0, 0)], [F(0, 1), F(1, 0), B(1, 0), B(0, 1)]]
    )
    # Both chunks' take 40; the first begins when F, posting, F and B have taken 14.
    assert bound == Bound(54, "gradient synchronisations of device 0")
    assert evaluate(schedule, problem).makespan == 54
