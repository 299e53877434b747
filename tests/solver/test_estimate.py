"""What annealing estimates of a move, against the timeline of the order that the move leads to."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.core.placement import Placement, linear, mirrored, vee
from explorer.core.problem import Communication
from solvers.orders.earliest import earliest, no_times, working_space
from solvers.orders.estimate import estimate, tails
from solvers.orders.known import listed
from solvers.orders.tables import tables
from solvers.shop import Shop
from tests.solver.cases import uniform


@pytest.mark.parametrize("placement", [linear(3, 5), vee(3, 4), mirrored(4, 4)], ids=["linear", "vee", "mirrored"])
@pytest.mark.parametrize("communication", list(Communication))
def test_neighbours_that_change_places_are_estimated_exactly(
    placement: Placement, communication: Communication
) -> None:
    """Paths through neither of the two are as before, so the new makespan is within the estimate and the old one.

    A link may be waited for, or another synchronisation, which tails leave out; then the estimate is at most the
    makespan.
    """
    problem = uniform(
        placement, (3, 5, 2, 4), communication, latency=1, occupancy=4, sync=9, optimizer=(2,) * placement.devices
    )
    shop = Shop.of(problem, placement, True)
    t, class_of = tables(shop, True), shop.class_of
    orders = shop.conformed(next(iter(listed(shop)))[1])
    assert orders is not None
    order = np.concatenate(orders)
    ends = np.cumsum([0, *map(len, orders)])
    times, others, work = no_times(len(order)), no_times(len(order)), working_space(placement.devices)
    position, tail, head = (np.zeros(len(order), np.int64) for _ in range(3))
    before = earliest(t, class_of, order, ends, times, work)
    position[order] = np.arange(len(order))
    tails(t, class_of, order, ends, position, times[3], tail)
    queued = communication is Communication.LINK or len(placement.routes) > 1
    assert (times[0] + tail).max() <= before if queued else (times[0] + tail).max() == before
    tried = 0
    for d in range(placement.devices):
        for p in range(ends[d], ends[d + 1] - 1):
            a, b = order[p], order[p + 1]
            if class_of[a] == class_of[b]:
                continue
            order[[p, p + 1]] = b, a
            after = earliest(t, class_of, order, ends, others, work)
            if after >= 0:
                told = estimate(t, class_of, order, ends, d, p, p + 1, times, tail, head)
                assert told <= after
                assert queued or after <= max(told, before)
                tried += told > before
            order[[p, p + 1]] = a, b
    assert tried > 3
