"""Orders by a rule: every device runs, of the ops that are ready, the first by priority. Not a schedule itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any

from explorer.core.dataflow import need, product
from explorer.core.errors import Inapplicable
from explorer.core.op import F, Kind, Op
from explorer.core.placement import Placement
from explorer.core.schedule import Schedule

Priority = Callable[[Op], Any]
"""What sorts ops, smallest first; it must tell apart the ops that a device can have ready at the same time."""


def greedy(placement: Placement, priority: Priority, limit: int | None = None) -> Schedule:
    """Order forwards and fused backwards by list scheduling in slots of equal length, one op a device and slot.

    No device stays idle in a slot in which it has an op that may run. The slots serve to find the order only.

    Parameters
    ----------
    placement
        Where the ops run.
    priority
        Which of the ready ops goes first.
    limit
        How many microbatches' activations, counted by stage, a device may hold; any number by default.

    Raises
    ------
    Inapplicable
        If with this limit no op can run any more.
    """
    devices = [[hop.device for hop in route] for route in placement.routes]
    ready: list[dict[Kind, list[tuple[Any, Op]]]] = [{Kind.F: [], Kind.B: []} for _ in range(placement.devices)]
    orders: list[list[Op]] = [[] for _ in range(placement.devices)]
    held = [0] * placement.devices

    def release(op: Op) -> None:
        device = devices[placement.route_of[op.microbatch]][op.stage]
        heappush(ready[device][op.kind], (priority(op), op))

    def choose(device: int) -> Op | None:
        forwards, backwards = ready[device].values()
        full = limit is not None and held[device] >= limit
        heaps = [heap for heap in ([backwards] if full else [forwards, backwards]) if heap]
        return heappop(min(heaps, key=lambda heap: heap[0]))[1] if heaps else None

    for m in range(placement.microbatches):
        release(F(0, m))
    left = 2 * sum(len(placement.route(m)) for m in range(placement.microbatches))
    while left:
        slot = [(device, op) for device in range(placement.devices) if (op := choose(device))]
        if not slot:
            raise Inapplicable(f"with at most {limit} activations a device this order gets stuck")
        for device, op in slot:
            orders[device].append(op)
            held[device] += 1 if op.kind is Kind.F else -1
        for _, op in slot:
            for follower in _followers(op, len(placement.route(op.microbatch))):
                release(follower)
        left -= len(slot)
    return Schedule.from_orders(placement, orders)


def _followers(op: Op, stages: int) -> Iterator[Op]:
    """The ops that wait for this one alone."""
    for kind in (Kind.F, Kind.B):
        for stage in (op.stage - 1, op.stage, op.stage + 1):
            if 0 <= stage < stages and need(kind, stage, stages) == (product(op.kind), op.stage):
                yield Op(stage, kind, op.microbatch)
