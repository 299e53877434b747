"""Shared resources: the evaluator against the event-driven peer, CP-SAT, and itself where nothing is shared."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import schedules
from explorer.core.errors import Deadlock, Incomplete, UsageError
from explorer.core.op import B, Entry, F
from explorer.core.placement import Hop, Placement
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.checker import slack, verify
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.metrics import Part, critical_path, device_figures
from explorer.io.problem import decode, encode
from solvers.solve import confirm
from tests.property.test_evaluator import Instance, assert_equal, peer_timeline
from tests.strategies import instances, list_schedule, placements, small_problem

LINK = [Communication.LINK]


@settings(max_examples=300)
@given(instances(shared=True, modes=LINK))
def test_evaluator_and_peer_agree_to_the_tick(instance: Instance) -> None:
    assert_equal(evaluate(*instance), peer_timeline(*instance))


@given(instances(shared=True, modes=LINK))
def test_the_checker_finds_nothing(instance: Instance) -> None:
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    assert verify(timeline, problem) == []
    assert slack(timeline, problem) == []


@settings(max_examples=40)
@given(instances(shared=True, modes=LINK))
def test_cp_sat_confirms(instance: Instance) -> None:
    """Service order and all times pinned. A latency keeps a transfer from causing another one in its own tick."""
    schedule, problem = instance
    positive = replace(problem, network=replace(problem.network, latency=problem.network.latency + 1))
    confirm(evaluate(schedule, positive), positive)


def on_a_bus(problem: Problem) -> Problem:
    """Everything through one resource."""
    devices = range(problem.devices)
    pairs = frozenset((i, j) for i in devices for j in devices)
    return replace(problem, network=replace(problem.network, shared=(("bus", pairs),), servers=()))


@given(placements(), st.sampled_from(["swap", "drop", "double"]), st.booleans(), st.randoms())
def test_orders_at_fault_are_refused_as_without_sharing(
    placement: Placement, change: str, compile: bool, random: Random
) -> None:
    orders = [list(order) for order in list_schedule(placement, "mixed", 0, random).orders()]
    order = random.choice([order for order in orders if order])
    place, other = random.randrange(len(order)), random.randrange(len(order))
    match change:
        case "swap":
            order[place], order[other] = order[other], order[place]
        case "drop":
            del order[place]
        case "double":
            order.insert(other, order[place])
    schedule, problem = Schedule.from_orders(placement, orders), small_problem(placement)
    errors = []
    for costs in (problem, on_a_bus(problem)):
        try:
            evaluate(schedule, costs, compile=compile)
        except (Incomplete, Deadlock) as error:
            errors.append(str(error))
        else:
            errors.append("")
    assert errors[0] == errors[1]


@settings(max_examples=25)
@given(instances(shared=True, modes=LINK))
def test_compiled_and_plain_loops_agree(instance: Instance) -> None:
    assert_equal(evaluate(*instance, compile=False), evaluate(*instance, compile=True))


@given(instances(modes=LINK))
def test_what_never_contends_changes_nothing(instance: Instance) -> None:
    """Every pair shares a resource of its own with a pair that no transfer uses, so all go through the queues."""
    schedule, problem = instance
    devices = range(problem.devices)
    lonely = tuple((f"{i} to {j}", frozenset({(i, j), (i, i)})) for i in devices for j in devices if i != j)
    queued = replace(problem, network=replace(problem.network, shared=lonely, servers=()))
    assert_equal(evaluate(schedule, problem), evaluate(schedule, queued))


@given(instances(shared=True, modes=LINK))
def test_sharing_never_makes_the_first_transfer_earlier(instance: Instance) -> None:
    """Service in order of readiness may reorder later ones, but nothing starts before its own link alone allows."""
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    alone = evaluate(schedule, replace(problem, communication=Communication.LATENCY))
    assert (timeline.start >= alone.start).all()


@given(instances(shared=True))
def test_the_critical_path_has_no_gap(instance: Instance) -> None:
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    path = critical_path(timeline, problem)
    assert path[0].start == 0
    assert path[-1].end == timeline.makespan
    assert all(one.end == following.start for one, following in pairwise(path))


@given(instances(shared=True))
def test_what_devices_do_adds_up(instance: Instance) -> None:
    schedule, problem = instance
    figures = device_figures(evaluate(schedule, problem), problem)
    assert (figures.exposed_communication >= 0).all()
    assert (figures.exposed_communication + figures.overhead <= figures.idle).all()


def two_senders() -> tuple[Schedule, Problem]:
    """Devices 0 and 1 each send a microbatch to device 2 through one port; each transfer holds it for 2."""
    placement = Placement(((Hop(0, 0), Hop(1, 2)), (Hop(0, 1), Hop(1, 2))), (0, 1))
    orders: list[list[Entry]] = [
        [F(0, 0), B(0, 0)], [F(0, 1), B(0, 1)], [F(1, 0), F(1, 1), B(1, 0), B(1, 1)],
    ]  # fmt: skip
    problem = small_problem(placement)
    port = ("port of 2", frozenset({(0, 2), (1, 2)}))
    slow = replace(problem.network, occupancy=np.full_like(problem.network.occupancy, 20))
    return Schedule.from_orders(placement, orders), replace(
        problem, network=replace(slow, shared=(port,)), sync=problem.sync * 0
    )


def test_a_transfer_behind_that_of_another_pair_is_on_the_critical_path() -> None:
    schedule, problem = two_senders()
    timeline = evaluate(schedule, problem)
    row = {str(schedule.op(r)): r for r in range(len(schedule))}
    assert (timeline.sent[row["0F0"]], timeline.sent[row["0F1"]]) == (2, 22)
    path = critical_path(timeline, problem)
    communicating = [(step.row, step.start, step.end) for step in path if step.part is Part.COMMUNICATION]
    assert communicating[:2] == [(row["0F0"], 2, 22), (row["0F1"], 22, 43)]


def test_waiting_for_the_transfer_of_another_pair_is_exposed_communication() -> None:
    schedule, problem = two_senders()
    exposed = device_figures(evaluate(schedule, problem), problem).exposed_communication
    # Device 2 waits from 2 until 23 for 0F0, works until 25, and waits until 43 for 0F1; it ends after 2 + 4 + 4 more.
    assert exposed[2] == (23 - 2) + (43 - 25)


@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b", "chimera", "hanayo", "zb-v"])
@pytest.mark.parametrize("servers", [1, 2, 3])
def test_library_under_one_bus(name: str, servers: int) -> None:
    """Everything through one resource, on orders as they are used."""
    schedule = schedules.find(name)(4, 8)
    problem = small_problem(schedule.placement)
    bus = on_a_bus(replace(problem, network=replace(problem.network, occupancy=problem.network.occupancy + servers)))
    bus = replace(bus, network=replace(bus.network, servers=(servers,)))
    timeline = evaluate(schedule, bus)
    assert_equal(timeline, peer_timeline(schedule, bus))
    assert verify(timeline, bus) == slack(timeline, bus) == []
    assert most_at_once(timeline) == servers
    if servers == 1:
        assert timeline.makespan > evaluate(schedule, problem).makespan


def most_at_once(timeline: Timeline) -> int:
    """How many transfers occupy their links at the same time at most."""
    rows = np.flatnonzero(timeline.sent >= 0)
    changes = sorted(
        [(t, -1) for t in timeline.released[rows].tolist()] + [(t, 1) for t in timeline.sent[rows].tolist()]
    )
    return int(np.cumsum([by for _, by in changes]).max())


@given(instances(shared=True, modes=LINK))
def test_as_many_servers_as_pairs_change_nothing(instance: Instance) -> None:
    schedule, problem = instance
    network = replace(problem.network, latency=problem.network.latency + 1)
    servers = tuple(len(pairs) for _, pairs in network.shared)
    alone, shared = (
        replace(problem, network=replace(network, shared=groups, servers=each))
        for groups, each in (((), ()), (network.shared, servers))
    )
    assert_equal(evaluate(schedule, alone), evaluate(schedule, shared))


def test_a_server_is_free_while_its_pair_waits_for_its_own_link() -> None:
    """Device 0 sends two microbatches to 2, device 1 then one: the second of device 0 holds no server meanwhile."""
    placement = Placement(((Hop(0, 0), Hop(1, 2)), (Hop(0, 1), Hop(1, 2))), (0, 0, 1))
    orders: list[list[Entry]] = [
        [F(0, 0), F(0, 1), B(0, 0), B(0, 1)], [F(0, 2), B(0, 2)],
        [F(1, 0), F(1, 1), F(1, 2), B(1, 0), B(1, 1), B(1, 2)],
    ]  # fmt: skip
    problem = small_problem(placement)
    slow = replace(
        problem.network,
        occupancy=np.full_like(problem.network.occupancy, 20),
        shared=(("port of 2", frozenset({(0, 2), (1, 2), (2, 0)})),),
        servers=(2,),
    )
    durations = np.repeat(problem.durations, 2, axis=0)
    durations[1, 0, 0] = 5
    problem = replace(
        problem,
        network=replace(slow, occupancy=np.repeat(slow.occupancy, 2, axis=0)),
        durations=durations,
        profile_of=np.array([0, 0, 1]),
        stash=replace(
            problem.stash,
            held=np.repeat(problem.stash.held, 2, axis=0),
            freed_at_input=np.repeat(problem.stash.freed_at_input, 2, axis=0),
        ),
        bytes=None,
    )
    schedule = Schedule.from_orders(placement, orders)
    timeline = evaluate(schedule, problem)
    row = {str(schedule.op(r)): r for r in range(len(schedule))}
    assert [int(timeline.sent[row[op]]) for op in ("0F0", "0F1", "0F2")] == [2, 22, 5]
    assert_equal(timeline, peer_timeline(schedule, problem))


def test_more_pairs_than_servers_wait() -> None:
    placement = Placement(tuple((Hop(0, device), Hop(1, 3)) for device in range(3)), (0, 1, 2))
    orders: list[list[Entry]] = [[F(0, m), B(0, m)] for m in range(3)]
    orders.append([op for m in range(3) for op in (F(1, m), B(1, m))])
    problem = small_problem(placement)
    network = replace(
        problem.network,
        occupancy=np.full_like(problem.network.occupancy, 20),
        shared=(("port of 3", frozenset((device, 3) for device in range(3))),),
        servers=(2,),
    )
    schedule = Schedule.from_orders(placement, orders)
    problem = replace(problem, network=network, sync=0 * problem.sync)
    timeline = evaluate(schedule, problem)
    row = {str(schedule.op(r)): r for r in range(len(schedule))}
    assert [int(timeline.sent[row[f"0F{m}"]]) for m in range(3)] == [2, 2, 22]
    confirm(timeline, problem)
    early = np.array(timeline.sent)
    early[row["0F2"]] -= 1
    (found, *_) = verify(replace(timeline, sent=early), problem)
    assert found.kind in ("link", "transfer")
    path = critical_path(timeline, problem)
    assert all(one.end == following.start for one, following in pairwise(path))


def test_instant_transfers_are_refused_where_several_pass_at_a_time() -> None:
    schedule, problem = two_senders()
    network = replace(problem.network, latency=0 * problem.network.latency, occupancy=0 * problem.network.occupancy)
    with pytest.raises(UsageError, match="transfers that take time"):
        replace(problem, network=replace(network, servers=(2,)))
    assert evaluate(schedule, replace(problem, network=network)).makespan > 0


@given(instances(shared=True, modes=LINK))
def test_files_keep_servers(instance: Instance) -> None:
    schedule, problem = instance
    again = decode(encode(problem))
    assert again.network.resources == problem.network.resources
    assert_equal(evaluate(schedule, problem), evaluate(schedule, again))
