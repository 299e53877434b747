"""The loop of simulated annealing over orders."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from solvers.orders.earliest import earliest


@register_jitable
def shift(t: Any, class_of: Any, order: Any, memory: Any, d: int, p: int, q: int) -> bool:
    """Move the op at position p of device d's order to position q, if its class, its input and the memory allow it.

    ``memory`` (ops,) is what the device holds before each position; it is kept up.
    """
    n = order[p]
    c = class_of[n]
    step = 1 if q > p else -1
    i = p
    while i != q:
        m = order[i + step]
        k = class_of[m]
        later, earlier = (m, n) if step > 0 else (n, m)
        s = t.source[class_of[later]]
        if k == c or (s >= 0 and t.first[s] + later - t.first[class_of[later]] == earlier):
            return False
        i += step
    first, last = min(p, q), max(p, q)
    _rotate(order, p, q, step)
    held = memory[first]
    for i in range(first, last + 1):
        k = class_of[order[i]]
        if held + t.held[k] > t.space[d]:
            _rotate(order, q, p, -step)
            _recount(t, class_of, order, memory, first, i)
            return False
        memory[i] = held
        held += t.held[k] - t.freed[k]
    return True


@register_jitable
def _rotate(order: Any, p: int, q: int, step: int) -> None:
    n = order[p]
    i = p
    while i != q:
        order[i] = order[i + step]
        i += step
    order[q] = n


@register_jitable
def _recount(t: Any, class_of: Any, order: Any, memory: Any, first: int, last: int) -> None:
    held = memory[first]
    for i in range(first, last):
        memory[i] = held
        k = class_of[order[i]]
        held += t.held[k] - t.freed[k]
    memory[last] = held


def anneal(
    t: Any, class_of: Any, order: Any, ends: Any, best: Any, memory: Any, work: Any, columns: Any,
    moves: int, warm: float, cold: float, spans: bool, random: Any,
) -> int:  # fmt: skip
    """Simulated annealing over orders: a critical op is moved past its neighbours, or any op past some.

    Parameters
    ----------
    order, best
        (ops,) both start as the known order; ``best`` ends as the best found.
    memory
        (ops,) what each device holds before each position.
    work, columns
        Working space and columns (begun, there, why, path) of `earliest`.
    moves
        How many moves are tried.
    warm, cold
        The first and the last temperature, in ticks.
    spans
        Whether the longest device span counts, not the makespan.
    random
        A generator of random numbers.
    """
    begun, there, why, path = columns
    position = np.empty(len(order), np.int64)
    now = earliest(t, class_of, order, ends, begun, there, why, work)
    if spans:
        now = _span(t, class_of, order, ends, begun)
    record = now
    fresh = True
    found = 0
    for move in range(moves):
        if fresh:
            for p in range(len(order)):
                position[order[p]] = p
            found = _critical(t, class_of, order, ends, begun, why, path)
            fresh = False
        if found > 0 and random.random() < 0.8:
            n = path[int(random.random() * found)]
        else:
            n = int(random.random() * len(order))
        d = t.device[class_of[n]]
        p = position[n]
        reach = 1 if random.random() < 0.5 else 1 + int(random.random() * 11)
        q = p - reach if random.random() < 0.7 else p + reach
        if q < ends[d] or q >= ends[d + 1] or not shift(t, class_of, order, memory, d, p, q):
            continue
        then = earliest(t, class_of, order, ends, begun, there, why, work)
        if then >= 0 and spans:
            then = _span(t, class_of, order, ends, begun)
        heat = warm * (cold / warm) ** (move / moves)
        if then >= 0 and (then <= now or random.random() < np.exp((now - then) / heat)):
            now, fresh = then, True
            if now < record:
                record = now
                for i in range(len(order)):
                    best[i] = order[i]
        else:
            shift(t, class_of, order, memory, d, q, p)
    return int(record)


@register_jitable
def _span(t: Any, class_of: Any, order: Any, ends: Any, begun: Any) -> int:
    longest = 0
    for d in range(len(t.space)):
        if ends[d + 1] > ends[d]:
            first, last = order[ends[d]], order[ends[d + 1] - 1]
            longest = max(longest, begun[last] + t.busy[class_of[last]] - begun[first])
    return longest


@register_jitable
def _critical(t: Any, class_of: Any, order: Any, ends: Any, begun: Any, why: Any, path: Any) -> int:
    """Write the ops of a chain that makes the makespan into ``path``; how many."""
    n, latest = -1, -1
    for d in range(len(t.space)):
        if ends[d + 1] > ends[d]:
            last = order[ends[d + 1] - 1]
            end = begun[last] + t.busy[class_of[last]] + t.steps[d]
            if end > latest:
                n, latest = last, end
    found = 0
    while n >= 0:
        path[found] = n
        found += 1
        n = why[n]
    return found
