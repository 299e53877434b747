"""Heads and tails: how early each op can start, and how long all takes from its start, whatever the order.

Both follow from precedences that hold in some best order: inputs, identical microbatches in order, and the ops that
must free memory before a forward fits; and from the time that a device needs for all that must run there before an op,
or behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from explorer.core.op import Kind
from explorer.core.placement import IntArray
from solvers.jackson import preemptive
from solvers.shop import Shop

ENERGY_UP_TO = 6000
"""Ops up to which the time that a device needs for what must come before an op is counted."""

FAR = -(2**52)
"""Before anything: where a head or tail within a span is not bound at all."""

EITHER = 3
"""For how many k `either_edges` are drawn."""

ROUNDS = 6
"""How often heads and tails are drawn from one another at most."""


class Edge(NamedTuple):
    """``start[after] >= start[before] + lag`` for ``pairs`` pairs of ops, both numbers ascending by one."""

    before: int
    after: int
    lag: int
    pairs: int


@dataclass(frozen=True, eq=False)
class Windows:
    """What is known of each op's start without a search.

    Parameters
    ----------
    shop
        The ops.
    head
        (ops,) no op starts earlier.
    tail
        (ops,) from the op's start until all is done, at least.
    """

    shop: Shop
    head: IntArray
    tail: IntArray

    @property
    def longest(self) -> int:
        """The greatest head + tail of an op: no order is done earlier."""
        return int((self.head + self.tail).max())

    def jackson(self, device: int) -> int:
        """The length of Jackson's preemptive schedule of a device."""
        ops = self.shop.on(device)
        busy = self.shop.column("busy")[ops]
        return preemptive(zip(self.head[ops].tolist(), busy.tolist(), (self.tail[ops] - busy).tolist(), strict=True))


def windows(shop: Shop, *, memory: bool = True, more: Sequence[Edge] = ()) -> Windows:
    """Heads from time 0, and tails until the makespan.

    Parameters
    ----------
    memory
        Whether to draw on the memory limit.
    more
        Further precedences that are known.
    """
    return _windows(_Graph.of(shop, [*_edges(shop, memory), *more]), np.zeros(len(shop), np.int64), _alone(shop))


def span_windows(shop: Shop) -> Iterator[Windows]:
    """For each device, heads from its first start, and tails until its last end; far below 0 where neither is bound."""
    graph = _Graph.of(shop, _edges(shop, memory=True))
    for device in range(len(shop.space)):
        head, tail = (np.full(len(shop), FAR) for _ in range(2))
        ops = shop.on(device)
        head[ops], tail[ops] = 0, shop.column("busy")[ops]
        yield _windows(graph, head, tail)


def _edges(shop: Shop, memory: bool) -> list[Edge]:
    return [*_inputs(shop), *_in_order(shop), *((*memory_edges(shop), *either_edges(shop)) if memory else ())]


def _windows(graph: _Graph, head: IntArray, tail: IntArray) -> Windows:
    shop = graph.shop
    energy = len(shop) <= ENERGY_UP_TO
    for _ in range(ROUNDS if energy else 1):
        known = head.copy(), tail.copy()
        graph.spread_heads(head, graph.reached if energy else None)
        graph.spread_tails(tail, graph.reaching if energy else None)
        if np.array_equal(head, known[0]) and np.array_equal(tail, known[1]):
            break
    return Windows(shop, head, tail)


def _alone(shop: Shop) -> IntArray:
    """(ops,) From an op's start until what its own end sets going is done, and the optimiser step behind that."""
    problem, hosts, steps = shop.problem, shop.placement.hosts, shop.problem.steps
    sync = [
        c.duration + int(problem.sync[c.sync]) + max(steps[host] for host in hosts[c.sync]) if c.sync >= 0 else 0
        for c in shop.classes
    ]
    alone = np.maximum(np.array(sync, np.int64), np.array([c.busy + steps[c.device] for c in shop.classes], np.int64))
    return alone[shop.class_of]


def _inputs(shop: Shop) -> Iterator[Edge]:
    """Ops after what makes their input, and after their device is free again if that is the same."""
    for index, one in enumerate(shop.classes):
        if one.source >= 0:
            maker = shop.classes[one.source]
            lag = maker.busy if maker.device == one.device else one.lag
            yield Edge(int(shop.first[one.source]), int(shop.first[index]), lag, len(shop.members[one.group]))


def _in_order(shop: Shop) -> Iterator[Edge]:
    """Identical microbatches in their order."""
    for index, one in enumerate(shop.classes):
        first, count = int(shop.first[index]), len(shop.members[one.group])
        yield Edge(first, first + 1, one.busy, count - 1)


def memory_edges(shop: Shop) -> Iterator[Edge]:
    """The ops that must have freed something before a forward fits; see docs/optimising.md.

    Let h be what F(s', i) holds, summed over the stages s' <= s of the same route on the same device. Until I or B of
    (s, i) ends, none of these stages has freed anything of the microbatches from i on; so with the first k for which
    ``(k + 1) h > space``, F(s, i+k) must wait for it. Until W(s, i) ends, stage s still holds its rest r of each of
    them: the same for ``k r + held > space``.
    """
    number = {(c.group, c.kind, c.stage): index for index, c in enumerate(shop.classes)}
    for index, one in enumerate(shop.classes):
        if one.kind is Kind.F:
            continue
        route = shop.placement.route(shop.members[one.group][0])
        forward = number[one.group, Kind.F, one.stage]
        before = [s for s in range(one.stage + 1) if route[s].device == one.device]
        together = sum(shop.classes[number[one.group, Kind.F, s]].held for s in before)
        space, count = int(shop.space[one.device]), len(shop.members[one.group])
        if one.kind is Kind.W:
            behind = (space - shop.classes[forward].held) // one.freed + 1 if one.freed else count
        else:
            behind = space // together if together else count
        if 1 <= behind < count:
            yield Edge(int(shop.first[index]), int(shop.first[forward]) + behind, one.duration, count - behind)


def either_edges(shop: Shop) -> Iterator[Edge]:
    """``start[F(s, i+k)] >= start[F(s, i)] + lag``, whichever op frees the memory; on devices with one stage.

    Before the n-th F some j of the I and ``w = ceil((n a - space - j a1) / a2) <= j`` of the W must have ended, where a
    is what F holds, a1 what I and a2 what W frees. The j-th I ends its round trip or more after the j-th F, and so does
    the w-th W; and F are at least their length apart. So for each k the least lag over all j holds. Only those k are
    given whose lag for each microbatch is greatest.
    """
    for classes in shop.of_device:
        by_kind = {shop.classes[c].kind: c for c in classes}
        if len(classes) != 3 or Kind.W not in by_kind:
            continue
        forward, first, last = (by_kind[kind] for kind in (Kind.F, Kind.I, Kind.W))
        held, by_first = shop.classes[forward].held, shop.classes[first].freed
        by_last = held - by_first
        space, count = int(shop.space[shop.classes[forward].device]), len(shop.members[0])
        if not by_first or not by_last or held * count <= space or space < held:
            continue
        trips = [round_trip(shop, c) + shop.classes[c].duration for c in (first, last)]
        gap, n = shop.classes[forward].busy, min(count, 3 * space // held + 3)
        choices = [(j, -((space + j * by_first - n * held) // by_last)) for j in range(n)]
        found = []
        for k in range(1, n):
            lags = [
                max(
                    (x - (n - k)) * gap + trip if x >= n - k else 0
                    for x, trip in ((j, trips[0]), (max(w, 0), trips[1]))
                )
                for j, w in choices
                if w <= j
            ]
            if min(lags, default=0) > k * gap:
                found.append((min(lags) / k, k, min(lags)))
        for _, k, lag in sorted(found)[-EITHER:]:
            yield Edge(int(shop.first[forward]), int(shop.first[forward]) + k, lag, count - k)


def round_trip(shop: Shop, index: int) -> int:
    """From the start of a stage's forward to that of its op in a class, at least, for the same microbatch."""
    ticks, at, stage = 0, index, shop.classes[index].stage
    while not (shop.classes[at].kind is Kind.F and shop.classes[at].stage == stage):
        source = shop.classes[at].source
        maker = shop.classes[source]
        ticks += maker.busy if maker.device == shop.classes[at].device else shop.classes[at].lag
        at = source
    return ticks


@dataclass(frozen=True, eq=False)
class _Graph:
    """Precedences op by op, and an order in which every op comes behind those that it waits for."""

    shop: Shop
    order: Sequence[int]
    before: Sequence[Sequence[tuple[int, int]]]
    behind: Sequence[Sequence[tuple[int, int]]]

    @cached_property
    def reached(self) -> IntArray:
        """(ops, classes) How many of each class must come before an op."""
        return self._reach(forwards=True)

    @cached_property
    def reaching(self) -> IntArray:
        """(ops, classes) How many of each class, counted from their end, must come behind an op."""
        return self._reach(forwards=False)

    @classmethod
    def of(cls, shop: Shop, edges: Sequence[Edge]) -> _Graph:
        before: list[list[tuple[int, int]]] = [[] for _ in range(len(shop))]
        behind: list[list[tuple[int, int]]] = [[] for _ in range(len(shop))]
        for edge in edges:
            for i in range(edge.pairs):
                before[edge.after + i].append((edge.before + i, edge.lag))
                behind[edge.before + i].append((edge.after + i, edge.lag))
        missing = [len(some) for some in before]
        order = [n for n, count in enumerate(missing) if not count]
        for n in order:
            for m, _ in behind[n]:
                missing[m] -= 1
                if not missing[m]:
                    order.append(m)
        assert len(order) == len(shop), "a placement whose microbatches fit one by one has no cycle"
        return cls(shop, order, before, behind)

    def _reach(self, *, forwards: bool) -> IntArray:
        shop = self.shop
        rank = np.arange(len(shop)) - shop.first[shop.class_of]
        counts = np.diff(shop.first)[shop.class_of]
        own = (rank + 1 if forwards else counts - rank).tolist()
        near = self.before if forwards else self.behind
        reached = np.zeros((len(shop), len(shop.classes)), np.int64)
        class_of = shop.class_of.tolist()
        for n in self.order if forwards else reversed(self.order):
            row = reached[n]
            for m, _ in near[n]:
                np.maximum(row, reached[m], out=row)
                row[class_of[m]] = max(row[class_of[m]], own[m])
        return reached

    def spread_heads(self, head: IntArray, reached: IntArray | None) -> None:
        """Raise heads by what must come before."""
        sets = None if reached is None else _Sets(self.shop, reached, forwards=True)
        for n in self.order:
            value = max([int(head[n]), *(int(head[m]) + lag for m, lag in self.before[n])])
            if sets is not None:
                value = max(value, sets.need(n, head))
            head[n] = value

    def spread_tails(self, tail: IntArray, reached: IntArray | None) -> None:
        """Raise tails by what must come behind."""
        sets = None if reached is None else _Sets(self.shop, reached, forwards=False)
        for n in reversed(self.order):
            value = max([int(tail[n]), *(int(tail[m]) + lag for m, lag in self.behind[n])])
            if sets is not None:
                value = max(value, sets.need(n, tail))
            tail[n] = value


class _Sets:
    """What must run on an op's own device before it, or behind it."""

    def __init__(self, shop: Shop, reached: IntArray, *, forwards: bool) -> None:
        self.shop = shop
        self.reached = reached
        self.forwards = forwards
        self.busy = shop.column("busy")
        self.device = shop.column("device").tolist()

    def need(self, n: int, known: IntArray) -> int:
        """The least head of an op (or tail), given those of what must come before it (or behind it).

        For each moment, all of the set that cannot start before it (of which the last one cannot end later before the
        end) must run from then on, one after the other.
        """
        shop, some = self.shop, []
        for c in shop.of_device[self.device[n]]:
            count = int(self.reached[n, c])
            if count:
                first, last = int(shop.first[c]), int(shop.first[c + 1])
                some.append(np.arange(first, first + count) if self.forwards else np.arange(last - count, last))
        if not some:
            return FAR
        ops = np.concatenate(some)
        busy = self.busy[ops]
        moments = known[ops] if self.forwards else known[ops] - busy
        order = np.argsort(-moments)
        whole = int((moments[order] + np.cumsum(busy[order])).max())
        return whole if self.forwards else whole + int(self.busy[n])
