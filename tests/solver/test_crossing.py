"""What crossings add to round trips: below every schedule, and more than memory alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest

from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Deadlock
from explorer.core.op import B, F, Kind
from explorer.core.placement import Placement, linear, mirrored, vee
from explorer.core.problem import Communication, Problem, Stash
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate
from solvers.bounds import Bound
from solvers.crossing import Crossing, crossing, crossings, round_trips
from solvers.optimum import one_by_one, too_little_memory
from solvers.orders.known import listed
from solvers.relaxation import bounds
from solvers.scope import Objective
from solvers.shop import Shop
from solvers.windows import windows
from tests.solver.agreement import model_optimum
from tests.solver.cases import uniform

COSTS = AbstractCosts(
    forward=Fraction(10), input_grad=Fraction(11), weight_grad=Fraction(9), freed_at_input=Fraction(1, 2)
)


def uneven(placement: Placement, seed: int, limit: int) -> Problem:
    """Identical microbatches, anything else random."""
    random = Random(seed)
    mode = random.choice(list(Communication))
    problem = uniform(
        placement, mode=mode, latency=random.randint(0, 3), occupancy=random.randint(0, 2), limit=limit * 2,
        launch=random.randint(0, 1), posting=random.randint(0, 1),
        sync=random.randint(0, 3),
    )  # fmt: skip
    durations = [[[random.randint(1, 12) for _ in range(4)] for _ in range(placement.chunks)]]
    held = np.array([[random.choice((1, 2, 2)) for _ in range(placement.chunks)]])
    freed = np.minimum(held, random.randint(0, 2))
    stash = Stash(Fraction(1), held, freed, np.zeros(placement.chunks, np.int64))
    return replace(problem, durations=np.array(durations), stash=stash)


def known(problem: Problem, placement: Placement, split: bool) -> list[Bound]:
    return list(crossings(windows(Shop.of(problem, placement, split))))


def orders(device: int, count: int, flight: int) -> Iterator[list[object]]:
    """Every order of a device's forwards and backwards, each in turn, with so many in flight at most."""

    def grow(forwards: int, backwards: int) -> Iterator[list[object]]:
        if backwards == count:
            yield []
        if forwards < count and forwards - backwards < flight:
            yield from ([F(device, forwards), *rest] for rest in grow(forwards + 1, backwards))
        if backwards < forwards:
            yield from ([B(device, backwards), *rest] for rest in grow(forwards, backwards + 1))

    yield from grow(0, 0)


@pytest.mark.parametrize("seed", range(12))
def test_no_order_of_six_microbatches_with_two_in_flight_is_below_the_bounds(seed: int) -> None:
    placement = linear(2, 6)
    problem = uneven(placement, seed, 2)
    problem = replace(problem, stash=replace(problem.stash, held=np.array([[2, 2]])))
    best = None
    for choice in product(*(list(orders(device, 6, 2)) for device in range(2))):
        try:
            makespan = evaluate(Schedule.from_orders(placement, choice), problem).makespan  # type: ignore[arg-type]
        except Deadlock:
            continue
        best = makespan if best is None else min(best, makespan)
    some = known(problem, placement, split=False)
    assert some
    assert best is not None
    for bound in some:
        assert bound.ticks <= best, bound.reason


@pytest.mark.parametrize("seed", range(8))
def test_no_optimum_of_the_plain_model_is_below_the_bounds(seed: int) -> None:
    placement, split = (linear(2, 6), True) if seed % 2 else (linear(3, 6), False)
    problem = uneven(placement, seed, 2)
    best = model_optimum(problem, placement, split, Objective.MAKESPAN, plain=True)
    assert best is not None
    for bound in bounds(problem, placement, split, Objective.MAKESPAN):
        assert bound.ticks <= best, bound.reason


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("split", [True, False])
def test_the_round_trips_of_every_list_schedule_take_that_long(seed: int, split: bool) -> None:
    random = Random(seed)
    placement = random.choice([linear(3, 14), linear(5, 16), vee(2, 14), vee(3, 12)])
    problem = uneven(placement, seed, random.choice((2, 3, 4)))
    if too_little_memory(one_by_one(placement, split), problem):
        problem = replace(problem, memory_limit=uniform(placement, limit=9).memory_limit)
    shop = Shop.of(problem, placement, split)
    some = known(problem, placement, split)
    trips: list[tuple[int, Crossing, tuple[int, ...], tuple[int, ...], int]] = []
    for stage in range(placement.stages):
        one = crossing(shop, stage)
        if one is not None and one.flight > 1:
            k = one.flight
            for weights in ((3, 4, 3), (1, 2, 3, 2, 1)):
                offsets = tuple(i // 2 * k + i % 2 * (k // 2) for i in range(len(weights)))
                trips.append((stage, one, offsets, weights, round_trips(one, offsets, weights)))
    assert trips
    for _, schedule in listed(shop):
        timeline = evaluate(schedule, problem)
        for bound in some:
            assert bound.ticks <= timeline.makespan, bound.reason
        for stage, one, offsets, weights, least in trips:
            x = timeline.start[(schedule.kind == Kind.F) & (schedule.stage == stage)]
            trip = x[one.flight :] - x[: -one.flight]
            for first in range(len(trip) - offsets[-1]):
                assert sum(w * trip[first + t] for t, w in zip(offsets, weights, strict=True)) >= least


def test_what_is_reasoned_by_hand_for_equal_stages() -> None:
    """Of m, m + 4 and m + 8 either the second is held up by 9 ticks, or all three are by 12."""
    shop = Shop.of(replace(COSTS, memory_limit="8").problem(linear(16, 64)), linear(16, 64), True)
    one = crossing(shop, 0)
    assert one is not None
    assert (one.flight, one.trip) == (8, 16 * 10 + 16 * 11 + 9)
    assert round_trips(one, (0, 4, 8), (1, 1, 1)) == 3 * one.trip + 9
    assert round_trips(one, (0, 4, 8), (3, 4, 3)) == 10 * one.trip + 36
    assert round_trips(one, (0, 4), (1, 1)) == 2 * one.trip


def test_it_is_more_than_memory_alone_with_many_microbatches() -> None:
    placement = linear(4, 24)
    problem = replace(COSTS, memory_limit="2").problem(placement)
    plain = windows(Shop.of(problem, placement, True))
    assert max(bound.ticks for bound in crossings(plain)) > plain.longest


def test_where_microbatches_differ_or_memory_is_plenty_it_says_nothing() -> None:
    assert known(uniform(mirrored(2, 8), limit=2), mirrored(2, 8), split=True) == []
    assert known(uniform(linear(2, 8)), linear(2, 8), split=True) == []
    assert known(uniform(linear(2, 8), limit=8), linear(2, 8), split=True) == []
    assert known(uniform(linear(2, 5), limit=2), linear(2, 5), split=True) == []
