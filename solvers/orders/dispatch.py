"""List scheduling: whenever a device is free it runs, of the ops that may run, the first by priority."""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable

from solvers.orders.tables import NEVER


@register_jitable
def admissible(t: Any, d: int, c: int, nxt: Any, memory: int, low: int) -> bool:
    """Whether the next forward of class c leaves every microbatch under way on device d a way to its end.

    The oldest must be able to run all its forwards here within what is free; the next one within that and what the
    oldest then gives back; and so on. Microbatches below ``low`` have left the device.
    """
    left = t.space[d] - memory - t.held[c]
    if left < 0:
        return False
    if t.nested[d] == 0:
        return True
    back = 0
    for m in range(low, len(t.group_of)):
        g, r = t.group_of[m], t.rank_of[m]
        holds, needs, begun = 0, 0, False
        for i in range(t.start_of[d], t.start_of[d + 1]):
            k = t.classes[i]
            if t.group[k] != g:
                continue
            done = nxt[k] > r or (k == c and nxt[k] == r)
            if t.forward[k]:
                begun = begun or done
                if done:
                    holds += t.held[k]
                else:
                    needs += t.held[k]
            elif done:
                holds -= t.freed[k]
        if not begun:
            break
        if needs > left + back:
            return False
        back += holds
    return True


@register_jitable
def _arrival(t: Any, d: int, now: int, c: int, pace: int, state: Any) -> int:
    """When the input of the next op of class c is on device d; `NEVER` if that is not known, or no op is left."""
    nxt, _, _, begun, there = state
    if t.first[c] + nxt[c] == t.first[c + 1]:
        return NEVER
    s = t.source[c]
    if s < 0:
        return -(-now // pace) * pace
    of = t.first[s] + nxt[c]
    if begun[of] < 0:
        return NEVER
    if t.device[s] == d:
        return begun[of] + t.duration[s]  # type: ignore[no-any-return]
    return there[of]  # type: ignore[no-any-return]


@register_jitable
def _choice(t: Any, d: int, now: int, priority: Any, cap: Any, patience: int, pace: int, state: Any) -> tuple[int, int]:
    """The class of which device d should run the next op now, -1 for none, and else when to ask again."""
    nxt, memory, low, _, _ = state
    best, again = -1, NEVER
    for i in range(t.start_of[d], t.start_of[d + 1]):
        c = t.classes[i]
        arrival = _arrival(t, d, now, c, pace, state)
        if arrival == NEVER:
            continue
        if t.forward[c] and nxt[c] - nxt[t.paired[c]] >= cap[c]:
            continue
        if t.forward[c] and not admissible(t, d, c, nxt, memory[d], low[d]):
            continue
        if arrival > now:
            again = min(again, arrival)
        elif best < 0 or priority[t.first[c] + nxt[c]] < priority[t.first[best] + nxt[best]]:
            best = c
    if best < 0 or patience == 0 or again > now + t.busy[best] * patience // 100:
        return best, again
    for i in range(t.start_of[d], t.start_of[d + 1]):
        c = t.classes[i]
        arrival = _arrival(t, d, now, c, pace, state)
        if arrival != again or priority[t.first[c] + nxt[c]] > priority[t.first[best] + nxt[best]]:
            continue
        if not t.forward[c]:
            return -1, again
        if nxt[c] - nxt[t.paired[c]] < cap[c] and admissible(t, d, c, nxt, memory[d], low[d]):
            return -1, again
    return best, again


@register_jitable
def _advanced(t: Any, d: int, nxt: Any, low: int) -> int:
    """The first microbatch that has not left device d, which ``low`` had not."""
    while low < len(t.group_of):
        g, r = t.group_of[low], t.rank_of[low]
        for i in range(t.start_of[d], t.start_of[d + 1]):
            k = t.classes[i]
            if t.group[k] == g and nxt[k] <= r:
                return low
        low += 1
    return low


def dispatch(
    t: Any, priority: Any, cap: Any, patience: int, pace: int, order: Any, begun: Any, there: Any, work: Any
) -> int:
    """Run all ops.

    Parameters
    ----------
    t
        Tables.
    priority
        (ops,) smaller goes first.
    cap
        (classes,) for F, how many may be ahead of the I or B of their stage.
    patience
        A device waits for an op of better priority that arrives within ``patience`` percent of what it would run.
    pace
        The forwards of a route's first stage start at its multiples only; 1 for any time.
    order
        (ops,) written: each device's op numbers, one device behind the other.
    begun, there
        (ops,) -1, written: starts, and when products are there for other devices.
    work
        Zeros: next op of each class (classes,); memory, idle from, wake, position, low (devices,); link free from
        (devices * devices,).

    Returns
    -------
    int
        When the last device is done; -1 if nothing can run any more.
    """
    nxt, memory, idle_from, wake, position, low, link_free = work
    devices = len(t.space)
    at = 0
    for d in range(devices):
        position[d] = at
        for i in range(t.start_of[d], t.start_of[d + 1]):
            at += t.first[t.classes[i] + 1] - t.first[t.classes[i]]
    latest, left = 0, len(order)
    while left > 0:
        d = 0
        for other in range(1, devices):
            if wake[other] < wake[d]:
                d = other
        now = wake[d]
        if now >= NEVER:
            return -1
        c, again = _choice(t, d, now, priority, cap, patience, pace, (nxt, memory, low, begun, there))
        if c < 0:
            wake[d] = again
            continue
        n = t.first[c] + nxt[c]
        order[position[d]] = n
        position[d] += 1
        left -= 1
        nxt[c] += 1
        begun[n] = now
        memory[d] += t.held[c] - t.freed[c]
        idle_from[d] = now + t.busy[c]
        latest = max(latest, idle_from[d])
        wake[d] = idle_from[d]
        if t.target[c] >= 0:
            to = t.target[c]
            pair = d * devices + to
            sent = max(now + t.offset[c], link_free[pair])
            link_free[pair] = sent + t.hold[c]
            there[n] = sent + t.delay[c]
            wake[to] = min(wake[to], max(there[n], idle_from[to]))
        if t.nested[d]:
            low[d] = _advanced(t, d, nxt, low[d])
    return int(latest)
