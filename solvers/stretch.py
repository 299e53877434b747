"""Long schedules from short ones: find what repeats in a short schedule, and repeat it.

With identical microbatches in order, a device's order is a sequence of classes. A *block* cuts each device's sequence
at two places between which every class stands equally often, say q times; repeated r times in its place it gives an
order of r q more microbatches. Whether that order is good, fits the memory, or runs at all, its evaluation tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from explorer.core.errors import Deadlock
from explorer.core.placement import IntArray, Placement
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import fits
from solvers.shop import Shop

TRIES = 40
"""Moments at which blocks are looked for, for each number of microbatches."""

REPEATS = 6
"""How often a block is repeated to see how long one repeat takes."""


@dataclass(frozen=True, eq=False)
class Block:
    """Where each device's order is cut, and how many microbatches lie between.

    Parameters
    ----------
    first, last
        (devices,) positions in each device's order.
    microbatches
        q.
    """

    first: IntArray
    last: IntArray
    microbatches: int


def short_case(problem: Problem, placement: Placement, microbatches: int) -> tuple[Problem, Placement] | None:
    """The same with fewer microbatches; None where microbatches differ."""
    if len(set(placement.route_of)) > 1 or len(set(problem.profile_of.tolist())) > 1:
        return None
    return (
        replace(problem, profile_of=problem.profile_of[:microbatches]),
        Placement(placement.routes, placement.route_of[:microbatches], placement.shares),
    )


def stretched(shop: Shop, short: Shop, timeline: Timeline) -> Iterator[Schedule]:
    """Schedules of a long case by repeating blocks of a short one's timeline, the most promising last.

    Parameters
    ----------
    shop, short
        The long case and the short one.
    timeline
        Of the short one.
    """
    missing = shop.placement.microbatches - short.placement.microbatches
    orders = short.conformed(timeline.schedule)
    assert orders is not None, "the timeline is one of the short case"
    starts = [timeline.start[list(timeline.schedule.rows(d))] for d in range(len(shop.space))]
    found: list[tuple[float, int, Block]] = []
    for block in _blocks(short, orders, starts, missing):
        period = _period(short, orders, block)
        if period is not None:
            found.append((period / block.microbatches, len(found), block))
    for _, _, block in sorted(found, reverse=True)[-3:]:
        yield _repeated(shop, short, orders, block, missing // block.microbatches)


def _blocks(short: Shop, orders: list[IntArray], starts: list[IntArray], missing: int) -> Iterator[Block]:
    """Blocks whose cuts on all devices are near to one moment, for each q that divides what is missing."""
    count = short.placement.microbatches
    moments = np.unique(np.concatenate(starts))
    middle = moments[len(moments) // 5 : -len(moments) // 5 or None]
    chosen = middle[:: max(1, len(middle) // TRIES)].tolist()
    for q in range(1, count // 2 + 1):
        places = [_places(short, order, q) for order in orders] if missing % q == 0 else []
        if not places or not all(map(len, places)):
            continue
        lengths = np.array([q * len(np.unique(short.class_of[order])) for order in orders], np.int64)
        known: set[tuple[int, ...]] = set()
        for moment in chosen:
            near = zip(places, starts, strict=True)
            first = tuple(int(some[np.abs(start[some] - moment).argmin()]) for some, start in near)
            if first not in known:
                known.add(first)
                begin = np.array(first, np.int64)
                yield Block(begin, begin + lengths, q)


def _places(short: Shop, order: IntArray, q: int) -> IntArray:
    """Positions in a device's order from which on the next ops are q of each class."""
    classes, which = np.unique(short.class_of[order], return_inverse=True)
    counts = np.zeros((len(order) + 1, len(classes)), np.int64)
    np.cumsum(which[:, None] == np.arange(len(classes)), axis=0, out=counts[1:])
    length = q * len(classes)
    places: IntArray = np.flatnonzero((counts[length:] - counts[:-length] == q).all(axis=1))
    return places


def _period(short: Shop, orders: list[IntArray], block: Block) -> int | None:
    """How much later all is done for one repeat more; None if the order deadlocks or does not fit."""
    ends = []
    for repeats in (REPEATS, REPEATS + 1):
        more = _longer(short, repeats * block.microbatches)
        schedule = _repeated(more, short, orders, block, repeats)
        if not fits(schedule, more.problem):
            return None
        try:
            ends.append(evaluate(schedule, more.problem).makespan)
        except Deadlock:
            return None
    return ends[1] - ends[0]


def _longer(short: Shop, more: int) -> Shop:
    """The short case with more microbatches."""
    placement, problem = short.placement, short.problem
    count = placement.microbatches + more
    longer = Placement(placement.routes, (placement.route_of[0],) * count, placement.shares)
    return Shop.of(replace(problem, profile_of=np.repeat(problem.profile_of[:1], count)), longer, short.split)


def _repeated(shop: Shop, short: Shop, orders: list[IntArray], block: Block, repeats: int) -> Schedule:
    """The long order: each device's classes with the block ``1 + repeats`` times, numbered as they come."""
    result = []
    for order, first, last in zip(orders, block.first.tolist(), block.last.tolist(), strict=True):
        classes = short.class_of[order]
        line = np.concatenate([classes[:first], np.tile(classes[first:last], 1 + repeats), classes[last:]])
        numbers = np.empty(len(line), np.int64)
        for c in np.unique(line):
            places = np.flatnonzero(line == c)
            numbers[places] = shop.first[c] + np.arange(len(places))
        result.append(numbers)
    return shop.schedule(result)
