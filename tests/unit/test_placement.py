from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given

from explorer.core.errors import Inapplicable, UsageError
from explorer.core.placement import Hop, Placement, along, linear, loop, vee, wave
from tests.strategies import mirrored, placements

HALF = Fraction(1, 2)


def devices(placement: Placement) -> list[int]:
    (route,) = placement.routes
    assert [hop.chunk for hop in route] == list(range(len(route)))
    return [hop.device for hop in route]


def test_the_usual_placements() -> None:
    assert devices(linear(3, 4)) == [0, 1, 2]
    assert devices(loop(3, 4, 2)) == [0, 1, 2, 0, 1, 2]
    assert devices(vee(3, 4)) == [0, 1, 2, 2, 1, 0]
    assert devices(wave(2, 4, 2)) == [0, 1, 1, 0, 0, 1, 1, 0]
    assert devices(along([2, 0], 1)) == [2, 0]
    assert linear(3, 4) == loop(3, 4, 1)
    assert vee(3, 4) == wave(3, 4, 1)


def test_what_follows_from_routes() -> None:
    placement = vee(2, 3)
    assert (placement.devices, placement.chunks, placement.stages, placement.microbatches) == (2, 4, 4, 3)
    assert placement.shares == (Fraction(1, 4),) * 4
    assert placement.hosts == ((0,), (1,), (1,), (0,))
    assert placement.resident == ((0, 3), (1, 2))
    assert placement.route(2) == placement.routes[0]


def test_replicas_are_chunks_with_several_hosts() -> None:
    placement = mirrored(3, 2)
    assert placement.hosts == ((0, 2), (1,), (0, 2))
    assert placement.resident == ((0, 2), (1,), (0, 2))
    assert placement.route(1) == (Hop(0, 2), Hop(1, 1), Hop(2, 0))


def test_routes_of_different_length() -> None:
    routes = ((Hop(0, 0), Hop(1, 1)), (Hop(2, 2),))
    placement = Placement(routes, (0, 1, 1), (HALF, HALF, Fraction(1)))
    assert (placement.devices, placement.stages) == (3, 2)
    columns = placement.columns
    assert columns.device.tolist() == [[0, 1], [2, -1]]
    assert columns.chunk.tolist() == [[0, 1], [2, -1]]
    assert columns.length.tolist() == [2, 1]
    assert columns.route_of.tolist() == [0, 1, 1]


@given(placements())
def test_shares_of_every_route_are_the_whole_model(placement: Placement) -> None:
    for route in placement.routes:
        assert sum(placement.shares[hop.chunk] for hop in route) == 1
    for chunk, hosts in enumerate(placement.hosts):
        assert all(chunk in placement.resident[device] for device in hosts)
    assert sum(map(len, placement.hosts)) == sum(map(len, placement.resident))


def test_placements_are_values() -> None:
    assert len({linear(2, 3), loop(2, 3, 1), linear(2, 4), linear(3, 3)}) == 3


@pytest.mark.parametrize(
    ("routes", "route_of", "shares", "message"),
    [
        ((), (0,), (), "at least one route"),
        (((Hop(0, 0),),), (), (), "at least one route and one microbatch"),
        (((Hop(0, 0),), ()), (0,), (), "route 1 has no stage"),
        (((Hop(0, 0), Hop(0, 1)),), (0,), (), "route 0 visits a chunk twice"),
        (((Hop(0, -1),),), (0,), (), "route 0 has a negative chunk or device"),
        (((Hop(-1, 0),),), (0,), (), "route 0 has a negative chunk or device"),
        (((Hop(0, 0),),), (0, 1), (), "route_of names a route outside 0..0"),
        (((Hop(0, 0),),), (-1,), (), "route_of names a route outside 0..0"),
        (((Hop(0, 0), Hop(1, 0)), (Hop(2, 0),)), (0,), (), "routes of different length need explicit shares"),
        (((Hop(0, 0),),), (0,), (HALF, HALF), "2 shares for 1 chunks"),
        (((Hop(0, 0), Hop(1, 0)),), (0,), (Fraction(3, 2), -HALF), "share of the model must be positive"),
        (((Hop(0, 0), Hop(1, 0)),), (0,), (HALF, Fraction(1, 3)), "route 0 hold 5/6 of the model"),
    ],
)
def test_wrong_placements_are_refused(
    routes: tuple[tuple[Hop, ...], ...], route_of: tuple[int, ...], shares: tuple[Fraction, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Placement(routes, route_of, shares)


def test_impossible_sizes_are_refused() -> None:
    for build in (lambda: linear(0, 1), lambda: linear(1, 0), lambda: vee(0, 1)):
        with pytest.raises(Inapplicable, match="at least 1 device and 1 microbatch"):
            build()
    with pytest.raises(Inapplicable, match="at least 1 chunk, got 0"):
        loop(2, 2, 0)
    with pytest.raises(Inapplicable, match="at least 1 wave, got 0"):
        wave(2, 2, 0)
