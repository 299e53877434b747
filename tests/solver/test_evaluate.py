"""A named schedule in the model: the order-pinned optimum and the pinned times against the longest path."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Deadlock, Disagreement, Inapplicable, Incomplete, UsageError
from explorer.core.op import B, F
from explorer.core.placement import Hop, Placement, linear, mirrored
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Sync, Timeline, Update
from explorer.evaluation.longest_path import evaluate as longest_path
from schedules.one_f_one_b import one_f_one_b
from schedules.registry import NamedSchedule, every
from solvers.bounds import schedule_bound
from solvers.model import build, pin_order, pin_times
from solvers.optimum import waiting_can_help
from solvers.outcome import Infeasible, Proved
from solvers.reading import difference
from solvers.scope import Objective, evaluating
from solvers.solve import confirm, evaluate, solve
from tests.peers.simulator import columns, read, simulate
from tests.solver.cases import uniform
from tests.strategies import instances

Instance = tuple[Schedule, Problem]
LINK = Communication.LINK


@settings(max_examples=120)
@given(instances())
def test_order_pinned_optimum_is_the_longest_path(instance: Instance) -> None:
    assert difference(evaluate(*instance), longest_path(*instance)) is None


@settings(max_examples=60)
@given(instances(limited=True))
def test_pinned_times_confirm_the_longest_path(instance: Instance) -> None:
    schedule, problem = instance
    confirm(longest_path(schedule, problem), problem)


@settings(max_examples=60)
@given(instances(shared=True, modes=[LINK]))
def test_pinned_times_confirm_the_peer_on_shared_links(instance: Instance) -> None:
    schedule, problem = instance
    # A transfer without any delay may make another ready in the tick in which it was itself served.
    assume(problem.transfer_times().delay.min() > 0)
    result = simulate(read(schedule, problem))
    arrays = {name: np.array([int(t) for t in column], np.int64) for name, column in columns(schedule, result).items()}
    hosts = schedule.placement.hosts
    syncs = [Sync(chunk, hosts[chunk], int(start), int(end)) for chunk, (start, end) in result["syncs"].items()]
    syncs.sort(key=lambda sync: (sync.start, sync.chunk))
    updates = tuple(Update(device, int(start), int(end)) for device, (start, end) in sorted(result["updates"].items()))
    confirm(Timeline(schedule, **arrays, syncs=tuple(syncs), updates=updates), problem)


def shifted(timeline: Timeline, row: int, ticks: int) -> Timeline:
    """The timeline with one occupancy, and what it sends, moved."""
    rows = (timeline.start == timeline.start[row]) & (timeline.schedule.device == timeline.schedule.device[row])
    sent = rows & (timeline.sent >= 0)
    return replace(
        timeline,
        **{name: getattr(timeline, name) + ticks * rows for name in ("start", "end", "free")},
        **{name: getattr(timeline, name) + ticks * sent for name in ("sent", "released", "arrival")},
    )


@pytest.mark.parametrize("mode", list(Communication))
def test_a_shift_by_one_tick_is_refuted(mode: Communication) -> None:
    schedule = one_f_one_b(3, 3)
    problem = uniform(schedule.placement, (2, 2, 2, 3), mode, latency=1, occupancy=2, posting=1, launch=1)
    timeline = longest_path(schedule, problem)
    confirm(timeline, problem)
    for row in range(len(schedule)):
        for ticks in (-1, 1):
            if timeline.start[row] + ticks >= 0:
                with pytest.raises(Disagreement):
                    confirm(shifted(timeline, row, ticks), problem)


def test_the_last_op_cannot_end_a_tick_earlier() -> None:
    schedule = one_f_one_b(3, 3)
    problem = uniform(schedule.placement, mode=LINK, latency=1, occupancy=2)
    timeline = longest_path(schedule, problem)
    last = int(timeline.end.argmax())
    for ticks, expected in ((0, Proved), (-1, Infeasible)):
        model = build(problem, evaluating(schedule, problem))
        pin_times(model, shifted(timeline, last, ticks))
        assert isinstance(solve(model), expected)


def test_late_transfers_and_synchronisations_are_seen() -> None:
    placement = mirrored(2, 2)
    schedule = Schedule.from_orders(
        placement, [[F(0, 0), F(1, 1), B(1, 1), B(0, 0)], [F(0, 1), F(1, 0), B(1, 0), B(0, 1)]]
    )
    problem = uniform(placement, mode=LINK, latency=1, occupancy=1, sync=3)
    timeline = longest_path(schedule, problem)
    confirm(timeline, problem)
    late = (*timeline.syncs[:-1], timeline.syncs[-1]._replace(start=timeline.syncs[-1].start + 1))
    with pytest.raises(Disagreement, match="synchronisations"):
        confirm(replace(timeline, syncs=late), problem)
    moved = late[-1]._replace(end=late[-1].end + 1)
    with pytest.raises(Disagreement, match="synchronisation of chunk"):
        confirm(replace(timeline, syncs=(*late[:-1], moved)), problem)
    with pytest.raises(Disagreement, match="free of"):
        confirm(replace(timeline, free=timeline.free + 1), problem)


def test_a_late_optimizer_step_is_seen() -> None:
    schedule = one_f_one_b(2, 2)
    problem = uniform(schedule.placement, optimizer=(3, 4))
    timeline = longest_path(schedule, problem)
    confirm(timeline, problem)
    first, second = timeline.updates
    for late in (first._replace(start=first.start + 1, end=first.end + 1), first._replace(end=first.end + 1)):
        with pytest.raises(Disagreement, match="optimiser step"):
            confirm(replace(timeline, updates=(late, second)), problem)
    with pytest.raises(UsageError, match="optimiser steps are not those"):
        confirm(replace(timeline, updates=(first,)), problem)


def test_a_transfer_that_dawdles_is_seen() -> None:
    schedule = Schedule.from_orders(
        linear(2, 2), [[F(0, 0), F(0, 1), B(0, 0), B(0, 1)], [F(1, 0), B(1, 0), F(1, 1), B(1, 1)]]
    )
    problem = uniform(schedule.placement, (1, 1, 1, 9), LINK, latency=1, occupancy=2)
    timeline = longest_path(schedule, problem)
    row = schedule.ops(0).index(F(0, 1))
    assert longest_path(schedule, problem).start[len(schedule) - 2] > timeline.arrival[row] + 1
    later = {name: getattr(timeline, name).copy() for name in ("sent", "released", "arrival")}
    for column in later.values():
        column[row] += 1
    with pytest.raises(Disagreement, match="the transfer of 0F1"):
        confirm(replace(timeline, **later), problem)


def test_a_short_transfer_does_not_pass_a_long_one() -> None:
    placement = linear(2, 2)
    schedule = Schedule.from_orders(
        placement, [[F(0, 0), F(0, 1), B(0, 1), B(0, 0)], [F(1, 1), F(1, 0), B(1, 1), B(1, 0)]]
    )
    problem = uniform(placement, mode=LINK)
    occupancy = np.array([[[9], [9]], [[1], [1]]], np.int64)
    problem = replace(
        problem,
        durations=np.tile(problem.durations, (2, 1, 1)),
        profile_of=np.array([0, 1]),
        network=replace(problem.network, occupancy=occupancy),
        stash=replace(problem.stash, **{k: np.ones((2, 2), np.int64) for k in ("held", "freed_at_input")}),
    )
    timeline = evaluate(schedule, problem)
    assert timeline.sent[:2].tolist() == [1, 10]
    assert difference(timeline, longest_path(schedule, problem)) is None


def test_of_two_that_are_ready_together_the_lower_device_is_served_first() -> None:
    placement = mirrored(2, 2)
    schedule = Schedule.from_orders(
        placement, [[F(0, 0), F(1, 1), B(1, 1), B(0, 0)], [F(0, 1), F(1, 0), B(1, 0), B(0, 1)]]
    )
    problem = uniform(placement, mode=LINK, occupancy=2, shared=(("bus", frozenset({(0, 1), (1, 0)})),))
    for first, expected in ((0, Proved), (1, Infeasible)):
        model = build(problem, evaluating(schedule, problem))
        for m in (0, 1):
            model.cp.add(model.task_of[F(0, m)].start == 0)
            model.cp.add(model.transfers[F(0, m)].sent == (1 if m == first else 3))
        assert isinstance(solve(model), expected)


@pytest.mark.parametrize(("ready", "first"), [((3, 3), 0), ((3, 4), 0), ((4, 3), 1)])
def test_synchronisations_are_served_as_they_are_ready(ready: tuple[int, int], first: int) -> None:
    # Each chunk has its microbatch on a device of its own, and a replica that none visits: both can end when we like.
    placement = Placement(
        tuple((Hop(chunk, device),) for chunk in (0, 1) for device in (0, 1)), (0, 3), (Fraction(1), Fraction(1))
    )
    problem = uniform(placement, sync=5)
    schedule = Schedule.from_orders(placement, [[F(0, 0), B(0, 0)], [F(0, 1), B(0, 1)]])
    for chosen in (0, 1):
        model = build(problem, evaluating(schedule, problem))
        for m in (0, 1):
            model.cp.add(model.task_of[B(0, m)].end == ready[m])
        model.cp.add(model.syncs[chosen].start == ready[chosen])
        model.cp.add(model.syncs[1 - chosen].start == ready[chosen] + 5)
        assert isinstance(solve(model), Proved if chosen == first else Infeasible)


def test_a_deadlock_is_named_and_gaps_are_refused() -> None:
    placement = linear(2, 1)
    problem = uniform(placement)
    with pytest.raises(Deadlock, match="0B0"):
        evaluate(Schedule.from_orders(placement, [[B(0, 0), F(0, 0)], [F(1, 0), B(1, 0)]]), problem)
    with pytest.raises(Incomplete):
        evaluate(Schedule.from_orders(placement, [[F(0, 0)], [F(1, 0), B(1, 0)]]), problem)


def test_links_of_several_senders_are_not_evaluated() -> None:
    schedule = one_f_one_b(3, 2)
    bus = ("bus", frozenset({(0, 1), (1, 2)}))
    with pytest.raises(Inapplicable, match="'bus'"):
        evaluate(schedule, uniform(schedule.placement, mode=LINK, occupancy=1, shared=(bus,)))


@settings(max_examples=30, suppress_health_check=[HealthCheck.filter_too_much])
@given(instances())
def test_the_least_makespan_of_an_order_is_its_earliest_one(instance: Instance) -> None:
    schedule, problem = instance
    assume(not waiting_can_help(problem, schedule.placement, Objective.MAKESPAN))
    model = build(problem, evaluating(schedule, problem))
    pin_order(model, schedule)
    outcome = solve(model)
    assert isinstance(outcome, Proved)
    assert outcome.ticks == longest_path(schedule, problem).makespan


def test_thousands_of_ops_are_confirmed() -> None:
    schedule = one_f_one_b(8, 64)
    problem = uniform(schedule.placement, (3, 2, 2, 4), LINK, latency=1, occupancy=2)
    timeline = longest_path(schedule, problem)
    confirm(timeline, problem)
    with pytest.raises(Disagreement):
        confirm(shifted(timeline, 700, 1), problem)


@pytest.mark.parametrize("named", every(), ids=lambda named: named.name)
def test_named_schedules_are_confirmed_and_proved(named: NamedSchedule) -> None:
    schedule = named(4, 8)
    problem = uniform(schedule.placement, (2, 2, 2, 4), LINK, latency=1, occupancy=1, sync=3, launch=1, posting=1)
    timeline = longest_path(schedule, problem)
    confirm(timeline, problem)
    assert difference(evaluate(schedule, problem), timeline) is None
    assert schedule_bound(problem, schedule).ticks <= timeline.makespan


def test_solving_leaves_interrupts_to_python() -> None:
    schedule = one_f_one_b(2, 2)
    problem = AbstractCosts().problem(schedule.placement)
    timeline = longest_path(schedule, problem)
    for solve_it in (lambda: confirm(timeline, problem), lambda: evaluate(schedule, problem)):
        solve_it()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
            time.sleep(1)
