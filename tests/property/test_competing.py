"""Gradient all-reduces that hold links: the evaluator against the peer, the checker, and itself where none competes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings

import schedules
from explorer.core.errors import Disagreement, Inapplicable, UsageError
from explorer.core.op import B, Entry, F
from explorer.core.placement import linear
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Sync
from explorer.evaluation.checker import slack, verify
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.messages import Messages
from explorer.evaluation.messages import evaluate as in_order
from explorer.evaluation.metrics import Part, critical_path, device_figures
from explorer.evaluation.reasons import shares
from explorer.io.problem import decode, encode
from solvers.solve import confirm
from solvers.solve import evaluate as cp_sat
from tests.property.test_evaluator import Instance, assert_equal, peer_timeline
from tests.strategies import instances, mirrored, small_problem

LINK = [Communication.LINK]


@settings(max_examples=300)
@given(instances(shared=True, competing=True))
def test_evaluator_and_peer_agree_to_the_tick(instance: Instance) -> None:
    assert_equal(evaluate(*instance), peer_timeline(*instance))


@settings(max_examples=200)
@given(instances(shared=True, competing=True, modes=LINK))
def test_the_checker_finds_nothing(instance: Instance) -> None:
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    assert verify(timeline, problem) == []
    assert slack(timeline, problem) == []


@settings(max_examples=60)
@given(instances(shared=True, competing=True, modes=LINK))
def test_cp_sat_confirms(instance: Instance) -> None:
    """Service order and all times pinned. A latency keeps a transfer from causing another one in its own tick."""
    schedule, problem = instance
    positive = replace(problem, network=replace(problem.network, latency=problem.network.latency + 1))
    confirm(evaluate(schedule, positive), positive)


def test_cp_sat_refutes_the_times_of_a_run_in_which_nothing_competes() -> None:
    schedule, problem = copied()
    with pytest.raises(Disagreement):
        confirm(evaluate(schedule, replace(problem, sync_path=())), problem)


@settings(max_examples=25)
@given(instances(shared=True, competing=True, modes=LINK))
def test_compiled_and_plain_loops_agree(instance: Instance) -> None:
    assert_equal(evaluate(*instance, compile=False), evaluate(*instance, compile=True))


@given(instances(shared=True, modes=LINK))
def test_what_holds_nothing_in_common_with_transfers_changes_nothing(instance: Instance) -> None:
    """Each all-reduce holds a resource of its own: only their hosts hold them up, as where they do not compete."""
    schedule, problem = instance
    shared, chunks = problem.network.shared, schedule.placement.chunks
    own = tuple((f"only of {chunk}", frozenset[tuple[int, int]]()) for chunk in range(chunks))
    servers = problem.network.servers and (*problem.network.servers, *[1] * chunks)
    network = replace(problem.network, shared=(*shared, *own), servers=servers)
    apart = replace(problem, network=network, sync_path=tuple((len(shared) + chunk,) for chunk in range(chunks)))
    assert_equal(evaluate(schedule, problem), evaluate(schedule, apart))


@given(instances(shared=True, competing=True, modes=LINK))
def test_nothing_starts_before_what_it_would_alone(instance: Instance) -> None:
    """Nothing but waiting is added to a run without any queues; how queues reorder what waits is left open."""
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    alone = evaluate(schedule, replace(problem, communication=Communication.LATENCY))
    assert (timeline.start >= alone.start).all()
    ready = np.zeros(schedule.placement.chunks, np.int64)
    np.maximum.at(ready, schedule.chunk, alone.end)
    assert all(sync.start >= ready[sync.chunk] for sync in timeline.syncs)


@settings(max_examples=200)
@given(instances(shared=True, competing=True, modes=LINK))
def test_the_critical_path_has_no_gap(instance: Instance) -> None:
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    path = critical_path(timeline, problem)
    assert path[0].start == 0
    assert path[-1].end == timeline.makespan
    assert all(one.end == following.start for one, following in pairwise(path))


@given(instances(shared=True, competing=True, modes=LINK))
def test_what_devices_do_adds_up(instance: Instance) -> None:
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    figures = device_figures(timeline, problem)
    assert (figures.exposed_communication + figures.overhead <= figures.idle).all()
    assert sum(shares(timeline, problem).values()) == timeline.makespan


@given(instances(shared=True, competing=True))
def test_files_keep_what_all_reduces_hold(instance: Instance) -> None:
    schedule, problem = instance
    again = decode(encode(problem))
    assert again.sync_path == problem.sync_path
    assert_equal(evaluate(schedule, problem), evaluate(schedule, again))


def copied() -> tuple[Schedule, Problem]:
    """Two devices in two copies: device 1 is done with its gradients first, and reduces them over its port for 5.

    ``1B1`` ends at 17: its gradient is ready together with the all-reduce of chunk 1, and goes first.
    """
    placement = linear(2, 2)
    orders: list[list[Entry]] = [[F(0, 0), F(0, 1), B(0, 0), B(0, 1)], [F(1, 0), B(1, 0), F(1, 1), B(1, 1)]]
    problem = small_problem(placement)
    port = ("port of 1", frozenset({(1, 0)}))
    network = replace(problem.network, shared=(port,))
    return Schedule.from_orders(placement, orders), replace(problem, network=network, copies=2, sync_path=((), (0,)))


def test_a_transfer_goes_before_an_all_reduce_that_is_ready_with_it() -> None:
    schedule, problem = copied()
    timeline = evaluate(schedule, problem)
    row = next(r for r in range(len(schedule)) if str(schedule.op(r)) == "1B1")
    done = int(timeline.end[row])
    assert int(timeline.sent[row]) == done
    assert Sync(1, (1,), done + 2, done + 7) in timeline.syncs
    early = replace(timeline, syncs=tuple(s._replace(start=s.start - 2, end=s.end - 2) for s in timeline.syncs))
    assert "link-busy" in {violation.kind for violation in verify(early, problem)}


def test_a_transfer_waits_for_an_all_reduce_that_was_ready_before() -> None:
    """Chunk 1 is reduced from 16 until 21, over the bus that the gradients of both microbatches are ready for then.

    They are posted at 17 and 19; each holds the bus for 2.
    """
    placement = mirrored(2, 2)
    orders: list[list[Entry]] = [[F(0, 0), F(1, 1), B(1, 1), B(0, 0)], [F(0, 1), F(1, 0), B(1, 0), B(0, 1)]]
    problem = small_problem(placement)
    bus = ("bus", frozenset({(0, 1), (1, 0)}))
    problem = replace(problem, network=replace(problem.network, shared=(bus,)), posting=3)
    schedule = Schedule.from_orders(placement, orders)
    held = replace(problem, sync_path=((0,), (0,)))
    free, timeline = evaluate(schedule, problem), evaluate(schedule, held)
    assert timeline.syncs[0] == free.syncs[0] == Sync(1, (0, 1), 16, 21)
    row = {str(schedule.op(r)): r for r in range(len(schedule))}
    assert [[int(ran.sent[row[op]]) for op in ("1B0", "1B1")] for ran in (free, timeline)] == [[17, 19], [21, 23]]
    parts = Counter(step.part for step in critical_path(timeline, held))
    assert parts[Part.SYNCHRONISATION] == 2
    second = timeline.syncs[1]
    (late,) = slack(replace(timeline, syncs=(timeline.syncs[0], second._replace(start=second.start + 1))), held)
    assert late.where == f"chunk {second.chunk}"


@pytest.mark.parametrize("name", ["chimera", "1f1b", "interleaved-1f1b"])
@pytest.mark.parametrize("servers", [1, 2])
def test_library_in_copies_over_one_bus(name: str, servers: int) -> None:
    schedule = schedules.find(name)(4, 8)
    problem = small_problem(schedule.placement)
    devices = range(problem.devices)
    bus = ("bus", frozenset((i, j) for i in devices for j in devices))
    network = replace(problem.network, shared=(bus,), servers=(servers,))
    held = replace(problem, network=network, copies=2, sync_path=((0,),) * schedule.placement.chunks)
    timeline = evaluate(schedule, held)
    assert_equal(timeline, peer_timeline(schedule, held))
    assert verify(timeline, held) == slack(timeline, held) == []
    rows = np.flatnonzero(timeline.sent >= 0)
    held_for = [*zip(timeline.sent[rows].tolist(), timeline.released[rows].tolist(), strict=True)]
    held_for += [(sync.start, sync.end) for sync in timeline.syncs]
    changes = sorted([(end, -1) for _, end in held_for] + [(start, 1) for start, _ in held_for])
    assert np.cumsum([by for _, by in changes]).max() == servers


def test_what_does_not_know_of_them_refuses() -> None:
    schedule, problem = copied()
    with pytest.raises(Inapplicable, match="hold links"):
        cp_sat(schedule, problem)
    with pytest.raises(Inapplicable, match="hold no links"):
        in_order(schedule, problem, Messages.FIFO_PAIR)
    with pytest.raises(UsageError, match="positions of its 1 shared"):
        replace(problem, sync_path=((), (1,)))
    with pytest.raises(UsageError, match="sync_path"):
        replace(problem, sync_path=((),))
