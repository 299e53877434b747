"""Optima: against all orders of tiny cases and known figures, and how an answer says how it knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from explorer.core.errors import Disagreement, UsageError
from explorer.core.op import Overlapped
from explorer.core.placement import Placement, linear, loop, mirrored, vee
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.checker import verify
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import fits
from schedules.one_f_one_b import one_f_one_b
from solvers.model import build
from solvers.optimum import evaluated_again, one_by_one, optimum, waiting_can_help
from solvers.outcome import Found, Infeasible, Proved, Unknown
from solvers.scope import Objective, searching
from solvers.solve import solve
from tests.solver.agreement import compare, kept
from tests.solver.brute import every_run
from tests.solver.cases import SHAPES, comparable_case, random_case, rotated, uniform


def proved(problem: Problem, placement: Placement, *, split: bool, objective: Objective = Objective.MAKESPAN) -> int:
    outcome = optimum(problem, placement, split=split, objective=objective)
    assert isinstance(outcome, Proved)
    assert verify(outcome.timeline, problem) == []
    return outcome.ticks


@pytest.mark.parametrize("seed", range(24))
def test_optimum_is_the_best_of_all_orders(seed: int) -> None:
    placement, problem, split = random_case(seed)
    runs = kept(problem, list(every_run(placement, problem, split)))
    outcome = optimum(problem, placement, split=split)
    free = solve(build(problem, searching(problem, placement, split=split)))
    if not runs:
        assert isinstance(outcome, Infeasible)
        assert isinstance(free, Infeasible)
        return
    best = min(run.makespan for run in runs)
    assert isinstance(free, Proved)
    if waiting_can_help(problem, placement, Objective.MAKESPAN):
        assert free.ticks <= best
        assert isinstance(outcome, Proved | Found)
        assert free.ticks <= best <= outcome.ticks
    else:
        assert free.ticks == best
        assert isinstance(outcome, Proved)
    if isinstance(outcome, Proved):
        assert outcome.ticks == best


@pytest.mark.parametrize("seed", range(0, 24, 4))
def test_span_is_bracketed_by_all_orders(seed: int) -> None:
    placement, problem, split = random_case(seed)
    problem = replace(problem, memory_limit=None)
    best = min(run.span for run in every_run(placement, problem, split))
    outcome = optimum(problem, placement, split=split, objective=Objective.SPAN)
    assert isinstance(outcome, Proved | Found)
    bound = outcome.ticks if isinstance(outcome, Proved) else outcome.bound
    assert bound <= best <= outcome.ticks


@pytest.mark.parametrize("mode", list(Communication))
@pytest.mark.parametrize("kind", SHAPES)
def test_all_orders_both_models_and_the_bounds_agree(kind: str, mode: Communication) -> None:
    for seed in range(3):
        placement, problem, split = comparable_case(seed, kind, mode)
        runs = list(every_run(placement, problem, split))
        for objective in Objective:
            assert compare(placement, problem, split, objective, runs).wrong == ()


def test_a_wrong_optimum_is_a_disagreement() -> None:
    placement, problem, split = linear(2, 2), uniform(linear(2, 2)), True
    runs = list(every_run(placement, problem, split))
    best = min(run.makespan for run in runs)
    assert compare(placement, problem, split, Objective.MAKESPAN, runs).wrong == ()
    worse = [run for run in runs if run.makespan > best]
    better = [*runs, runs[0]._replace(makespan=best - 1)]
    assert compare(placement, problem, split, Objective.MAKESPAN, worse).wrong
    assert len(compare(placement, problem, split, Objective.MAKESPAN, better).wrong) > 1  # the bound is met, so over it


def test_rotated_replicas_beat_mirrored_ones() -> None:
    for placement, expected in ((mirrored(4, 4), 16), (rotated(4), 15)):
        assert proved(uniform(placement), placement, split=False) == expected


def test_published_optima_under_tight_memory() -> None:
    placement = linear(4, 8)
    assert {k: proved(uniform(placement, limit=k), placement, split=True) for k in (2, 3)} == {2: 41, 3: 31}


def test_unlimited_zero_bubble_has_the_work_as_its_span() -> None:
    placement = linear(3, 6)
    assert proved(uniform(placement), placement, split=True, objective=Objective.SPAN) == 18


@pytest.mark.parametrize("placement", [loop(2, 3, 2), vee(2, 3), mirrored(2, 4)], ids=["loop", "vee", "mirrored"])
@pytest.mark.parametrize("mode", list(Communication))
def test_every_mode_solves_on_every_placement(placement: Placement, mode: Communication) -> None:
    problem = uniform(placement, (2, 3, 1, 4), mode, latency=1, occupancy=2, limit=6)
    outcome = optimum(problem, placement, split=True)
    assert isinstance(outcome, Proved)
    assert verify(outcome.timeline, problem) == []
    assert fits(outcome.timeline.schedule, problem)


def test_a_limit_below_one_microbatch_is_refused_with_its_device() -> None:
    placement = vee(2, 3)
    outcome = optimum(uniform(placement, limit=1), placement, split=False)
    assert outcome == Infeasible(
        "on device 0 one microbatch's activations take 2, but the memory limit 1 leaves 1 for them; "
        "the smallest feasible limit is 2"
    )
    model = build(uniform(placement, limit=1), searching(uniform(placement, limit=1), placement, split=False))
    assert isinstance(solve(model), Infeasible)


@pytest.mark.parametrize("placement", [linear(2, 1), loop(1, 2, 2), vee(2, 2)], ids=["linear", "loop", "vee"])
@pytest.mark.parametrize("posting", [0, 1])
def test_ops_that_take_no_time_keep_their_order(placement: Placement, posting: int) -> None:
    problem = uniform(placement, (0, 0, 0, 0), posting=posting)
    for objective in Objective:
        outcome = optimum(problem, placement, split=True, objective=objective)
        assert isinstance(outcome, Proved | Found)
        assert verify(outcome.timeline, problem) == []


def test_a_seed_that_meets_the_bound_needs_no_search() -> None:
    schedule = one_f_one_b(4, 8)
    problem = uniform(schedule.placement)
    outcome = optimum(problem, schedule.placement, split=False, seed_schedule=schedule, time_limit=0)
    assert isinstance(outcome, Proved)
    assert outcome.timeline.schedule == schedule


def test_without_time_the_seed_is_what_is_found() -> None:
    schedule = one_f_one_b(4, 8).with_split_backward()
    problem = uniform(schedule.placement, limit=4)
    outcome = optimum(problem, schedule.placement, split=True, seed_schedule=schedule, time_limit=0)
    assert isinstance(outcome, Found)
    assert outcome.timeline.schedule == schedule
    assert outcome.bound < outcome.ticks == evaluate(schedule, problem).makespan
    model = build(problem, searching(problem, schedule.placement, split=True, floor=outcome.bound))
    assert solve(model, time_limit=0) == Unknown(outcome.bound)


def test_seeds_that_do_not_fit_are_refused() -> None:
    schedule = one_f_one_b(3, 4)
    placement = schedule.placement
    problem = uniform(placement)
    with pytest.raises(UsageError, match="must have a split backward"):
        optimum(problem, placement, split=True, seed_schedule=schedule)
    with pytest.raises(UsageError, match="another placement"):
        optimum(problem, loop(3, 4, 1), split=False, seed_schedule=one_f_one_b(3, 5))
    with pytest.raises(UsageError, match="does not fit"):
        optimum(uniform(placement, limit=2), placement, split=False, seed_schedule=schedule)
    order = [Overlapped(*entries) for entries in zip(*[iter(one_by_one(linear(1, 2), False).ops(0))] * 2, strict=True)]
    paired = Schedule.from_orders(linear(1, 2), [order])
    with pytest.raises(UsageError, match="no overlapped pairs"):
        optimum(uniform(linear(1, 2)), linear(1, 2), split=False, seed_schedule=paired)


def test_an_answer_that_the_longest_path_contradicts_is_not_believed() -> None:
    schedule = one_f_one_b(3, 4)
    problem = uniform(schedule.placement)
    timeline: Timeline = evaluate(schedule, problem)
    for wrong in (Proved(timeline.makespan + 1, timeline), Proved(timeline.makespan - 1, timeline)):
        with pytest.raises(Disagreement):
            evaluated_again(wrong, problem, Objective.MAKESPAN)
    with pytest.raises(Disagreement, match="memory"):
        evaluated_again(Proved(timeline.makespan, timeline), uniform(schedule.placement, limit=2), Objective.MAKESPAN)
