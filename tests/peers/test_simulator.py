"""The peer simulator itself, on cases small enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from explorer.core.op import B, Entry, F, I, Overlapped, W
from explorer.core.placement import Hop, Placement, linear
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from tests.peers.simulator import Stuck, read, simulate
from tests.strategies import mirrored, small_problem


def run(placement: Placement, orders: list[list[Entry]], **changes: Any) -> dict[str, Any]:
    problem = replace(small_problem(placement), **changes)
    return simulate(read(Schedule.from_orders(placement, orders), problem))


TWO: list[list[Entry]] = [[F(0, 0), B(0, 0)], [F(1, 0), B(1, 0)]]


@pytest.mark.parametrize(
    ("mode", "makespan"),
    [
        (Communication.NONE, 2 + 2 + 4 + 4),
        (Communication.LATENCY, 2 + 3 + 2 + 4 + 3 + 4),
        (Communication.LINK, 2 + 3 + 2 + 4 + 3 + 4),
        (Communication.BLOCKING, 2 + 3 + 2 + 4 + 3 + 4),
    ],
)
def test_a_microbatch_there_and_back(mode: Communication, makespan: int) -> None:
    assert run(linear(2, 1), TWO, communication=mode)["makespan"] == makespan


def test_launch_and_posting() -> None:
    """Four ops launch for 1 each, and two sends are posted for 2 each, all on the critical path."""
    result = run(linear(2, 1), TWO, launch=1, posting=2)
    assert result["makespan"] == 18 + 4 + 4
    assert result["times"]["F", 0, 0] == {"start": 0, "end": 3, "free": 5, "sent": 5, "released": 7, "arrival": 8}


def test_blocking_sends_keep_the_device() -> None:
    placement = linear(2, 2)
    orders = [[F(0, 0), F(0, 1), B(0, 0), B(0, 1)], [F(1, 0), F(1, 1), B(1, 0), B(1, 1)]]
    times = run(placement, orders, communication=Communication.BLOCKING)["times"]
    assert times["F", 0, 0]["free"] == times["F", 0, 1]["start"] == 5


def test_an_overlapped_pair_sends_twice_one_after_the_other() -> None:
    """Device 1 of three runs F1 of one microbatch with B1 of another: both products leave at its end, F's first."""
    placement = linear(3, 2)
    orders: list[list[Entry]] = [
        [F(0, 0), F(0, 1), B(0, 0), B(0, 1)],
        [F(1, 0), Overlapped(F(1, 1), B(1, 0)), B(1, 1)],
        [F(2, 0), B(2, 0), F(2, 1), B(2, 1)],
    ]
    times = run(placement, orders, posting=1, overlap=Fraction(1, 2))["times"]
    forward, backward = times["F", 1, 1], times["B", 1, 0]
    assert forward["start"] == backward["start"] == times["B", 2, 0]["arrival"]
    assert forward["end"] == forward["start"] + 3
    assert (forward["sent"], backward["sent"]) == (forward["end"] + 1, forward["end"] + 2)
    assert forward["free"] == backward["free"] == forward["end"] + 2


def fan(senders: int) -> tuple[Placement, list[list[Entry]], Problem]:
    """Each device sends one microbatch to the last, in order."""
    last = senders
    placement = Placement(tuple((Hop(0, d), Hop(1, last)) for d in range(senders)), tuple(range(senders)))
    orders: list[list[Entry]] = [[F(0, m), B(0, m)] for m in range(senders)]
    orders.append([op for m in range(senders) for op in (F(1, m), B(1, m))])
    return placement, orders, small_problem(placement)


def sent(result: dict[str, Any], senders: int) -> list[Fraction]:
    return [result["times"]["F", 0, m]["sent"] for m in range(senders)]


def test_a_shared_link_serves_ties_by_device() -> None:
    placement, orders, problem = fan(3)
    rail = ("rail", frozenset({(0, 3), (1, 3), (2, 3)}))
    result = run(placement, orders, network=replace(problem.network, shared=(rail,)))
    assert sent(result, 3) == [2, 4, 6]


def test_a_shared_link_serves_in_order_of_readiness() -> None:
    """The F of microbatch 0 takes 3, that of microbatch 1 takes 2: device 1 goes first, until 4."""
    placement, orders, problem = fan(2)
    rail = ("rail", frozenset({(0, 2), (1, 2)}))
    durations = problem.durations.repeat(2, axis=0)
    durations[0, 0, 0] = 3
    network = replace(problem.network, shared=(rail,), occupancy=problem.network.occupancy.repeat(2, axis=0))
    stash = replace(
        problem.stash,
        held=problem.stash.held.repeat(2, axis=0),
        freed_at_input=problem.stash.freed_at_input.repeat(2, axis=0),
    )
    profile_of = problem.profile_of.copy()
    profile_of[1] = 1
    result = run(
        placement, orders, network=network, durations=durations, profile_of=profile_of, stash=stash, bytes=None
    )
    assert sent(result, 2) == [4, 2]


def test_a_transfer_that_waits_for_one_resource_keeps_its_turn_at_the_others() -> None:
    """0 and 1 share x, 1 and 2 share y: 1 waits for x until 4, and 2 for 1 until 6, though y was idle."""
    placement, orders, problem = fan(3)
    shared = (("x", frozenset({(0, 3), (1, 3)})), ("y", frozenset({(1, 3), (2, 3)})))
    assert sent(run(placement, orders, network=replace(problem.network, shared=shared)), 3) == [2, 4, 6]


def test_synchronisations_wait_for_each_other() -> None:
    """Chunk 1 is done first on both devices, chunk 0 next; each takes 5 on both."""
    placement = mirrored(2, 2)
    orders: list[list[Entry]] = [[F(0, 0), F(1, 1), B(1, 1), B(0, 0)], [F(0, 1), F(1, 0), B(1, 0), B(0, 1)]]
    result = run(placement, orders, communication=Communication.NONE)
    assert result["syncs"] == {1: (8, 13), 0: (13, 18)}
    assert result["makespan"] == 18


def test_memory() -> None:
    order: list[Entry] = [F(0, 0), I(0, 0), F(0, 1), W(0, 0), B(0, 1)]
    assert run(linear(1, 2), [order])["peaks"] == [3 - 1 + 3]
    pair: list[Entry] = [F(0, 0), Overlapped(F(0, 1), B(0, 0)), B(0, 1)]
    assert run(linear(1, 2), [pair])["peaks"] == [3 + 3]


def test_stuck() -> None:
    with pytest.raises(Stuck) as error:
        run(linear(2, 1), [[B(0, 0), F(0, 0)], [F(1, 0), B(1, 0)]])
    assert error.value.args == ([(("B", 0, 0),), (("F", 1, 0),)],)
