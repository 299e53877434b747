"""The inner loop of the evaluator, written so that it runs on lists in plain Python and on arrays under numba.

Every device works through its order until its next op waits for a product that is not there yet; it then sleeps, and
the op that makes this product wakes it. Each op is looked at once, and once more if it had to wait: linear time.

A transfer over a pair of devices that shares something with other pairs becomes a request. When all devices sleep, the
earliest request (ties by row, that is by device and place in its order) joins the queues of all resources on its path.
Queues are served in the order of joining, so its start is known at once, and what it brings comes no earlier: no later
event can make a request that should have joined before. Requests wait in a binary heap.

Where all-reduces compete with transfers, that of a chunk becomes a request once the last of its backwards ends. Its row
is the number of all ops + the chunk, so at one time it joins behind all transfers; no op waits for it.

A resource with one server has one slot: when it is free again. One with n servers serves n pairs at a time, as a pair
sends one transfer at a time: a request starts there once fewer than n other pairs have transfers that joined before and
are not done. It has n + 1 slots, of the pairs whose transfers end last. A request takes its pair's own slot, or the one
that is free first, and starts when one of the others is free: those are the n others that end last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

PRODUCT = (0, 1, 2, 1)
"""For each `Kind` the `Product` that it leaves (see `explorer.core.dataflow`); no op waits for 2, a weight gradient."""


def advance(
    offsets: Any, stage: Any, kind: Any, microbatch: Any, joined: Any, product: Any,
    route_of: Any, profile_of: Any, microbatches: int, stages: int, home: Any, chunk: Any,
    needs: Any, target: Any, message: Any,
    devices: int, chunks: int, durations: Any, overlap_numerator: int, overlap_denominator: int,
    launch: int, posting: int,
    link: Any, links: int, delay: Any, hold: Any, busy: Any, path: Any, passes: Any, slots: Any,
    ready: Any, link_free: Any, waiting: Any, stack: Any, cursor: Any, clock: Any, made: Any,
    slot_free: Any, slot_pair: Any, taken: Any, asked: Any, asking: Any,
    syncs: int, sync: Any, left: Any, done: Any, synced: Any,
    start: Any, end: Any, free: Any, sent: Any, released: Any, arrival: Any,
) -> int:  # fmt: skip
    """Run every device as far as it goes.

    All tables are flat. The last four lines are written: working space (``ready``, ``waiting``, ``slot_pair`` filled
    with -1, others with 0; ``cursor`` is the row at which each device stopped; ``asked`` and ``asking`` are the heap of
    requests, by time and row) and a timeline's columns.

    ``syncs`` is the number of chunks, or 0 where all-reduces do not compete. ``sync`` are their ticks, ``left`` the
    backwards of each chunk to come (-1 for one that is not all-reduced), ``done`` is when the last of them ended and
    ``synced`` when the all-reduce starts.

    ``passes[path[pair]:path[pair + 1]]`` are the shared resources that transfers of a directed pair pass through, and
    ``slots[r]`` to ``slots[r + 1]`` the slots of resource r.

    Returns
    -------
    int
        -1, or the first row found at fault: unknown, on the wrong device, repeated, or the first of an overlapped pair
        whose duration is no whole number of ticks. ``made`` counts the ops of each product.
    """
    awake = devices
    requests = 0
    ops = offsets[devices]
    for c in range(syncs):
        if left[c] == 0:
            asked[requests] = 0
            asking[requests] = ops + c
            requests += 1
    for d in range(devices):
        stack[d] = devices - 1 - d
        cursor[d] = offsets[d]
    while awake > 0 or requests > 0:
        if awake == 0:
            # The earliest request leaves the heap and is served.
            leave = asked[0]
            row = asking[0]
            requests -= 1
            t = asked[requests]
            r = asking[requests]
            place = 0
            below = 1
            while below < requests:
                if below + 1 < requests and (
                    asked[below + 1] < asked[below]
                    or (asked[below + 1] == asked[below] and asking[below + 1] < asking[below])
                ):
                    below += 1
                if t < asked[below] or (t == asked[below] and r < asking[below]):
                    break
                asked[place] = asked[below]
                asking[place] = asking[below]
                place = below
                below = 2 * place + 1
            asked[place] = t
            asking[place] = r
            cost = 0
            if row >= ops:
                pair = devices * devices + row - ops
            else:
                m = microbatch[row]
                s = stage[row]
                p = product[kind[row]]
                of = (route_of[m] * 2 + p) * stages + s
                to = target[of]
                pair = home[route_of[m] * stages + s] * devices + to
                cost = (profile_of[m] * chunks + message[of]) * links + link[pair]
            if link_free[pair] > leave:
                leave = link_free[pair]
            for passed in range(path[pair], path[pair + 1]):
                begin = slots[passes[passed]]
                last = slots[passes[passed] + 1]
                own = begin
                if last > begin + 1:
                    for slot in range(begin, last):
                        if slot_pair[slot] == pair:
                            own = slot
                            break
                        if slot_free[slot] < slot_free[own]:
                            own = slot
                    next_free = -1
                    for slot in range(begin, last):
                        if slot != own and (next_free < 0 or slot_free[slot] < next_free):
                            next_free = slot_free[slot]
                    if next_free > leave:
                        leave = next_free
                elif slot_free[own] > leave:
                    leave = slot_free[own]
                taken[passed] = own
            there = leave + (sync[row - ops] if row >= ops else hold[cost])
            link_free[pair] = there
            for passed in range(path[pair], path[pair + 1]):
                slot_free[taken[passed]] = there
                slot_pair[taken[passed]] = pair
            if row >= ops:
                synced[row - ops] = leave
                continue
            sent[row] = leave
            released[row] = there
            arrival[row] = leave + delay[cost]
            place = (p * stages + s) * microbatches + m
            ready[place] = leave + delay[cost]
            if waiting[to] != place:
                continue
            waiting[to] = -1
            stack[0] = to
            awake = 1
        awake -= 1
        d = stack[awake]
        i = cursor[d]
        last = offsets[d + 1]
        now = clock[d]
        first = i
        while i < last:
            # The occupancy that begins in row i: one op, or an overlapped pair.
            j = i + 1
            while j < last and joined[j]:
                j += 1
            begin = now
            missing = -1
            total = 0
            for row in range(i, j):
                m = microbatch[row]
                s = stage[row]
                k = kind[row]
                if m < 0 or m >= microbatches or s < 0 or s >= stages or k < 0 or k > 3:
                    return int(row)
                route = route_of[m]
                if home[route * stages + s] != d:
                    return int(row)
                # W waits for its I, which ran here: for the op, not for the transfer of its product.
                wanted = 3 * stages + s if k == 2 else needs[(route * 4 + k) * stages + s]
                if wanted >= 0:
                    place = wanted * microbatches + m
                    there = ready[place]
                    if there < 0:
                        missing = place
                        break
                    if there > begin:
                        begin = there
                total += durations[(profile_of[m] * chunks + chunk[route * stages + s]) * 4 + k]
            if missing >= 0:
                waiting[d] = missing
                break
            if j > i + 1:
                total *= overlap_numerator
                if total % overlap_denominator != 0:
                    return int(i)
                total //= overlap_denominator
            finish = begin + launch + total
            go_on = finish
            for row in range(i, j):
                start[row] = begin
                end[row] = finish
                sent[row] = -1
                released[row] = -1
                arrival[row] = -1
                m = microbatch[row]
                k = kind[row]
                p = product[k]
                s = stage[row]
                place = (p * stages + s) * microbatches + m
                if ready[place] >= 0:
                    return int(row)
                made[p] += 1
                there = finish
                of = (route_of[m] * 2 + p) * stages + s
                to = -1 if p == 2 else target[of]
                if to >= 0 and to != d:
                    go_on += posting
                    leave = go_on
                    pair = d * devices + to
                    cost = (profile_of[m] * chunks + message[of]) * links + link[pair]
                    if path[pair + 1] > path[pair]:
                        there = -1
                        at = requests
                        requests += 1
                        while at > 0 and (
                            leave < asked[(at - 1) // 2]
                            or (leave == asked[(at - 1) // 2] and row < asking[(at - 1) // 2])
                        ):
                            asked[at] = asked[(at - 1) // 2]
                            asking[at] = asking[(at - 1) // 2]
                            at = (at - 1) // 2
                        asked[at] = leave
                        asking[at] = row
                    else:
                        if link_free[pair] > leave:
                            leave = link_free[pair]
                        there = leave + delay[cost]
                        link_free[pair] = leave + hold[cost]
                        go_on += busy[cost]
                        sent[row] = leave
                        released[row] = leave + hold[cost]
                        arrival[row] = there
                ready[place] = there
                if k == 1:
                    ready[(3 * stages + s) * microbatches + m] = 0
                if to >= 0 and there >= 0 and waiting[to] == place:
                    waiting[to] = -1
                    stack[awake] = to
                    awake += 1
            free[i] = go_on
            for row in range(i + 1, j):
                free[row] = go_on
            now = go_on
            i = j
        # Backwards that have run tell the all-reduces that wait for them.
        for row in range(first, i if syncs > 0 else first):
            if kind[row] >= 2:
                c = chunk[route_of[microbatch[row]] * stages + stage[row]]
                left[c] -= 1
                if end[row] > done[c]:
                    done[c] = end[row]
                if left[c] == 0:
                    leave = done[c]
                    r = ops + c
                    at = requests
                    requests += 1
                    while at > 0 and (
                        leave < asked[(at - 1) // 2] or (leave == asked[(at - 1) // 2] and r < asking[(at - 1) // 2])
                    ):
                        asked[at] = asked[(at - 1) // 2]
                        asking[at] = asking[(at - 1) // 2]
                        at = (at - 1) // 2
                    asked[at] = leave
                    asking[at] = r
        cursor[d] = i
        clock[d] = now
    return -1


@cache
def compiled(loop: Callable[..., Any] = advance) -> Callable[..., Any]:
    """A loop under numba; compiled once and kept on disk where that is possible. It must not divide by zero."""
    import pickle

    import numba

    plain = cast(Callable[..., Any], numba.njit(nogil=True, error_model="numpy")(loop))
    try:
        kept = cast(Callable[..., Any], numba.njit(cache=True, nogil=True, error_model="numpy")(loop))
    except RuntimeError:  # no folder that the cache could be kept in
        return plain

    def run(*arguments: Any) -> Any:
        try:
            return kept(*arguments)
        except (OSError, EOFError, pickle.UnpicklingError):  # a full disk, a damaged cache: nothing has run yet
            return plain(*arguments)

    return run
