"""Lower bounds that need heads and tails, hence a table of all ops; each says what it reasons from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from explorer.core.op import Kind
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from solvers.bounds import Bound, simple_bounds, span_bound
from solvers.crossing import crossings
from solvers.jackson import preemptive
from solvers.scope import Objective
from solvers.shop import Shop
from solvers.windows import Windows, memory_edges, round_trip, span_windows, windows


def bounds(problem: Problem, placement: Placement, split: bool, objective: Objective) -> tuple[Bound, ...]:
    """All bounds of an objective that are known without a search, the simplest first."""
    shop = Shop.of(problem, placement, split)
    if objective is Objective.SPAN:
        return (span_bound(problem, placement, split), *spans(span_windows(shop)))
    known = windows(shop)
    return (*simple_bounds(problem, placement, split), *makespans(known), *crossings(known))


def makespans(known: Windows) -> Iterator[Bound]:
    """Bounds of the makespan.

    ==============  ====================================================================================
    throughput      At a stage at most k microbatches are between their forward and the op that frees their memory, and
                    each takes R from one to the other: the i-th forward comes R or more after that of i - k.
    link capacity   Jackson's schedule of the transfers of a link, each with the head and tail of its op.
    waiting         The longest chain of inputs, of identical microbatches in order, of forwards that wait for memory,
                    and of what a device must do in between.
    Jackson         Jackson's preemptive schedule of a device, with such heads and tails.
    ==============  ====================================================================================
    """
    shop = known.shop
    yield from throughputs(shop)
    yield from links(known)
    yield Bound(known.longest, "longest chain of inputs, memory waits and the work of devices in between")
    for device in range(len(shop.space)):
        if len(shop.on(device)):
            yield Bound(
                known.jackson(device), f"Jackson's preemptive schedule of device {device}, with heads and tails"
            )


def spans(known: Iterable[Windows]) -> Iterator[Bound]:
    """Bounds of the longest device span: as for the makespan, from a device's first start to its last end."""
    for device, one in enumerate(known):
        ops = one.shop.on(device)
        if len(ops):
            chain = int((one.head[ops] + one.tail[ops]).max())
            yield Bound(chain, f"longest chain within the span of device {device}")
            yield Bound(one.jackson(device), f"Jackson's preemptive schedule of device {device} within its span")


def links(known: Windows) -> Iterator[Bound]:
    """No link is done with its transfers earlier."""
    shop = known.shop
    jobs: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    consumer = {c.source: index for index, c in enumerate(shop.classes) if c.kind is not Kind.W and c.source >= 0}
    for index, one in enumerate(shop.classes):
        if one.hold:
            receiver = consumer[index]
            for i in range(len(shop.members[one.group])):
                head = int(known.head[shop.first[index] + i]) + one.offset
                tail = one.delay + int(known.tail[shop.first[receiver] + i]) - one.hold
                jobs.setdefault((one.device, one.target), []).append((head, one.hold, tail))
    for (source, target), some in jobs.items():
        if min(tail for _, _, tail in some) >= 0:
            yield Bound(preemptive(some), f"capacity of the link from device {source} to {target}")


def throughputs(shop: Shop) -> Iterator[Bound]:
    """What follows from the number of microbatches that the memory allows in flight at a stage."""
    alone = windows(shop, memory=False)
    for edge in memory_edges(shop):
        freeing, forward = (shop.classes[int(shop.class_of[n])] for n in (edge.before, edge.after))
        first = int(shop.first[shop.class_of[edge.after]])
        count, in_flight = len(shop.members[forward.group]), edge.after - first
        if in_flight < 1:
            continue
        trip = round_trip(shop, int(shop.class_of[edge.before])) + freeing.duration
        waits, rest = divmod(count - 1, in_flight)
        ticks = int(alone.head[first]) + rest * forward.busy + waits * trip + int(alone.tail[first + count - 1])
        yield Bound(
            ticks,
            f"memory of device {forward.device}: {in_flight} in flight at stage {forward.stage}, each from its F "
            f"to the end of its {freeing.kind.name}",
        )
