"""All orders of a tiny case, one by one, each run by the event-driven peer: what a proved optimum must equal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from explorer.core.placement import Placement
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from tests.peers.simulator import Case, Op, Stuck, read, simulate


class Run(NamedTuple):
    makespan: int
    span: int
    peaks: tuple[int, ...]


def interleavings(queues: tuple[tuple[Op, ...], ...]) -> Iterator[tuple[Op, ...]]:
    """Every merge of the queues that keeps the order within each."""
    if not any(queues):
        yield ()
    for number, queue in enumerate(queues):
        if queue:
            rest = (*queues[:number], queue[1:], *queues[number + 1 :])
            yield from ((queue[0], *tail) for tail in interleavings(rest))


def device_orders(placement: Placement, split: bool, device: int) -> Iterator[tuple[Op, ...]]:
    """Every order of a device's ops in which no microbatch's I and W, or B, come before what they need there.

    W is free to come anywhere behind its I, so a microbatch may have several orders of its own.
    """
    choices = []
    for m in range(placement.microbatches):
        here = [stage for stage, hop in enumerate(placement.route(m)) if hop.device == device]
        chain = [("F", stage, m) for stage in here] + [("I" if split else "B", stage, m) for stage in reversed(here)]
        if not split:
            choices.append([tuple(chain)])
            continue
        weights = tuple(("W", stage, m) for stage in here)
        merged = (
            order
            for order in interleavings((tuple(chain), *((weight,) for weight in weights)))
            if all(order.index(("I", stage, m)) < order.index(("W", stage, m)) for stage in here)
        )
        choices.append(list(merged))
    for queues in product(*choices):
        yield from interleavings(tuple(queues))


def every_run(placement: Placement, problem: Problem, split: bool) -> Iterator[Run]:
    """What each order that does not deadlock comes to."""
    nothing = Schedule.from_orders(placement, [[] for _ in range(placement.devices)])
    case: Case = read(nothing, problem)
    devices = range(placement.devices)
    for orders in product(*(list(device_orders(placement, split, device)) for device in devices)):
        try:
            result = simulate(case | {"orders": [[(op,) for op in order] for order in orders]})
        except Stuck:
            continue
        times = result["times"]
        spans = [times[order[-1]]["free"] - times[order[0]]["start"] for order in orders if order]
        yield Run(int(result["makespan"]), int(max(spans)), tuple(map(int, result["peaks"])))
