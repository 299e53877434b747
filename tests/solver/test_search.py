"""The whole search: against all orders of tiny cases, against named schedules, and how it changes with the question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Inapplicable, UsageError
from explorer.core.placement import Placement, along, linear, loop, mirrored, vee, wave
from explorer.core.problem import Communication, MemoryLimit, Problem
from explorer.core.schedule import Schedule
from explorer.evaluation.checker import verify
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import fits
from schedules.one_f_one_b import one_f_one_b
from solvers.bounds import Bound
from solvers.incumbent import Progress, Refuted, measured
from solvers.model import PARTS, REDUNDANT, build
from solvers.model.symmetry import identical_in_order
from solvers.optimise import Optimum, Remembered, Settings, named_schedules, optimise, placements
from solvers.optimum import one_by_one, too_little_memory, waiting_can_help
from solvers.orders.known import RULES, annealing, followed, listed
from solvers.outcome import Found, Infeasible, Proved
from solvers.pareto import frontier
from solvers.relaxation import bounds
from solvers.scope import Objective, searching
from solvers.search import ANNEAL_FROM, Named, search
from solvers.shop import Shop
from solvers.solve import solve
from tests.solver.brute import Run, every_run
from tests.solver.cases import random_case, uniform

PLACEMENTS = [linear(3, 5), loop(2, 4, 2), vee(3, 4), wave(2, 3, 2), mirrored(4, 4), along([0, 1, 0, 2], 3)]
IDS = ["linear", "loop", "vee", "wave", "mirrored", "uneven"]


def feasible(problem: Problem, runs: Iterator[Run]) -> list[Run]:
    caps = problem.memory_limit.per_device if problem.memory_limit else None
    return [run for run in runs if caps is None or all(p <= cap for p, cap in zip(run.peaks, caps, strict=True))]


@pytest.mark.parametrize("seed", range(100, 112))
def test_no_order_beats_the_bound_where_two_pass_at_a_time(seed: int) -> None:
    placement, problem, split = random_case(seed)
    everything = frozenset((i, j) for i in range(problem.devices) for j in range(problem.devices))
    network = replace(
        problem.network, latency=problem.network.latency + 1, shared=(("bus", everything),), servers=(1 + seed % 2,)
    )
    problem = replace(problem, network=network, communication=Communication.LINK, memory_limit=None)
    best = min(run.makespan for run in every_run(placement, problem, split))
    answer = search(problem, placement, split=split)
    assert isinstance(answer.outcome, Proved | Found)
    assert answer.bound is not None
    assert answer.bound.ticks <= best <= answer.outcome.ticks
    assert verify(answer.outcome.timeline, problem) == []


@pytest.mark.parametrize("seed", range(200, 212))
def test_no_order_beats_the_bound_where_all_reduces_hold_a_bus(seed: int) -> None:
    placement, problem, split = random_case(seed)
    everything = frozenset((i, j) for i in range(problem.devices) for j in range(problem.devices))
    network = replace(
        problem.network, latency=problem.network.latency + 1, shared=(("bus", everything),), servers=(1 + seed % 2,)
    )
    problem = replace(
        problem, network=network, communication=Communication.LINK, memory_limit=None, copies=2,
        sync=problem.sync + 3, sync_path=((0,),) * placement.chunks,
    )  # fmt: skip
    best = min(run.makespan for run in every_run(placement, problem, split))
    for bound in bounds(problem, placement, split, Objective.MAKESPAN):
        assert bound.ticks <= best, bound.reason
    free = solve(build(problem, searching(problem, placement, split=split)))
    assert isinstance(free, Proved)
    assert free.ticks <= best
    answer = search(problem, placement, split=split)
    assert isinstance(answer.outcome, Proved | Found)
    assert answer.bound is not None
    assert answer.bound.ticks <= best <= answer.outcome.ticks
    assert verify(answer.outcome.timeline, problem) == []


@pytest.mark.parametrize("seed", range(24, 48))
def test_search_equals_all_orders_and_the_plain_model(seed: int) -> None:
    placement, problem, split = random_case(seed)
    runs = feasible(problem, every_run(placement, problem, split))
    answer = search(problem, placement, split=split)
    if not runs:
        assert isinstance(answer.outcome, Infeasible)
        return
    best = min(run.makespan for run in runs)
    for bound in bounds(problem, placement, split, Objective.MAKESPAN):
        assert bound.ticks <= best, bound.reason
    assert isinstance(answer.outcome, Proved | Found)
    assert verify(answer.outcome.timeline, problem) == []
    assert answer.bound is not None
    assert answer.bound.ticks <= best <= answer.outcome.ticks
    if not waiting_can_help(problem, placement, Objective.MAKESPAN):
        scope = replace(searching(problem, placement, split=split), identical_in_order=False, windows=())
        plain = solve(build(problem, scope, [part for part in PARTS if part not in REDUNDANT]))
        assert isinstance(plain, Proved)
        assert isinstance(answer.outcome, Proved)
        assert plain.ticks == best == answer.outcome.ticks


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_no_order_has_a_span_below_the_bounds(seed: int) -> None:
    placement, problem, split = random_case(seed)
    runs = feasible(problem, every_run(placement, problem, split))
    if runs:
        best = min(run.span for run in runs)
        for bound in bounds(problem, placement, split, Objective.SPAN):
            assert bound.ticks <= best, bound.reason
        answer = search(problem, placement, split=split, objective=Objective.SPAN)
        assert answer.bound is not None
        assert answer.bound.ticks <= best
        if isinstance(answer.outcome, Proved):
            assert answer.outcome.ticks == best


@pytest.mark.parametrize("placement", PLACEMENTS, ids=IDS)
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("limit", [None, 3, 6])
def test_list_schedules_are_complete_and_fit(placement: Placement, split: bool, limit: int | None) -> None:
    problem = uniform(placement, (2, 3, 1, 4), Communication.LINK, latency=1, occupancy=2, limit=limit)
    if too_little_memory(one_by_one(placement, split), problem):
        return
    shop = Shop.of(problem, placement, split)
    found = dict(listed(shop))
    nested = any(sum(hop.device == d for hop in placement.routes[0]) > 1 for d in range(placement.devices))
    assert len(found) == len(RULES) // (1 if nested else 2)
    for schedule in found.values():
        timeline = evaluate(schedule, problem)
        assert verify(timeline, problem) == []
        for bound in bounds(problem, placement, split, Objective.MAKESPAN):
            assert bound.ticks <= timeline.makespan, bound.reason


def test_annealing_keeps_the_limit_and_only_improves() -> None:
    placement = vee(4, 6)
    problem = uniform(placement, (5, 6, 4, 10), limit=6)
    shop = Shop.of(problem, placement, True)
    start = min((evaluate(s, problem).makespan, name, s) for name, s in listed(shop))
    orders = shop.conformed(start[2])
    assert orders is not None
    for spans in (False, True):
        *_, found = filter(None, annealing(shop, orders, 20_000, heat=1.0, spans=spans, seed=1))
        assert fits(found, problem)
        timeline, objective = evaluate(found, problem), Objective.SPAN if spans else Objective.MAKESPAN
        assert measured(timeline, objective) < measured(evaluate(start[2], problem), objective)
        *_, again = filter(None, annealing(shop, orders, 20_000, heat=1.0, spans=spans, seed=1))
        assert found == again


def test_annealing_counts_links_and_synchronisations_as_the_evaluator_does() -> None:
    placement = mirrored(4, 8)
    problem = uniform(placement, (3, 3, 3, 6), Communication.LINK, latency=1, occupancy=4, sync=11)
    shop = Shop.of(problem, placement, True)
    first = next(iter(listed(shop)))[1]
    orders = shop.conformed(first)
    assert orders is not None
    *_, found = filter(None, annealing(shop, orders, 5_000, heat=0.5, spans=False, seed=0))
    assert evaluate(found, problem).makespan <= evaluate(first, problem).makespan


def test_a_schedule_over_the_limit_is_followed_as_far_as_it_goes() -> None:
    placement = linear(4, 8)
    problem = uniform(placement, limit=2)
    gpipe = dict(named_schedules(lambda p: uniform(p), placement, {}))["gpipe"]
    shop = Shop.of(problem, placement, True)
    orders = shop.conformed(gpipe)
    assert orders is not None
    assert not fits(shop.schedule(orders), problem)
    within = followed(shop, orders)
    assert within is not None
    assert fits(within, problem)


COSTS = AbstractCosts(forward=Fraction(2), input_grad=Fraction(2), weight_grad=Fraction(1), comm_time=Fraction(1))


@pytest.mark.parametrize("name", ["linear", "loop", "v", "wave", "mirrored"])
def test_the_optimum_is_no_worse_than_named_schedules(name: str) -> None:
    costs = replace(COSTS, memory_limit="3")
    (placement,) = placements(name, 4, 4)
    result = optimise(costs.problem, [placement], Settings(time_limit=2.0, workers=1))
    assert result.ticks is not None
    for row in result.compared:
        assert sum(row.losses.values()) + Fraction(20) == row.makespan
        if row.fits_memory and row.same_placement and row.ratio is not None:
            assert row.ratio >= 1, row.name


def best(costs: AbstractCosts) -> int:
    placement = linear(3, 4)
    answer = search(costs.problem(placement), placement, split=True)
    assert isinstance(answer.outcome, Proved)
    return int(costs.problem(placement).time.value(answer.outcome.ticks) * 60)


@settings(max_examples=8)
@given(
    limit=st.sampled_from(["1", "2", "3", None]),
    what=st.sampled_from(["forward", "input_grad", "weight_grad", "comm_time"]),
)
def test_the_optimum_is_monotone(limit: str | None, what: str) -> None:
    costs = replace(COSTS, memory_limit=limit)
    more = replace(costs, **{what: getattr(costs, what) + 1})
    looser = replace(costs, memory_limit=None if limit in (None, "3") else str(int(limit) + 1))
    assert best(looser) <= best(costs) <= best(more)


def test_relabelled_microbatches_have_the_same_optimum() -> None:
    lengths = (Fraction(1), Fraction(2), Fraction(1), Fraction(3))
    values = {
        best(replace(COSTS, microbatch_factors=tuple(lengths[i] for i in order)))
        for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2))
    }
    assert len(values) == 1


def test_symmetry_and_windows_change_no_optimum_on_nested_devices() -> None:
    for placement in (vee(2, 3), loop(2, 3, 2), mirrored(2, 4)):
        problem = uniform(placement, (2, 3, 1, 4), Communication.LATENCY, latency=1, limit=5)
        scope = searching(problem, placement, split=True)
        free = replace(scope, identical_in_order=False, windows=())
        outcomes = [
            solve(build(problem, scope)),
            solve(build(problem, free, [part for part in PARTS if part is not identical_in_order])),
        ]
        assert all(isinstance(outcome, Proved) for outcome in outcomes)
        assert len({outcome.ticks for outcome in outcomes if isinstance(outcome, Proved)}) == 1


def test_an_interruption_returns_the_best_so_far() -> None:
    placement = vee(4, 8)
    problem = uniform(placement, (5, 6, 4, 10), limit=6)
    told: list[Progress] = []

    def watch(now: Progress) -> None:
        told.append(now)
        if now.doing == "annealing":
            raise KeyboardInterrupt

    answer = search(problem, placement, split=True, watch=watch)
    assert answer.interrupted
    assert isinstance(answer.outcome, Found)
    assert verify(answer.outcome.timeline, problem) == []
    assert [now.best for now in told] == sorted((now.best for now in told), reverse=True)
    assert [now.bound for now in told] == sorted(now.bound for now in told)


def made_until_interrupted(*_: object, **__: object) -> Iterator[Named]:
    yield "1f1b", one_f_one_b(3, 4)
    raise KeyboardInterrupt


def test_an_interruption_while_named_schedules_are_made_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("optimise", "pareto"):
        monkeypatch.setattr(f"solvers.{module}.named_schedules", made_until_interrupted)
    costs, placement = AbstractCosts(input_grad=Fraction(2), weight_grad=Fraction(3)), linear(3, 4)
    result = optimise(costs.problem, [placement], Settings())
    assert result.answer.interrupted
    assert [row.name for row in result.compared] == ["1f1b"]
    assert result.timeline is not None
    assert verify(result.timeline, result.problem) == []
    assert result.ticks is not None
    split = one_f_one_b(3, 4).with_split_backward()
    assert result.ticks <= evaluate(split, result.problem).makespan
    points = frontier(costs.problem, placement, Settings(), limits=("2", "3")).points
    assert [(point.limit.text, point.answer.interrupted) for point in points] == [("2", True)]


def test_an_interruption_between_placements_loses_nothing() -> None:
    costs, first, second = AbstractCosts(forward=Fraction(1)), linear(2, 3), along([1, 0], 3)

    def recipe(placement: Placement) -> Problem:
        if placement == second:
            raise KeyboardInterrupt
        return costs.problem(placement)

    result = optimise(recipe, [first, second], Settings())
    assert result.answer.interrupted
    assert result.placement == first
    assert result.timeline is not None
    assert verify(result.timeline, result.problem) == []
    assert result.answer.bound is not None
    assert result.answer.bound.reason.endswith("not all placements were searched")


def test_named_schedules_are_made_once_and_kept() -> None:
    made: list[str] = []

    def source() -> Iterator[Named]:
        for name in ("first", "second", "third"):
            made.append(name)
            yield name, one_f_one_b(2, 2)

    known = Remembered(source())
    assert next(iter(known))[0] == "first"
    assert made == ["first"]
    assert [name for name, _ in known] == [name for name, _ in known] == made == ["first", "second", "third"]


def test_one_worker_is_repeatable() -> None:
    placement = linear(4, 6)
    assert ANNEAL_FROM > 3 * 24
    problem = uniform(placement, (5, 6, 4, 10), limit=2)
    runs = [search(problem, placement, split=True, seed=3) for _ in range(2)]
    schedules = {run.outcome.timeline.schedule for run in runs if not isinstance(run.outcome, Infeasible)}
    assert len(schedules) == 1


def test_free_placements_beat_or_equal_each_single_one() -> None:
    costs = AbstractCosts(forward=Fraction(1), memory_limit="2")

    def found(candidates: tuple[Placement, ...]) -> Optimum:
        return optimise(costs.problem, candidates, Settings())

    free = found(placements("free", 2, 2))
    assert isinstance(free.answer.outcome, Proved)
    for name in ("loop", "v"):
        single = found(placements(name, 2, 2))
        assert isinstance(single.answer.outcome, Proved)
        assert free.answer.outcome.ticks <= single.answer.outcome.ticks


def test_what_cannot_be_searched_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'linear'"):
        placements("liner", 2, 2)
    with pytest.raises(UsageError, match="at least 1 device"):
        placements("linear", 0, 2)
    with pytest.raises(Inapplicable, match="GB to search"):
        placements("linear", 1024, 4096)
    with pytest.raises(Inapplicable, match="ways"):
        placements("free", 8, 8)
    uneven = AbstractCosts(memory_limit="1,2")
    with pytest.raises(Inapplicable, match="equal memory limits"):
        optimise(uneven.problem, placements("free", 2, 2), Settings())
    other = Schedule.from_orders(linear(2, 1), [[], []])
    with pytest.raises(UsageError, match="another placement"):
        optimise(AbstractCosts().problem, placements("linear", 3, 3), Settings(), hint=other)


def test_a_limit_of_one_activation_allows_one_microbatch_at_a_time() -> None:
    placement = linear(3, 4)
    problem = replace(uniform(placement), memory_limit=MemoryLimit((1, 1, 1), False, "1"))
    answer = search(problem, placement, split=True)
    assert isinstance(answer.outcome, Proved)
    assert answer.outcome.ticks == evaluate(one_by_one(placement, True), problem).makespan


def test_a_bound_that_a_schedule_refutes_is_never_called_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    # One device, two microbatches: 6 ticks, without a gap. A bound of 7 is false, and the schedule shows it.
    placement = linear(1, 2)
    problem = AbstractCosts().problem(placement)
    monkeypatch.setattr("solvers.search.best_bound", lambda *_, **__: Bound(7, "a fault"))
    with pytest.raises(Refuted, match="takes 6 ticks and refutes the bound of 7: a fault"):
        search(problem, placement, split=False)
