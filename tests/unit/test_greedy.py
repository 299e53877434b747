"""List scheduling, and the mirrored placement that it is used on."""

import pytest

from explorer.core.errors import Inapplicable
from explorer.core.op import Kind, Op
from explorer.core.placement import linear, mirrored, wave
from schedules.greedy import greedy


def backward_first(op: Op) -> tuple[bool, int, int]:
    return op.kind is Kind.F, op.microbatch, -op.stage


def held(ops: list[Op]) -> int:
    level = peak = 0
    for op in ops:
        level += 1 if op.kind is Kind.F else -1
        peak = max(peak, level)
    return peak


def test_backward_first_on_a_line_is_1f1b_without_its_limit() -> None:
    schedule = greedy(linear(2, 3), backward_first)
    assert [" ".join(map(str, order)) for order in schedule.orders()] == [
        "0F0 0F1 0F2 0B0 0B1 0B2",
        "1F0 1B0 1F1 1B1 1F2 1B2",
    ]


@pytest.mark.parametrize("limit", [4, 5, 8])
def test_no_device_holds_more_than_the_limit(limit: int) -> None:
    schedule = greedy(mirrored(4, 12), backward_first, limit)
    schedule.require_complete()
    assert max(held(schedule.ops(device)) for device in range(4)) <= limit


def test_a_limit_that_stops_everything_is_refused() -> None:
    with pytest.raises(Inapplicable, match="at most 1 activations"):
        greedy(wave(2, 2, 1), backward_first, limit=1)


def test_mirrored_pipelines_take_the_same_devices_both_ways() -> None:
    placement = mirrored(8, 8, pairs=2)
    ways = [[hop.device for hop in route] for route in placement.routes]
    assert ways[0] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert ways[2] == [4, 5, 6, 7, 0, 1, 2, 3]
    assert ways[1] == ways[0][::-1]
    assert ways[3] == ways[2][::-1]
    assert placement.route_of == (0, 0, 1, 1, 2, 2, 3, 3)
    assert all(len(hosts) == 4 for hosts in placement.hosts)


@pytest.mark.parametrize(("pairs", "microbatches"), [(3, 12), (0, 8), (2, 6)])
def test_uneven_pairs_are_refused(pairs: int, microbatches: int) -> None:
    with pytest.raises(Inapplicable, match="pipelines"):
        mirrored(8, microbatches, pairs)
