from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.errors import Inapplicable, Incomplete, UsageError
from explorer.core.op import B, Entry, F, I, Kind, Op, Overlapped, W
from explorer.core.placement import Hop, Placement, linear, vee
from explorer.core.schedule import Schedule
from tests.strategies import placements, schedules

PLACEMENT = linear(2, 2)
ORDERS: list[list[Entry]] = [
    [F(0, 0), F(0, 1), B(0, 0), B(0, 1)],
    [F(1, 0), B(1, 0), F(1, 1), I(1, 1), W(1, 1)],
]
SCHEDULE = Schedule.from_orders(PLACEMENT, ORDERS)


def columns(schedule: Schedule) -> list[Any]:
    return [schedule.offsets, schedule.stage, schedule.kind, schedule.microbatch, schedule.joined]


def test_columns() -> None:
    offsets, stage, kind, microbatch, joined = columns(SCHEDULE)
    assert offsets.tolist() == [0, 4, 9]
    assert stage.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert kind.tolist() == [0, 0, 3, 3, 0, 3, 0, 1, 2]
    assert microbatch.tolist() == [0, 1, 0, 1, 0, 0, 1, 1, 1]
    assert not joined.any()
    assert [column.dtype for column in columns(SCHEDULE)] == [np.int64, np.int32, np.int8, np.int32, np.bool_]


def test_reading() -> None:
    assert len(SCHEDULE) == 9
    assert (SCHEDULE.devices, SCHEDULE.microbatches) == (2, 2)
    assert SCHEDULE.rows(1) == range(4, 9)
    assert SCHEDULE.op(7) == I(1, 1)
    assert isinstance(SCHEDULE.op(7).kind, Kind)
    assert SCHEDULE.ops(0) == ORDERS[0]
    assert list(SCHEDULE.orders()) == ORDERS
    assert SCHEDULE.device.tolist() == [0] * 4 + [1] * 5
    assert SCHEDULE.chunk.tolist() == SCHEDULE.stage.tolist()
    assert (SCHEDULE.splits_backward, SCHEDULE.overlaps) == (True, False)
    assert repr(SCHEDULE) == "Schedule(2 devices, 2 microbatches, 9 ops)"


def test_orders_may_be_generators_and_empty() -> None:
    assert Schedule.from_orders(PLACEMENT, (iter(order) for order in ORDERS)) == SCHEDULE
    idle = Placement(((Hop(0, 1),),), (0,))
    schedule = Schedule.from_orders(idle, [[], [F(0, 0), B(0, 0)]])
    schedule.require_complete()
    assert list(schedule.orders()) == [[], [F(0, 0), B(0, 0)]]
    empty = Schedule.from_orders(PLACEMENT, [[], []])
    assert (len(empty), list(empty.orders())) == (0, [[], []])


@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    placement = data.draw(placements())
    schedule = data.draw(schedules(placement))
    again = Schedule.from_orders(placement, schedule.orders())
    assert again == schedule
    assert hash(again) == hash(schedule)
    again.require_complete()
    assert [op for device in range(schedule.devices) for op in schedule.ops(device)] == [
        schedule.op(row) for row in range(len(schedule))
    ]


def test_overlapped_pairs() -> None:
    order: list[Entry] = [F(0, 0), Overlapped(F(0, 1), B(0, 0)), Overlapped(F(0, 2), B(0, 1)), B(0, 2)]
    schedule = Schedule.from_orders(linear(1, 3), [order])
    assert schedule.joined.tolist() == [False, False, True, False, True, False]
    assert schedule.order(0) == order
    assert schedule.overlaps
    apart = Schedule.from_orders(linear(1, 3), [schedule.ops(0)])
    assert apart != schedule


def test_equality_and_hash() -> None:
    assert Schedule.from_orders(PLACEMENT, ORDERS) == SCHEDULE
    assert len({SCHEDULE, Schedule.from_orders(PLACEMENT, ORDERS)}) == 1
    swapped = Schedule.from_orders(PLACEMENT, [[F(0, 1), F(0, 0), B(0, 0), B(0, 1)], ORDERS[1]])
    assert swapped != SCHEDULE
    assert Schedule.from_orders(linear(2, 3), ORDERS) != SCHEDULE
    assert SCHEDULE != "schedule"


def test_columns_are_read_only() -> None:
    for column in columns(SCHEDULE):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_order_a_device(count: int) -> None:
    with pytest.raises(UsageError, match=f"{count} orders for 2 devices"):
        Schedule.from_orders(PLACEMENT, (ORDERS * 2)[:count])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stage": SCHEDULE.stage[1:]}, "columns of a schedule differ in length"),
        ({"microbatch": SCHEDULE.microbatch[1:]}, "columns of a schedule differ in length"),
        ({"offsets": np.array([0, 9])}, "offsets do not cut 9 ops into 2 devices"),
        ({"offsets": np.array([1, 4, 9])}, "offsets do not cut 9 ops into 2 devices"),
        ({"offsets": np.array([0, 4, 8])}, "offsets do not cut 9 ops into 2 devices"),
        ({"joined": np.arange(9) == 4}, "first op has none before it"),
        ({"joined": np.isin(np.arange(9), [2, 3])}, "at most two ops overlap"),
        ({"kind": np.full(9, 4)}, "kinds are 0 to 3: F, I, W, B"),
        ({"kind": np.full(9, -1)}, "kinds are 0 to 3: F, I, W, B"),
    ],
)
def test_wrong_columns_are_refused(change: dict[str, Any], message: str) -> None:
    names = ("offsets", "stage", "kind", "microbatch", "joined")
    given_columns = dict(zip(names, columns(SCHEDULE), strict=True)) | change
    with pytest.raises(UsageError, match=message):
        Schedule(PLACEMENT, **given_columns)


def test_descending_offsets_are_refused() -> None:
    with pytest.raises(UsageError, match="must not descend"):
        Schedule(linear(3, 1), np.array([0, 9, 4, 9]), *columns(SCHEDULE)[1:])


# Completeness


def incomplete(first: list[Entry], second: list[Entry]) -> str:
    with pytest.raises(Incomplete) as error:
        Schedule.from_orders(PLACEMENT, [first, second]).require_complete()
    return str(error.value)


def test_complete() -> None:
    SCHEDULE.require_complete()


@pytest.mark.parametrize("stray", [F(2, 0), F(0, 2), Op(-1, Kind.F, 0), Op(0, Kind.F, -1)])
def test_unknown_ops(stray: Op) -> None:
    message = incomplete([*ORDERS[0], stray], ORDERS[1])
    assert message == f"device 0 runs {stray}, but there are 2 microbatches on routes of 2 stages"


def test_ops_past_the_end_of_a_shorter_route() -> None:
    placement = Placement(((Hop(0, 0),), (Hop(1, 0), Hop(2, 0))), (0, 1), tuple(linear(1, 1).shares) + vee(1, 1).shares)
    orders = [[F(0, 0), B(0, 0), F(0, 1), F(1, 1), B(1, 1), B(0, 1)]]
    Schedule.from_orders(placement, orders).require_complete()
    with pytest.raises(Incomplete, match="device 0 runs 1F0"):
        Schedule.from_orders(placement, [[*orders[0], F(1, 0)]]).require_complete()


def test_ops_on_the_wrong_device() -> None:
    message = incomplete(ORDERS[0][:-1], [*ORDERS[1], B(0, 1)])
    assert message == "device 1 runs 0B1, but stage 0 of microbatch 1 lives on device 0"


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        ([], "1x 0F1"),
        ([I(0, 1)], "1x 0F1, 1x 0I1"),
        ([W(0, 1)], "1x 0F1, 1x 0W1"),
        ([B(0, 1), B(0, 1)], "1x 0F1, 2x 0B1"),
        ([B(0, 1), W(0, 1)], "1x 0F1, 1x 0W1, 1x 0B1"),
        ([I(0, 1), W(0, 1), W(0, 1)], "1x 0F1, 1x 0I1, 2x 0W1"),
        ([B(0, 1), F(0, 1)], "2x 0F1, 1x 0B1"),
    ],
)
def test_missing_and_repeated_ops(tail: list[Entry], found: str) -> None:
    assert incomplete([*ORDERS[0][:-1], *tail], ORDERS[1]) == (
        f"microbatch 1 needs at stage 0 one F and either one B or one I and one W; found {found}"
    )


def test_a_stage_without_ops() -> None:
    assert incomplete(ORDERS[0], ORDERS[1][:2]).endswith("found nothing")


# Split and fused backward


def test_split_backward() -> None:
    split = SCHEDULE.with_split_backward()
    split.require_complete()
    assert list(split.orders()) == [
        [F(0, 0), F(0, 1), I(0, 0), W(0, 0), I(0, 1), W(0, 1)],
        [F(1, 0), I(1, 0), W(1, 0), F(1, 1), I(1, 1), W(1, 1)],
    ]
    assert split.with_split_backward() == split


def test_fused_backward() -> None:
    fused = SCHEDULE.with_fused_backward()
    fused.require_complete()
    assert list(fused.orders()) == [ORDERS[0], [F(1, 0), B(1, 0), F(1, 1), B(1, 1)]]
    assert not fused.splits_backward
    assert fused.with_fused_backward() is fused


@given(st.data())
def test_splitting_and_fusing_are_inverse(data: st.DataObject) -> None:
    placement = data.draw(placements())
    fused = data.draw(schedules(placement, backward=["fused"]))
    split = fused.with_split_backward()
    split.require_complete()
    assert split.with_fused_backward() == fused


@pytest.mark.parametrize(
    "order",
    [
        [F(0, 0), I(0, 0), F(0, 1), W(0, 0), B(0, 1)],
        [F(0, 0), F(0, 1), I(0, 0), I(0, 1), W(0, 0), W(0, 1)],
        [F(0, 0), Overlapped(F(0, 1), I(0, 0)), W(0, 0), B(0, 1)],
        [F(0, 0), I(0, 0), Overlapped(W(0, 0), F(0, 1)), B(0, 1)],
    ],
)
def test_backwards_that_cannot_be_fused(order: list[Entry]) -> None:
    schedule = Schedule.from_orders(linear(1, 2), [order])
    schedule.require_complete()
    with pytest.raises(Inapplicable, match="device 0 does not run the W of 0I0 right after it"):
        schedule.with_fused_backward()


def test_pairs_keep_their_whole_backward() -> None:
    order: list[Entry] = [F(0, 0), Overlapped(F(0, 1), B(0, 0)), B(0, 1)]
    schedule = Schedule.from_orders(linear(1, 2), [order])
    split = schedule.with_split_backward()
    assert split.order(0) == [*order[:2], I(0, 1), W(0, 1)]
    assert split.with_fused_backward() == schedule
