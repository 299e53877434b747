"""The loop that finds an order's earliest timeline, as the search needs it: fast, and with what each op waited for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable


@register_jitable
def no_times(ops: int) -> Any:
    """(begun, there, why, sequence), each (ops,).

    Starts, arrivals at other devices, the op whose end or product each op waited for (-1 for none), and all ops in an
    order in which none is before one that it waits for.
    """
    return np.empty(ops, np.int64), np.empty(ops, np.int64), np.empty(ops, np.int64), np.empty(ops, np.int64)


@register_jitable
def working_space(devices: int) -> Any:
    """(position, idle_from, stack, waiting, link_free): the last (devices * devices,), others (devices,)."""
    return (
        np.empty(devices, np.int64), np.empty(devices, np.int64), np.empty(devices, np.int64),
        np.empty(devices, np.int64), np.empty(devices * devices, np.int64),
    )  # fmt: skip


@register_jitable
def earliest(t: Any, class_of: Any, order: Any, ends: Any, times: Any, work: Any) -> int:
    """The earliest timeline of an order; when all is done, -1 if the order deadlocks.

    Parameters
    ----------
    t, class_of, order
        Tables, each op's class, and the devices' orders, one behind the other.
    ends
        (devices + 1,) where each device's order begins and ends.
    times
        As `no_times` makes it; written.
    work
        As `working_space` makes it.
    """
    begun, there, why, sequence = times
    position, idle_from, stack, waiting, link_free = work
    devices = len(t.space)
    for n in range(len(order)):
        begun[n] = -1
    for i in range(devices * devices):
        link_free[i] = 0
    for d in range(devices):
        position[d] = ends[d]
        idle_from[d] = 0
        waiting[d] = -1
        stack[d] = d
    awake, left = devices, len(order)
    while awake > 0:
        awake -= 1
        d = stack[awake]
        now, p = idle_from[d], position[d]
        last = order[p - 1] if p > ends[d] else -1
        while p < ends[d + 1]:
            n = order[p]
            c = class_of[n]
            s = t.source[c]
            start, cause = now, last
            if s >= 0:
                of = t.first[s] + n - t.first[c]
                if begun[of] < 0:
                    waiting[d] = of
                    break
                arrival = begun[of] + t.duration[s] if t.device[s] == d else there[of]
                if arrival > start:
                    start, cause = arrival, of
            begun[n] = start
            why[n] = cause
            sequence[len(order) - left] = n
            now = start + t.busy[c]
            last = n
            if t.target[c] >= 0:
                to = t.target[c]
                pair = d * devices + to
                sent = max(start + t.offset[c], link_free[pair])
                link_free[pair] = sent + t.hold[c]
                there[n] = sent + t.delay[c]
                if waiting[to] == n:
                    waiting[to] = -1
                    stack[awake] = to
                    awake += 1
            left -= 1
            p += 1
        position[d] = p
        idle_from[d] = now
    if left > 0:
        return -1
    makespan = 0
    for d in range(devices):
        makespan = max(makespan, idle_from[d] + t.steps[d])
    return int(max(makespan, synchronised(t, begun, len(t.sync_ticks))))


@register_jitable
def synchronised(t: Any, begun: Any, chunks: int) -> int:
    """When the last gradient synchronisation, and the optimiser step behind it, is done.

    One at a time on a device, in order of readiness, ties by chunk.
    """
    owed = 0
    for c in range(chunks):
        owed += t.sync_ticks[c] > 0
    if owed == 0:
        return 0
    ready = np.full(chunks, -1, np.int64)
    for k in range(len(t.sync)):
        if t.sync[k] >= 0:
            last = t.first[k + 1] - 1
            ready[t.sync[k]] = max(ready[t.sync[k]], begun[last] + t.duration[k])
    idle_from = np.zeros(len(t.space), np.int64)
    latest = 0
    for _ in range(owed):
        chunk = -1
        for c in range(chunks):
            if ready[c] >= 0 and (chunk < 0 or ready[c] < ready[chunk]):
                chunk = c
        start = ready[chunk]
        for i in range(t.host_from[chunk], t.host_from[chunk + 1]):
            start = max(start, idle_from[t.hosts[i]])
        for i in range(t.host_from[chunk], t.host_from[chunk + 1]):
            idle_from[t.hosts[i]] = start + t.sync_ticks[chunk]
            latest = max(latest, idle_from[t.hosts[i]] + t.steps[t.hosts[i]])
        ready[chunk] = -1
    return latest
