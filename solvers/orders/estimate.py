"""How long an order's timeline would be after one move, told from the times around the ops that it moves.

As in job-shop search (Taillard, ORSA Journal on Computing 6, 1994; Balas and Vazacopoulos, Management Science 44,
1998): of what is outside of the move, heads and tails are taken as they are. How an op's tail follows is written out
in both loops: to hand all tables to a function for each op takes many times as long as what it does.
"""

from __future__ import annotations

from typing import Any

from numba.extending import register_jitable


@register_jitable
def tails(t: Any, class_of: Any, order: Any, ends: Any, position: Any, sequence: Any, tail: Any) -> None:
    """Write into ``tail`` (ops,) how long after each op's start all is done, waits for links left out.

    Parameters
    ----------
    position
        (ops,) of each op in ``order``.
    sequence
        (ops,) all ops, none before one that it waits for.
    """
    for i in range(len(sequence) - 1, -1, -1):
        n = sequence[i]
        c = class_of[n]
        p, d = position[n], t.device[c]
        behind = tail[order[p + 1]] if p + 1 < ends[d + 1] else t.steps[d]
        ticks = max(t.busy[c] + behind, t.closing[c])
        if t.user[c] >= 0:
            ticks = max(ticks, t.offset[c] + t.delay[c] + tail[t.first[t.user[c]] + n - t.first[c]])
        tail[n] = ticks


@register_jitable
def estimate(
    t: Any, class_of: Any, order: Any, ends: Any, d: int, first: int, last: int, times: Any, tail: Any, head: Any
) -> int:
    """The longest way through an op at positions ``first`` to ``last``, between which device d's order was changed.

    Exact for two neighbours that change places, but for waits for links. With more ops in between the times of what
    they wait for, or what waits for them, may change too.

    Parameters
    ----------
    times, tail
        Of the order before the change.
    head
        (ops,) working space.
    """
    begun, there = times[0], times[1]
    now = 0
    if first > ends[d]:
        before = order[first - 1]
        now = begun[before] + t.busy[class_of[before]]
    for p in range(first, last + 1):
        n = order[p]
        c = class_of[n]
        s = t.source[c]
        if s >= 0:
            of = t.first[s] + n - t.first[c]
            now = max(now, begun[of] + t.duration[s] if t.device[s] == d else there[of])
        head[p] = now
        now += t.busy[c]
    longest = 0
    behind = tail[order[last + 1]] if last + 1 < ends[d + 1] else t.steps[d]
    for p in range(last, first - 1, -1):
        n = order[p]
        c = class_of[n]
        behind = max(t.busy[c] + behind, t.closing[c])
        if t.user[c] >= 0:
            behind = max(behind, t.offset[c] + t.delay[c] + tail[t.first[t.user[c]] + n - t.first[c]])
        longest = max(longest, head[p] + behind)
    return int(longest)
