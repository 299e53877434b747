"""The loop of simulated annealing over orders."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from solvers.orders.earliest import earliest, no_times, working_space
from solvers.orders.estimate import estimate, tails

CRITICAL = 0.3
"""How often a critical op is moved; else any."""

NEXT, FAR = 0.5, 11
"""How often an op changes places with its neighbour; else it goes up to so many places further."""


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
    t: Any, class_of: Any, order: Any, ends: Any, best: Any, record: int, memory: Any,
    move: int, until: int, moves: int, warm: float, cold: float, spans: bool, random: Any,
) -> int:  # fmt: skip
    """Simulated annealing over orders: a critical op, or any op, is moved past some of its neighbours.

    How long an order would take is estimated before it is evaluated; most moves end there.

    Parameters
    ----------
    order, best
        (ops,) the present order, and the best found; both are written.
    record
        Ticks of the best; -1 if the present order is the first.
    memory
        (ops,) what each device holds before each position.
    move, until, moves
        From which move to which of how many this call tries.
    warm, cold
        The first and the last temperature, in ticks.
    spans
        Whether the longest device span counts, not the makespan. There is no estimate of it.
    random
        A generator of random numbers.

    Returns
    -------
    int
        Ticks of the best.
    """
    ops, work = len(order), working_space(len(t.space))
    times, others = no_times(ops), no_times(ops)
    position, path = np.empty(ops, np.int64), np.empty(ops, np.int64)
    tail, head = np.empty(ops, np.int64), np.empty(ops, np.int64)
    for p in range(ops):
        position[order[p]] = p
    now = _value(t, class_of, order, ends, times, work, spans)
    if record < 0:
        record = now
    fresh = True
    found = 0
    for tried in range(move, until):
        if fresh:
            found = _critical(t, class_of, order, ends, times, path)
            tails(t, class_of, order, ends, position, times[3], tail)
            fresh = False
        n = path[int(random.random() * found)] if random.random() < CRITICAL else int(random.random() * ops)
        d, p = t.device[class_of[n]], position[n]
        reach = 1 if random.random() < NEXT else 1 + int(random.random() * FAR)
        q = p - reach if random.random() < 0.5 else p + reach
        if q < ends[d] or q >= ends[d + 1] or not shift(t, class_of, order, memory, d, p, q):
            continue
        first, last = min(p, q), max(p, q)
        most = now - warm * (cold / warm) ** (tried / moves) * np.log(1 - random.random())
        then = -1
        if spans or estimate(t, class_of, order, ends, d, first, last, times, tail, head) <= most:
            then = _value(t, class_of, order, ends, others, work, spans)
        if then < 0 or then > most:
            shift(t, class_of, order, memory, d, q, p)
            continue
        now, fresh = then, True
        times, others = others, times
        for i in range(first, last + 1):
            position[order[i]] = i
        if now < record:
            record = now
            best[:] = order
    return int(record)


@register_jitable
def _value(t: Any, class_of: Any, order: Any, ends: Any, times: Any, work: Any, spans: bool) -> int:
    makespan = earliest(t, class_of, order, ends, times, work)
    return _span(t, class_of, order, ends, times[0]) if spans and makespan >= 0 else makespan


@register_jitable
def _span(t: Any, class_of: Any, order: Any, ends: Any, begun: Any) -> int:
    longest = 0
    for d in range(len(t.space)):
        if ends[d + 1] > ends[d]:
            first, last = order[ends[d]], order[ends[d + 1] - 1]
            longest = max(longest, begun[last] + t.busy[class_of[last]] - begun[first])
    return longest


@register_jitable
def _critical(t: Any, class_of: Any, order: Any, ends: Any, times: Any, path: Any) -> int:
    """Write the ops of a chain that makes the makespan into ``path``; how many."""
    begun, why = times[0], times[2]
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
