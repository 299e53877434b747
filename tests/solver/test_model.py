"""The model: every part counts, pins only add, and its rows can be read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from explorer.core.errors import Inapplicable, Inexact, UsageError
from explorer.core.op import B, F
from explorer.core.placement import Hop, Placement, linear, mirrored, vee
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate
from schedules.one_f_one_b import one_f_one_b
from solvers.model import PARTS, REDUNDANT, Model, Part, build, pin_order, pin_times
from solvers.model.communication import (
    few_at_once,
    first_come_first_served,
    gradients_before_step,
    gradients_before_sync,
    sent_when_ready,
    syncs_in_turn,
    transfers_and_syncs_in_turn,
)
from solvers.model.memory import within_limit
from solvers.model.objective import measure
from solvers.model.precedence import inputs_made_here, inputs_sent
from solvers.model.resources import device_exclusive
from solvers.outcome import Infeasible, Proved
from solvers.scope import Objective, Scope, evaluating, searching
from solvers.solve import solve
from tests.solver.cases import uniform

LINK = Communication.LINK


def one_shared_link() -> tuple[Placement, Problem]:
    """Four devices that send through one switch, on which the urgent cannot pass what was ready before."""
    placement = mirrored(4, 2)
    pairs = frozenset((i, j) for i in range(4) for j in range(4) if i != j)
    problem = uniform(placement, mode=LINK, shared=(("switch", pairs),))
    durations = [[[2, 2, 4, 1], [6, 4, 5, 6], [1, 2, 2, 4], [6, 4, 1, 2]]]
    network = replace(problem.network, occupancy=np.array([[[9], [9], [1], [9]]], np.int64))
    return placement, replace(problem, durations=np.array(durations, np.int64), network=network)


def with_link(placement: Placement) -> tuple[Placement, Problem]:
    return placement, uniform(placement, mode=LINK, latency=1, occupancy=4)


def three_pairs_and_two_servers() -> tuple[Placement, Problem]:
    routes = tuple((Hop(0, device), Hop(1, 3)) for device in range(3))
    placement = Placement(routes, (0, 1, 2))
    problem = uniform(placement, mode=LINK, occupancy=6, shared=(("switch", frozenset((i, 3) for i in range(3))),))
    return placement, replace(problem, network=replace(problem.network, servers=(2,)))


def all_reduces_on_a_bus() -> tuple[Placement, Problem]:
    """Two replicas whose gradients and all-reduces pass one bus."""
    placement = mirrored(2, 2)
    bus = ("bus", frozenset({(0, 1), (1, 0)}))
    problem = uniform(placement, mode=LINK, latency=1, occupancy=4, sync=5, shared=(bus,))
    return placement, replace(problem, sync_path=((0,), (0,)))


CASES: dict[Part, tuple[Placement, Problem]] = {
    inputs_made_here: (linear(2, 1), uniform(linear(2, 1))),
    inputs_sent: (linear(2, 1), uniform(linear(2, 1), mode=Communication.LATENCY, latency=3)),
    device_exclusive: (linear(1, 2), uniform(linear(1, 2))),
    sent_when_ready: with_link(linear(2, 2)),
    first_come_first_served: one_shared_link(),
    few_at_once: three_pairs_and_two_servers(),
    gradients_before_sync: (mirrored(2, 2), uniform(mirrored(2, 2), sync=5)),
    syncs_in_turn: (mirrored(2, 2), uniform(mirrored(2, 2), sync=5)),
    transfers_and_syncs_in_turn: all_reduces_on_a_bus(),
    gradients_before_step: (linear(2, 1), uniform(linear(2, 1), optimizer=(3, 3))),
    within_limit: (linear(2, 3), uniform(linear(2, 3), limit=1)),
    measure: (linear(2, 1), uniform(linear(2, 1))),
}


def least(problem: Problem, scope: Scope, *, without: tuple[Part, ...] = ()) -> int:
    outcome = solve(build(problem, scope, [part for part in PARTS if part not in without]))
    assert isinstance(outcome, Proved)
    return outcome.ticks


def test_every_part_has_a_case() -> None:
    assert set(CASES) | set(REDUNDANT) == set(PARTS)


@pytest.mark.parametrize("part", CASES, ids=lambda part: part.__name__)
def test_dropping_a_part_changes_an_optimum(part: Part) -> None:
    placement, problem = CASES[part]
    scope = searching(problem, placement, split=True)
    # What a redundant part implies would hide that the part itself is gone.
    with_part = least(problem, scope, without=REDUNDANT)
    assert with_part == least(problem, scope)
    assert least(problem, scope, without=(part, *REDUNDANT)) < with_part


@pytest.mark.parametrize("part", REDUNDANT, ids=lambda part: part.__name__)
@pytest.mark.parametrize("placement", [linear(3, 3), vee(2, 3)], ids=["linear", "vee"])
@pytest.mark.parametrize("freed_at_input", [0, 1])
def test_dropping_a_redundant_part_changes_rows_but_no_optimum(
    part: Part, placement: Placement, freed_at_input: int
) -> None:
    problem = uniform(
        placement, (2, 3, 2, 5), LINK, latency=1, occupancy=2, limit=5, held=2, freed_at_input=freed_at_input
    )
    scope = searching(problem, placement, split=True)
    assert least(problem, scope, without=(part,)) == least(problem, scope)
    assert len(rows(build(problem, scope))) > len(rows(build(problem, scope, [p for p in PARTS if p is not part])))


def rows(model: Model) -> list[str]:
    return [str(row) for row in model.cp.proto.constraints]


@pytest.mark.parametrize("objective", list(Objective))
def test_pins_add_rows_behind_those_of_the_free_model(objective: Objective) -> None:
    schedule = one_f_one_b(3, 4)
    problem = uniform(schedule.placement, mode=LINK, latency=1, occupancy=2, limit=3)
    timeline = evaluate(schedule, problem)
    for scope in (
        searching(problem, schedule.placement, split=False, objective=objective),
        replace(evaluating(schedule, problem), objective=objective),
    ):
        free, by_order, by_time = (build(problem, scope) for _ in range(3))
        pin_order(by_order, schedule)
        pin_times(by_time, timeline)
        for pinned in (by_order, by_time):
            assert rows(pinned)[: len(rows(free))] == rows(free)
            assert len(rows(pinned)) > len(rows(free))
            assert list(map(str, pinned.cp.proto.variables)) == list(map(str, free.cp.proto.variables))
            assert str(pinned.cp.proto.objective) == str(free.cp.proto.objective)


def test_pinned_order_is_never_better_than_free() -> None:
    gpipe = Schedule.from_orders(
        linear(2, 3), [[*(F(s, m) for m in range(3)), *(B(s, m) for m in reversed(range(3)))] for s in range(2)]
    )
    problem = uniform(gpipe.placement)
    pinned = build(problem, evaluating(gpipe, problem))
    pin_order(pinned, gpipe)
    outcome = solve(pinned)
    assert isinstance(outcome, Proved)
    assert outcome.ticks == evaluate(gpipe, problem).makespan
    assert outcome.timeline.schedule == gpipe
    # Its backwards run in reversed order, which the search leaves out as no better than some other order.
    searched = build(problem, searching(problem, gpipe.placement, split=False))
    pin_order(searched, gpipe)
    assert isinstance(solve(searched), Infeasible)


def test_variables_are_named_after_what_they_stand_for() -> None:
    placement = mirrored(2, 2)
    problem = uniform(placement, mode=LINK, occupancy=1, sync=1, shared=(("bus", frozenset({(0, 1), (1, 0)})),))
    names = [
        variable.name for variable in build(problem, searching(problem, placement, split=False)).cp.proto.variables
    ]
    assert all(names)
    assert len(set(names)) == len(names)
    assert {"start[1F0]", "sent[0F1]", "first[0F0,0F1]", "sync[1]", "gradients[0]", "sync_first[0,1]"} <= set(names)
    assert not any(name.startswith("before_sync") for name in names)
    placement, problem = all_reduces_on_a_bus()
    problem = replace(problem, network=replace(problem.network, servers=(2,)))
    names = [
        variable.name for variable in build(problem, searching(problem, placement, split=False)).cp.proto.variables
    ]
    assert all(names)
    assert len(set(names)) == len(names)
    assert {"before_sync[0F1,1]", "open[bus,all-reduce 1,0F1]", "open[bus,0->1,all-reduce 0]"} <= set(names)


def test_pins_of_other_ops_are_refused() -> None:
    schedule = one_f_one_b(2, 2)
    problem = uniform(schedule.placement)
    model = build(problem, evaluating(schedule, problem))
    with pytest.raises(UsageError, match="placement"):
        pin_order(model, one_f_one_b(2, 3))
    with pytest.raises(UsageError, match="device 0"):
        pin_order(model, schedule.with_split_backward())
    with pytest.raises(UsageError, match="not those of the model"):
        pin_times(model, evaluate(schedule.with_split_backward(), problem))


def test_scopes_that_cannot_be_modelled_are_refused() -> None:
    placement = linear(2, 2)
    problem = uniform(placement)
    scope = searching(problem, placement, split=False)
    with pytest.raises(Inapplicable, match="2 candidates"):
        replace(scope, candidates=(placement, placement))
    with pytest.raises(UsageError, match="at least one"):
        replace(scope, candidates=())
    with pytest.raises(UsageError, match="only if the order is free"):
        replace(scope, free_order=False)
    with pytest.raises(Inexact, match="coarser tick"):
        searching(replace(problem, durations=problem.durations * 2**40), placement, split=False)
    with pytest.raises(UsageError, match="microbatches"):
        build(problem, searching(uniform(linear(2, 3)), linear(2, 3), split=False))
    with pytest.raises(Inapplicable, match="0F0 takes none"):
        instant = uniform(placement, (0, 1, 1, 2), limit=1)
        build(instant, searching(instant, placement, split=False))
