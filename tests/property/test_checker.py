"""The checker finds what is wrong: a test for each kind of violation, and that no change of a timeline escapes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.errors import Deadlock, UsageError
from explorer.core.op import B, Entry, F, I, Kind, Op, Overlapped, W
from explorer.core.placement import Hop, Placement, along, linear
from explorer.core.problem import Communication, MemoryLimit, Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Sync, Timeline, Update
from explorer.evaluation.checker import Rule, Violation, slack, verify, verify_order
from explorer.evaluation.longest_path import evaluate
from tests.peers.simulator import columns, read, simulate
from tests.strategies import instances, mirrored, small_problem

COLUMNS = ("start", "end", "free", "sent", "released", "arrival")

# Two devices, three microbatches, one forward, one backward; by hand under F = 2, B = 4, a link that is held for 2 and
# delivers after 3:   0: F0 at 0, F1 at 2, B0 at 14    1: F0 at 5, B0 at 7, F1 at 11
ORDERS: list[list[Entry]] = [
    [F(0, 0), F(0, 1), B(0, 0), F(0, 2), B(0, 1), B(0, 2)],
    [F(1, 0), B(1, 0), F(1, 1), B(1, 1), F(1, 2), B(1, 2)],
]
PLACEMENT = linear(2, 3)
SCHEDULE = Schedule.from_orders(PLACEMENT, ORDERS)
PROBLEM = small_problem(PLACEMENT)


def kinds(found: list[Violation]) -> set[str]:
    return {violation.kind for violation in found}


def ordered(*orders: list[Entry], placement: Placement = PLACEMENT) -> list[Violation]:
    return verify_order(Schedule.from_orders(placement, orders))


def changed(timeline: Timeline, column: str, row: int, by: int) -> Timeline:
    values = getattr(timeline, column).copy()
    values[row] += by
    return replace(timeline, **{column: values})


def moved(timeline: Timeline, rows: list[int], names: tuple[str, ...], by: int) -> Timeline:
    for name in names:
        for row in rows:
            timeline = changed(timeline, name, row, by)
    return timeline


OP = ("start", "end", "free")
TRANSFER = ("sent", "released", "arrival")


def test_the_example_is_right() -> None:
    timeline = evaluate(SCHEDULE, PROBLEM)
    assert timeline.start[:3].tolist() == [0, 2, 14]
    assert timeline.start[6:9].tolist() == [5, 7, 11]
    assert verify(timeline, PROBLEM) == []
    assert slack(timeline, PROBLEM) == []


def test_a_violation_is_a_frozen_value() -> None:
    violation = Violation(Rule.SLACK, "there", "late")
    assert violation == Violation("slack", "there", "late")
    with pytest.raises(FrozenInstanceError):
        violation.where = "here"  # type: ignore[misc]


# Orders


def test_missing() -> None:
    (found,) = ordered(ORDERS[0][:-1], ORDERS[1])
    assert (found.kind, found.where) == ("missing-op", "device 0, stage 0, microbatch 2")
    assert "0B2" in found.message
    (found,) = ordered(ORDERS[0], [op for op in ORDERS[1] if op != F(1, 1)])
    assert found.kind == "missing-op"
    assert "1F1" in found.message


def test_repeated() -> None:
    (found,) = ordered([*ORDERS[0], B(0, 2)], ORDERS[1])
    assert (found.kind, found.message) == ("repeated-op", "0B2 stands 2 times, it must once")


def test_wrong_device() -> None:
    (found,) = ordered(ORDERS[0][:-1], [*ORDERS[1], B(0, 2)])
    assert found.kind == "wrong-device"
    assert found.where == "device 1, row 6: 0B2"
    assert "lives on device 0" in found.message


@pytest.mark.parametrize("stray", [F(2, 0), F(0, 3), Op(-1, Kind.F, 0), Op(0, Kind.F, -1)])
def test_unknown_op(stray: Op) -> None:
    assert kinds(ordered([*ORDERS[0], stray], ORDERS[1])) == {"unknown-op"}


@pytest.mark.parametrize(
    "backward", [[I(0, 2)], [W(0, 2)], [B(0, 2), W(0, 2)], [I(0, 2), B(0, 2)], [I(0, 2), W(0, 2), B(0, 2)]]
)
def test_half_a_backward(backward: list[Entry]) -> None:
    (found,) = ordered([*ORDERS[0][:-1], *backward], ORDERS[1])
    assert found.kind == "half-backward"
    assert str(backward[0]) in found.message


def test_backward_before_its_forward_and_weights_before_the_input() -> None:
    first = [F(0, 0), B(0, 1), F(0, 1), B(0, 0), F(0, 2), B(0, 2)]
    (found,) = ordered(first, ORDERS[1])
    assert (found.kind, found.where) == ("premature-op", "device 0, row 1: 0B1")
    assert "0F1" in found.message
    (found,) = ordered([*ORDERS[0][:-1], W(0, 2), I(0, 2)], ORDERS[1])
    assert (found.kind, found.where) == ("premature-op", "device 0, row 5: 0W2")


def test_deadlock_names_the_cycle() -> None:
    first = [F(0, 0), B(0, 0), F(0, 1), B(0, 1), F(0, 2), B(0, 2)]
    (found,) = ordered(first, [F(1, 0), F(1, 1), B(1, 0), B(1, 1), F(1, 2), B(1, 2)])
    assert (found.kind, found.where) == ("deadlock", "devices 0, 1")
    for step in (
        "0B0 on device 0 waits for 1B0 on device 1",
        "1B0 stands behind 1F1",
        "1F1 on device 1 waits for 0F1 on device 0",
        "0F1 stands behind 0B0",
    ):
        assert step in found.message
    assert found.message.count(";") == 3


def test_deadlock_within_a_pair() -> None:
    (found,) = ordered([Overlapped(F(0, 0), B(0, 0))], placement=linear(1, 1))
    assert (found.kind, found.where) == ("deadlock", "device 0")


def test_a_wrong_order_has_no_times_to_check() -> None:
    schedule = Schedule.from_orders(PLACEMENT, [ORDERS[0][:-1], ORDERS[1]])
    timeline = Timeline(schedule, *(np.zeros(len(schedule), np.int64) for _ in COLUMNS))
    assert kinds(verify(timeline, PROBLEM)) == {"missing-op"}


# Times


def test_columns_of_another_length() -> None:
    timeline = evaluate(SCHEDULE, PROBLEM)
    (found,) = verify(replace(timeline, free=timeline.free[:-1]), PROBLEM)
    assert (found.kind, found.where) == ("shape", "free")


def test_an_op_too_early_for_its_device() -> None:
    assert kinds(verify(moved(evaluate(SCHEDULE, PROBLEM), [1], OP, -1), PROBLEM)) == {"device-busy"}


def test_an_op_before_time_zero() -> None:
    assert kinds(verify(moved(evaluate(SCHEDULE, PROBLEM), [0], OP, -1), PROBLEM)) == {"device-busy"}


def test_an_op_too_early_for_its_input() -> None:
    (found,) = verify(moved(evaluate(SCHEDULE, PROBLEM), [6], OP, -1), PROBLEM)
    assert (found.kind, found.message) == ("dependency", "starts at 4, its input is there at 5")


def test_weights_and_the_last_backward_depend_on_their_own_device() -> None:
    """Rows that their device's order already holds back are held back by what they wait for as well."""
    placement = linear(1, 1)
    schedule = Schedule.from_orders(placement, [[F(0, 0), I(0, 0), W(0, 0)]])
    problem = small_problem(placement)
    for row in (1, 2):
        found = verify(moved(evaluate(schedule, problem), [row], OP, -1), problem)
        assert kinds(found) == {"device-busy", "dependency"}


@pytest.mark.parametrize("by", [-1, 1])
def test_duration(by: int) -> None:
    timeline = evaluate(SCHEDULE, PROBLEM)
    last = len(SCHEDULE) - 1
    assert "duration" in kinds(verify(changed(timeline, "end", last, by), PROBLEM))
    (found,) = verify(timeline, replace(PROBLEM, launch=1))[:1]
    assert (found.kind, found.message) == ("duration", "runs for 2, it must for 3")


@pytest.mark.parametrize("mode", [Communication.LINK, Communication.BLOCKING])
@pytest.mark.parametrize("by", [-1, 1])
def test_device_is_freed_by_its_sends(mode: Communication, by: int) -> None:
    problem = replace(PROBLEM, communication=mode, posting=1)
    timeline = evaluate(SCHEDULE, problem)
    assert timeline.free[0] - timeline.end[0] == (4 if mode is Communication.BLOCKING else 1)
    assert kinds(verify(changed(timeline, "free", 0, by), problem)) == {"device-busy"}


def paired() -> tuple[Timeline, Problem]:
    placement = linear(1, 2)
    schedule = Schedule.from_orders(placement, [[F(0, 0), Overlapped(F(0, 1), B(0, 0)), B(0, 1)]])
    problem = replace(small_problem(placement), overlap=Fraction(1, 2))
    return evaluate(schedule, problem), problem


def test_overlapped_pair_runs_as_one() -> None:
    timeline, problem = paired()
    assert timeline.makespan == 2 + 3 + 4
    assert verify(timeline, problem) == []
    assert "overlapped-pair" in kinds(verify(changed(timeline, "start", 2, 1), problem))
    assert kinds(verify(timeline, replace(problem, overlap=Fraction(1)))) == {"duration"}


def test_transfer() -> None:
    timeline = evaluate(SCHEDULE, PROBLEM)
    assert kinds(verify(moved(timeline, [0], TRANSFER, -1), PROBLEM)) == {"transfer"}
    assert "transfer" in kinds(verify(changed(timeline, "released", 0, 1), PROBLEM))
    assert "transfer" in kinds(verify(changed(timeline, "arrival", 0, -1), PROBLEM))
    (found,) = verify(moved(timeline, [2], TRANSFER, 5), PROBLEM)
    assert found.kind == "transfer"
    assert "causes no transfer" in found.message
    assert "transfer" in kinds(verify(replace(timeline, sent=np.full_like(timeline.sent, -1)), PROBLEM))


@pytest.mark.parametrize("mode", list(Communication))
def test_a_timeline_of_another_mode(mode: Communication) -> None:
    timeline = evaluate(SCHEDULE, replace(PROBLEM, communication=mode))
    for other in set(Communication) - {mode}:
        found = kinds(verify(timeline, replace(PROBLEM, communication=other)))
        only_devices_differ = {mode, other} == {Communication.LATENCY, Communication.BLOCKING}
        assert ("device-busy" if only_devices_differ else "transfer") in found


def test_a_blocking_send_cannot_wait() -> None:
    problem = replace(PROBLEM, communication=Communication.BLOCKING)
    timeline = moved(evaluate(SCHEDULE, problem), [9], TRANSFER, 1)
    assert "transfer" in kinds(verify(timeline, problem))


def test_link_carries_one_transfer_at_a_time() -> None:
    """F0 and F1 leave device 0 at 2 and 4; a link that is held for 3 must keep the second waiting."""
    network = replace(PROBLEM.network, occupancy=PROBLEM.network.occupancy + 1)
    problem = replace(PROBLEM, network=network)
    timeline = evaluate(SCHEDULE, problem)
    assert timeline.sent[:2].tolist() == [2, 5]
    (found,) = verify(moved(timeline, [1], TRANSFER, -1), problem)
    assert (found.kind, found.where) == ("link-busy", "device 0, row 1: 0F1")
    assert "link 0 -> 1 serves that of 0F0 until 5" in found.message


def test_a_shared_link_serves_in_order_of_readiness() -> None:
    """Devices 0 and 1 send to 2; both are ready at 2, the link is held for 2: device 0 goes first."""
    placement = Placement((tuple(map(Hop, (0, 1), (0, 2))), tuple(map(Hop, (0, 1), (1, 2)))), (0, 1))
    orders = [[F(0, 0), B(0, 0)], [F(0, 1), B(0, 1)], [F(1, 0), B(1, 0), F(1, 1), B(1, 1)]]
    schedule = Schedule.from_orders(placement, orders)
    alone = small_problem(placement)
    problem = replace(alone, network=replace(alone.network, shared=(("rail", frozenset({(0, 2), (1, 2)})),)))
    timeline = evaluate(schedule, alone)
    assert timeline.sent[[0, 2]].tolist() == [2, 2]
    (found,) = verify(timeline, problem)
    assert found.kind == "link-busy"
    assert "rail serves that of 0F0 until 4 first" in found.message
    assert verify(moved(timeline, [2], TRANSFER, 2), problem) == []
    wrong_turn = moved(timeline, [0], TRANSFER, 2)
    assert "link-busy" in kinds(verify(wrong_turn, problem))


def test_an_instant_transfer_may_cause_another_one_in_its_tick() -> None:
    """Device 2 sends to 0 in no time, 0 computes in no time and sends on: the rail serves 2 before 0, though 0 < 2."""
    placement = along([2, 0, 1], 1)
    orders = [[F(1, 0), B(1, 0)], [F(2, 0), B(2, 0)], [F(0, 0), B(0, 0)]]
    base = small_problem(placement)
    rail = ("rail", frozenset({(2, 0), (0, 1)}))
    occupancy = base.network.occupancy.copy()
    occupancy[0, 0, 0] = 0
    durations = base.durations.copy()
    durations[0, 1] = 0
    network = replace(base.network, latency=np.array([0]), occupancy=occupancy, shared=(rail,))
    problem = replace(base, durations=durations, network=network)
    schedule = Schedule.from_orders(placement, orders)
    times = simulate(read(schedule, problem))
    timeline = Timeline(schedule, *(np.array([int(t) for t in c]) for c in columns(schedule, times).values()))
    assert (timeline.sent[0], timeline.sent[4]) == (2, 2)
    assert verify(timeline, problem) == []
    assert slack(timeline, problem) == []


def synchronised() -> tuple[Timeline, Problem]:
    placement = mirrored(2, 2)
    orders = [[F(0, 0), F(1, 1), B(1, 1), B(0, 0)], [F(0, 1), F(1, 0), B(1, 0), B(0, 1)]]
    problem = small_problem(placement)
    return evaluate(Schedule.from_orders(placement, orders), problem), problem


def with_syncs(timeline: Timeline, *syncs: Sync) -> Timeline:
    return replace(timeline, syncs=syncs)


def test_gradient_synchronisation() -> None:
    timeline, problem = synchronised()
    first, second = timeline.syncs
    assert (first.chunk, second.chunk) == (1, 0)
    cases: dict[str, tuple[Sync, ...]] = {
        "0 times, it must once": (first,),
        "2 times, it must once": (first, second, second),
        "need not": (first, second, Sync(7, (0, 1), 90, 95)),
        "replicas are on": (first, second._replace(devices=(0,))),
        "last backward ends": (first._replace(start=first.start - 1, end=first.end - 1), second),
        "runs for 6": (first, second._replace(end=second.end + 1)),
    }
    for message, syncs in cases.items():
        found = verify(with_syncs(timeline, *syncs), problem)
        assert kinds(found) == {"gradient-sync"}, message
        assert any(message in violation.message for violation in found)
    assert {v.kind for v in verify(timeline, replace(problem, sync=0 * problem.sync))} == {"gradient-sync"}


def test_synchronisations_of_a_device_follow_one_another() -> None:
    timeline, problem = synchronised()
    long = replace(problem, sync=np.array([5, 50]))
    timeline = evaluate(timeline.schedule, long)
    first, second = timeline.syncs
    assert second.start == first.end
    (found, *_) = verify(with_syncs(timeline, first, second._replace(start=second.start - 1, end=second.end - 1)), long)
    assert found.kind == "gradient-sync"
    assert "before that of chunk 1 ends" in found.message


def test_synchronisations_are_served_in_order_of_readiness() -> None:
    """Chunk 1 is ready first; that it waits for chunk 0 instead is wrong though nothing overlaps."""
    timeline, problem = synchronised()
    first, second = timeline.syncs
    ready = max(int(timeline.end[row]) for row, op in enumerate(timeline.schedule.kind) if op == Kind.B)
    turned = (
        second._replace(start=ready, end=ready + 5),
        first._replace(start=ready + 5, end=ready + 10),
    )
    assert kinds(verify(with_syncs(timeline, *turned), problem)) == {"gradient-sync"}


def test_optimizer_steps() -> None:
    timeline, problem = synchronised()
    problem = replace(problem, optimizer=(4, 6))
    timeline = evaluate(timeline.schedule, problem)
    first, second = timeline.updates
    assert first.start == second.start == timeline.synchronised
    assert timeline.makespan == timeline.synchronised + 6
    cases: dict[str, tuple[Update, ...]] = {
        "0 times, it must 1": (first,),
        "2 times, it must 1": (first, second, second),
        "1 times, it must 0": (first, second, Update(7, 90, 95)),
        "gradients are done at": (first._replace(start=first.start - 1, end=first.end - 1), second),
        "steps for 7": (first, second._replace(end=second.end + 1)),
    }
    for message, updates in cases.items():
        found = verify(replace(timeline, updates=updates), problem)
        assert kinds(found) == {"optimizer"}, message
        assert any(message in violation.message for violation in found)
    late = replace(timeline, updates=(first._replace(start=first.start + 1, end=first.end + 1), second))
    assert verify(late, problem) == []
    (violation,) = slack(late, problem)
    assert (violation.kind, violation.where) == ("slack", "device 0")


def test_memory() -> None:
    """Device 0 holds two activations of 3, and two chunks of 10 in bytes: one is its own."""
    timeline = evaluate(SCHEDULE, PROBLEM)
    for caps, in_bytes, expected in (
        ((6, 3), False, set()),
        ((5, 3), False, {"memory"}),
        ((16, 13), True, set()),
        ((16, 12), True, {"memory"}),
    ):
        assert kinds(verify(timeline, replace(PROBLEM, memory_limit=MemoryLimit(caps, in_bytes)))) == expected
    limited = replace(PROBLEM, bytes=None, memory_limit=MemoryLimit((9, 9), True))
    with pytest.raises(UsageError, match="bytes"):
        verify(timeline, limited)


def test_a_pair_adds_to_memory_before_it_frees() -> None:
    timeline, problem = paired()
    assert verify(timeline, replace(problem, memory_limit=MemoryLimit((6,), False))) == []
    assert kinds(verify(timeline, replace(problem, memory_limit=MemoryLimit((5,), False)))) == {"memory"}


def test_input_gradients_free_their_share() -> None:
    """1 of 3 is freed at I: two Fs with an I in between hold 5, with the W too 3."""
    placement = linear(1, 2)
    orders: dict[int, list[Entry]] = {
        5: [F(0, 0), I(0, 0), F(0, 1), W(0, 0), I(0, 1), W(0, 1)],
        3: [F(0, 0), I(0, 0), W(0, 0), F(0, 1), I(0, 1), W(0, 1)],
    }
    for peak, order in orders.items():
        problem = small_problem(placement)
        timeline = evaluate(Schedule.from_orders(placement, [order]), problem)
        assert verify(timeline, replace(problem, memory_limit=MemoryLimit((peak,), False))) == []
        assert verify(timeline, replace(problem, memory_limit=MemoryLimit((peak - 1,), False)))


def test_another_placements_problem_is_refused() -> None:
    with pytest.raises(UsageError, match="devices"):
        verify(evaluate(SCHEDULE, PROBLEM), small_problem(linear(3, 3)))


# Slack


def test_slack_of_ops_transfers_and_synchronisations() -> None:
    timeline = evaluate(SCHEDULE, PROBLEM)
    last = len(ORDERS[0]) - 1
    late = moved(timeline, [last], OP, 1)
    assert verify(late, PROBLEM) == []
    (found,) = slack(late, PROBLEM)
    assert (found.kind, found.where) == ("slack", "device 0, row 5: 0B2")
    (found,) = slack(moved(timeline, [1], TRANSFER, 1), PROBLEM)
    assert "its transfer starts at 5, it could at 4" in found.message
    timeline, problem = synchronised()
    first, second = timeline.syncs
    late = with_syncs(timeline, first, second._replace(start=second.start + 1, end=second.end + 1))
    assert verify(late, problem) == []
    (found,) = slack(late, problem)
    assert (found.kind, found.where) == ("slack", f"chunk {second.chunk}")


# No change escapes: the least fixed point is unique


def wrong(timeline: Timeline, problem: Problem) -> bool:
    return bool(verify(timeline, problem) or slack(timeline, problem))


@given(instances(), st.sampled_from(COLUMNS), st.sampled_from([-2, -1, 1, 2]), st.randoms())
def test_no_changed_entry_escapes(instance: tuple[Schedule, Problem], column: str, by: int, random: Random) -> None:
    schedule, problem = instance
    row = random.randrange(len(schedule))
    assert wrong(changed(evaluate(schedule, problem), column, row, by), problem)


@given(instances(), st.integers(0, 40))
def test_no_pause_escapes(instance: tuple[Schedule, Problem], after: int) -> None:
    """Everything from some time on, a tick later: nothing overlaps, but it is not as early as can be."""
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    after = min(after, int(timeline.start.max()))

    def later(times: Any) -> Any:
        return np.where(times >= after, times + 1, times)

    syncs = (Sync(s.chunk, s.devices, int(later(s.start)), int(later(s.end))) for s in timeline.syncs)
    shifted = {name: later(getattr(timeline, name)) for name in COLUMNS}
    assert wrong(replace(timeline, **shifted, syncs=tuple(syncs)), problem)


@given(instances(), st.randoms())
def test_ops_swapped_under_their_times(instance: tuple[Schedule, Problem], random: Random) -> None:
    """Unless the swapped order happens to have the same times."""
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    device = random.choice([d for d in range(schedule.devices) if len(schedule.rows(d))])
    rows = schedule.rows(device)
    i, j = random.choice(rows), random.choice(rows)
    order = np.arange(len(schedule))
    order[[i, j]] = order[[j, i]]
    swapped = Schedule(
        schedule.placement, schedule.offsets, schedule.stage[order], schedule.kind[order], schedule.microbatch[order],
        schedule.joined,
    )  # fmt: skip
    claim = replace(timeline, schedule=swapped)
    try:
        truth = evaluate(swapped, problem)
    except Deadlock:
        assert verify(claim, problem)
    else:
        same = truth.syncs == claim.syncs and all(
            (getattr(truth, name) == getattr(claim, name)).all() for name in COLUMNS
        )
        assert wrong(claim, problem) != same


@pytest.mark.parametrize("change", ["drop", "double"])
@given(data=st.data())
def test_dropped_and_doubled_ops(change: str, data: st.DataObject) -> None:
    schedule, problem = data.draw(instances(pairs=False))
    row = data.draw(st.integers(0, len(schedule) - 1))
    copies = np.ones(len(schedule), np.int64)
    copies[row] = 0 if change == "drop" else 2
    ends = np.concatenate(([0], np.cumsum(copies)))

    def cut(column: Any) -> Any:
        return np.repeat(column, copies)

    other = Schedule(
        schedule.placement, ends[schedule.offsets], cut(schedule.stage), cut(schedule.kind), cut(schedule.microbatch)
    )
    timeline = evaluate(schedule, problem)
    claim = Timeline(other, *(cut(getattr(timeline, name)) for name in COLUMNS))
    found = kinds(verify(claim, problem))
    assert found <= ({"missing-op", "half-backward"} if change == "drop" else {"repeated-op", "premature-op"})
    assert found


def test_long_orders() -> None:
    """Long dependency chains: neither recursion nor repeated scans."""
    placement = along([0, 1], 2000)
    order: Callable[[int], list[Entry]] = lambda s: [op for m in range(2000) for op in (F(s, m), B(s, m))]  # noqa: E731
    schedule = Schedule.from_orders(placement, [order(0), order(1)])
    problem = small_problem(placement)
    timeline = evaluate(schedule, problem)
    assert verify(timeline, problem) == []
    assert slack(timeline, problem) == []
