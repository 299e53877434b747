"""The evaluator, the event-driven peer and the checker hold each other to the tick."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.core.errors import Deadlock, Incomplete, Inexact
from explorer.core.op import KINDS, B, F, Op, Overlapped
from explorer.core.placement import Placement, linear
from explorer.core.problem import Communication, Network, Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Sync, Timeline, Update
from explorer.evaluation.checker import slack, verify, verify_order
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import fits, peaks
from tests.peers.simulator import Stuck, columns, read, simulate
from tests.strategies import instances, list_schedule, placements, problems, schedules, small_problem

COLUMNS = ("start", "end", "free", "sent", "released", "arrival")
Instance = tuple[Schedule, Problem]


def peer_timeline(schedule: Schedule, problem: Problem) -> Timeline:
    result = simulate(read(schedule, problem))
    arrays = {name: np.array([int(t) for t in column]) for name, column in columns(schedule, result).items()}
    hosts = schedule.placement.hosts
    syncs = tuple(Sync(chunk, hosts[chunk], int(a), int(b)) for chunk, (a, b) in result["syncs"].items())
    syncs = tuple(sorted(syncs, key=lambda sync: (sync.start, sync.chunk)))
    updates = tuple(Update(device, int(a), int(b)) for device, (a, b) in sorted(result["updates"].items()))
    timeline = Timeline(schedule, **arrays, syncs=syncs, updates=updates)
    assert timeline.makespan == result["makespan"]
    return timeline


def assert_equal(first: Timeline, second: Timeline) -> None:
    for name in COLUMNS:
        assert getattr(first, name).tolist() == getattr(second, name).tolist(), name
    assert first.syncs == second.syncs
    assert first.updates == second.updates


@given(instances())
def test_evaluator_and_peer_agree_to_the_tick(instance: Instance) -> None:
    assert_equal(evaluate(*instance), peer_timeline(*instance))


@given(instances())
def test_checker_finds_nothing_in_evaluated_timelines(instance: Instance) -> None:
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    assert verify(timeline, problem) == []
    assert slack(timeline, problem) == []


@given(instances(shared=True, modes=[Communication.LINK]))
def test_checker_agrees_with_the_peer_on_shared_links(instance: Instance) -> None:
    schedule, problem = instance
    timeline = peer_timeline(schedule, problem)
    assert verify(timeline, problem) == []
    assert slack(timeline, problem) == []


@given(instances())
def test_peak_memory_agrees_with_the_peer(instance: Instance) -> None:
    schedule, problem = instance
    for stash in (problem.stash, problem.bytes):
        assert stash is not None
        assert peaks(schedule, problem, stash).tolist() == simulate(read(schedule, problem, stash))["peaks"]


@given(instances(limited=True))
def test_limits_are_judged_alike(instance: Instance) -> None:
    schedule, problem = instance
    found = {violation.kind for violation in verify(evaluate(schedule, problem), problem)}
    assert found == (set() if fits(schedule, problem) else {"memory"})


@given(placements(), st.sampled_from(["fused", "split", "mixed"]), st.integers(0, 2), st.randoms())
def test_deadlocks_are_seen_by_all(placement: Placement, form: str, swaps: int, random: Random) -> None:
    problem = small_problem(placement)
    orders = [list(order) for order in list_schedule(placement, form, 0.2, random).orders()]
    for _ in range(swaps):
        order = random.choice(orders)
        if order:
            i, j = random.randrange(len(order)), random.randrange(len(order))
            order[i], order[j] = order[j], order[i]
    schedule = Schedule.from_orders(placement, orders)
    try:
        simulate(read(schedule, problem))
    except Stuck:
        with pytest.raises(Deadlock):
            evaluate(schedule, problem)
        assert {violation.kind for violation in verify_order(schedule)} <= {"deadlock", "premature-op"}
        assert verify_order(schedule)
    else:
        assert verify_order(schedule) == []
        assert verify(evaluate(schedule, problem), problem) == []


@given(placements(), st.sampled_from(["drop", "double", "misplace", "relabel"]), st.booleans(), st.randoms())
def test_incomplete_orders_are_refused(placement: Placement, change: str, compile: bool, random: Random) -> None:
    orders = [list(order) for order in list_schedule(placement, "mixed", 0, random).orders()]
    order = random.choice([order for order in orders if order])
    place = random.randrange(len(order))
    op = order[place]
    assert isinstance(op, Op)
    match change:
        case "drop":
            del order[place]
        case "double":
            random.choice(orders).append(op)
        case "misplace":
            del order[place]
            random.choice(orders).append(op)
        case "relabel":
            order[place] = Op(random.randrange(-1, 3), random.choice(KINDS), random.randrange(-1, 3))
    schedule = Schedule.from_orders(placement, orders)
    refused = False
    try:
        evaluate(schedule, small_problem(placement), compile=compile)
    except (Incomplete, Deadlock) as error:
        refused = True
        with pytest.raises(Incomplete) if isinstance(error, Incomplete) else nullcontext():
            schedule.require_complete()
    assert refused == bool(verify_order(schedule))


@settings(max_examples=25)
@given(instances())
def test_compiled_and_plain_loops_agree(instance: Instance) -> None:
    assert_equal(evaluate(*instance, compile=False), evaluate(*instance, compile=True))


@pytest.mark.parametrize("compile", [False, True])
def test_uneven_pair_is_refused(compile: bool) -> None:
    placement = linear(1, 2)
    schedule = Schedule.from_orders(placement, [[F(0, 0), Overlapped(F(0, 1), B(0, 0)), B(0, 1)]])
    problem = replace(small_problem(placement), overlap=Fraction(1, 2))
    assert evaluate(schedule, replace(problem, durations=2 * problem.durations), compile=compile).makespan > 0
    odd = replace(problem, durations=problem.durations * 0 + [1, 1, 1, 2])
    with pytest.raises(Inexact, match="0F1 and 0B0"):
        evaluate(schedule, odd, compile=compile)


# The laws of a fixed order. Synchronisations are left out: they are served in order of readiness, which is no fixed
# order, so that a slower op may make them end earlier.


def more(array: np.ndarray, random: Random, step: int = 1) -> np.ndarray:
    extra = [step * random.choice([0, 0, 1, 3]) for _ in range(array.size)]
    return array + np.array(extra, np.int64).reshape(array.shape)


@given(instances(sync=False), st.randoms())
def test_times_never_fall_when_costs_rise(instance: Instance, random: Random) -> None:
    schedule, problem = instance
    network = replace(
        problem.network,
        latency=more(problem.network.latency, random),
        occupancy=more(problem.network.occupancy, random),
    )
    dearer = replace(
        problem,
        durations=more(problem.durations, random, problem.overlap.denominator),
        network=network,
        launch=problem.launch + random.randrange(2),
        posting=problem.posting + random.randrange(2),
    )
    before, after = evaluate(schedule, problem), evaluate(schedule, dearer)
    for name in COLUMNS:
        assert (getattr(before, name) <= getattr(after, name)).all(), name
    assert before.makespan <= after.makespan


@given(instances(sync=False))
def test_modes_are_ordered(instance: Instance) -> None:
    schedule, problem = instance
    none, latency, link, blocking = (
        evaluate(schedule, replace(problem, communication=mode)).makespan
        for mode in (Communication.NONE, Communication.LATENCY, Communication.LINK, Communication.BLOCKING)
    )
    assert none <= latency <= link
    assert latency <= blocking


@given(instances(), st.randoms())
def test_labels_of_microbatches_do_not_matter(instance: Instance, random: Random) -> None:
    schedule, problem = instance
    placement = schedule.placement
    label = list(range(placement.microbatches))
    random.shuffle(label)
    old = np.argsort(label)
    other = replace(placement, route_of=tuple(placement.route_of[m] for m in old))
    renamed = Schedule(
        other, schedule.offsets, schedule.stage, schedule.kind, np.array(label, np.int32)[schedule.microbatch],
        schedule.joined,
    )  # fmt: skip
    assert_equal(evaluate(schedule, problem), evaluate(renamed, replace(problem, profile_of=problem.profile_of[old])))


@given(st.data())
def test_a_device_apart_changes_nothing(data: st.DataObject) -> None:
    """Links of pairs that no transfer uses may cost anything."""
    placement = data.draw(placements())
    schedule, problem = data.draw(schedules(placement)), data.draw(problems(placement))
    timeline = evaluate(schedule, problem)
    used = {
        (route[s].device, route[t].device)
        for route in (placement.route(m) for m in range(placement.microbatches))
        for s in range(len(route))
        for t in (s - 1, s + 1)
        if 0 <= t < len(route)
    }
    network, kinds = problem.network, len(problem.network.names)
    unused = np.array([[(i, j) not in used for j in range(placement.devices)] for i in range(placement.devices)])
    dear = Network(
        (*network.names, "unused"),
        np.where(unused, kinds, network.link),
        np.append(network.latency, 1000),
        np.concatenate([network.occupancy, np.full_like(network.occupancy[:, :, :1], 1000)], axis=2),
    )
    assert_equal(timeline, evaluate(schedule, replace(problem, network=dear)))
