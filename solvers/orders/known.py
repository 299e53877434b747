"""Orders of a shop's ops: list schedules by several rules, and annealing of what is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from explorer.core.op import Kind
from explorer.core.placement import IntArray
from explorer.core.schedule import Schedule
from explorer.evaluation.kernel import compiled
from solvers.orders.anneal import anneal
from solvers.orders.dispatch import dispatch
from solvers.orders.tables import NEVER, Tables, tables
from solvers.shop import Shop

COMPILE_FROM = 3000
"""Ops started by list schedules, in all, from which loading the compiled loop is quicker than running the plain one."""

OP_MOVES = 50_000_000
"""Moves of annealing between two looks at what it found, times the ops."""


@dataclass(frozen=True)
class Rule:
    """How a list schedule chooses.

    Parameters
    ----------
    deep_forwards
        Whether of the forwards on a device those of later stages go first.
    ahead
        How many forwards of a stage may be ahead of their backwards: ``depth`` (as many as stages follow it), ``twice``
        (twice as many, less one) or ``any``.
    patience
        See `dispatch`.
    paced
        Whether microbatches enter only at multiples of the time in which a forward and a backward that go in opposite
        directions come two devices closer. Where they do, all cross without waiting as soon as two do.
    """

    deep_forwards: bool
    ahead: str
    patience: int
    paced: bool = False

    @property
    def name(self) -> str:
        """Such as ``list schedule (depth ahead, patience 50)``."""
        deep = "late forwards first, " if self.deep_forwards else ""
        paced = ", paced" if self.paced else ""
        return f"list schedule ({deep}{self.ahead} ahead, patience {self.patience}{paced})"


RULES = tuple(
    Rule(deep, ahead, patience, paced)
    for deep, ahead, patience, paced in product((True, False), ("depth", "twice", "any"), (0, 50, 100), (False, True))
)


def listed(shop: Shop) -> Iterator[tuple[str, Schedule]]:
    """List schedules by all rules that come to an end; each fits the memory limit."""
    fast = len(shop) * len(RULES) >= COMPILE_FROM
    table = tables(shop, fast)
    nested = any(tables(shop, False).nested)
    for rule in RULES:
        if rule.deep_forwards and not nested:
            continue
        pace = _pace(shop) if rule.paced else 1
        orders = _list(shop, table, _priority(shop, rule), _caps(shop, rule), rule.patience, pace, fast)
        if orders is not None:
            yield rule.name, shop.schedule(orders)


def followed(shop: Shop, orders: list[IntArray]) -> Schedule | None:
    """A list schedule by the places that ops have in other orders, which need not fit the memory limit."""
    fast = len(shop) >= COMPILE_FROM
    priority = np.empty(len(shop), np.int64)
    for order in orders:
        priority[order] = np.arange(len(order))
    uncapped = np.full(len(shop.classes), NEVER, np.int64)
    found = _list(shop, tables(shop, fast), priority, uncapped, 100, 1, fast)
    return None if found is None else shop.schedule(found)


def _priority(shop: Shop, rule: Rule) -> IntArray:
    """(ops,) Backwards first, then forwards, then weight gradients; in each the first microbatch, then by stage."""
    kind = np.array([1, 0, 2, 0], np.int64)[shop.column("kind")]
    rank = np.arange(len(shop)) - shop.first[shop.class_of]
    stage, stages = shop.column("stage"), shop.placement.stages
    if rule.deep_forwards:
        stage = stages - 1 - stage
    priority: IntArray = (kind * (len(shop) + 1) + rank) * stages + stage
    return priority


def _caps(shop: Shop, rule: Rule) -> IntArray:
    """(classes,) How far forwards may be ahead."""
    lengths = [len(shop.placement.route(members[0])) for members in shop.members]
    depth = np.array([lengths[c.group] - c.stage for c in shop.classes], np.int64)
    return {"depth": depth, "twice": 2 * depth - 1, "any": np.full(len(depth), NEVER, np.int64)}[rule.ahead]


def _pace(shop: Shop) -> int:
    """The greatest sum of the times in which a forward and a backward go from one device to the next."""
    sent = [c for c in shop.classes if c.target >= 0]
    ways = {
        kind: max((c.offset + c.delay for c in sent if (c.kind is Kind.F) is kind), default=0) for kind in (True, False)
    }
    return max(1, ways[True] + ways[False])


def _list(
    shop: Shop, table: Tables, priority: IntArray, caps: IntArray, patience: int, pace: int, fast: bool
) -> list[IntArray] | None:
    devices, ops = len(shop.space), len(shop)

    def filled(size: int, value: int) -> IntArray | list[int]:
        return np.full(size, value, np.int64) if fast else [value] * size

    work = (
        filled(len(shop.classes), 0), *(filled(devices, 0) for _ in range(5)), filled(devices * devices, 0)
    )  # fmt: skip
    order = filled(ops, 0)
    loop = compiled(dispatch) if fast else dispatch
    ranks = priority if fast else priority.tolist()
    caps_ = caps if fast else caps.tolist()
    if loop(table, ranks, caps_, patience, pace, order, filled(ops, -1), filled(ops, -1), work) < 0:
        return None
    return _cut(shop, np.asarray(order, np.int64))


def _ends(shop: Shop) -> IntArray:
    """(devices + 1,) Where each device's ops begin and end."""
    counts = np.bincount(shop.column("device"), minlength=len(shop.space))
    return np.concatenate(([0], np.cumsum(counts)))


def _cut(shop: Shop, order: IntArray) -> list[IntArray]:
    ends = _ends(shop)
    return [order[start:end] for start, end in pairwise(ends.tolist())]


def annealing(
    shop: Shop, orders: list[IntArray], moves: int, *, heat: float, spans: bool, seed: int
) -> Iterator[Schedule | None]:
    """The best of the orders that simulated annealing passes through.

    Parameters
    ----------
    orders
        Where it begins; they fit the memory limit, and so do all others that it passes through.
    moves
        How many moves it tries; it looks at none that breaks the limit or an input on the same device.
    heat
        The first temperature, in mean durations of an op; the last one is a twentieth.
    spans
        Whether the longest device span is to be short, not the makespan.
    seed
        Of its random choices.

    Yields
    ------
    Schedule or None
        Several times a second: the best so far, if there is a better one than before. The first is no worse than the
        orders given.
    """
    ends, order = _ends(shop), np.concatenate(orders)
    change = (shop.column("held") - shop.column("freed"))[order]
    total = np.cumsum(change) - change
    memory = total - np.repeat(total[np.minimum(ends[:-1], len(order) - 1)], np.diff(ends))
    best, record = order.copy(), -1
    table, loop, random = tables(shop, True), compiled(anneal), np.random.default_rng(seed)
    warm = max(heat * float(shop.column("busy").mean()), 1e-3)
    step = 1 + OP_MOVES // len(order)
    for move in range(0, moves, step):
        found = loop(
            table, shop.class_of, order, ends, best, record, memory,
            move, min(move + step, moves), moves, warm, warm / 20, spans, random,
        )  # fmt: skip
        yield shop.schedule(_cut(shop, best)) if found != record else None
        record = found
