"""Jackson's preemptive schedule: the least time in which one machine can run jobs with heads and tails.

Of the jobs whose head has passed the machine always runs the one with the longest tail, and breaks off what it runs
for a more urgent one. No schedule without interruptions is shorter (Carlier, EJOR 11, 1982).
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush


def preemptive(jobs: Iterable[tuple[int, int, int]]) -> int:
    """The length of Jackson's preemptive schedule.

    Parameters
    ----------
    jobs
        For each its head, duration and tail.

    Returns
    -------
    int
        The latest end of a job and its tail; 0 without jobs.
    """
    coming = sorted(jobs, reverse=True)
    ready: list[tuple[int, int]] = []
    now = longest = 0
    while coming or ready:
        if not ready:
            now = max(now, coming[-1][0])
        while coming and coming[-1][0] <= now:
            _, duration, tail = coming.pop()
            heappush(ready, (-tail, duration))
        tail, duration = heappop(ready)
        until = min(now + duration, coming[-1][0]) if coming else now + duration
        if until == now + duration:
            longest = max(longest, until - tail)
        else:
            heappush(ready, (tail, duration - until + now))
        now = until
    return longest
