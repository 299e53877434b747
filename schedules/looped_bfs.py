"""Looped BFS: looped chunks, breadth first: all microbatches pass a chunk before the next chunk begins."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.core.op import B, F, Op
from explorer.core.placement import loop
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.registry import named


@named(
    "looped-bfs",
    summary="chunks dealt round and round, each run for all microbatches at once: interleaving's bubble, N activations",
    source="breadth-first pipeline parallelism, arXiv:2211.05953",
)
def looped_bfs(devices: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Build looped BFS: chunks ascending with all forwards, then chunks descending with all backwards, last one first.

    D = 2, N = 2, chunks = 2; microbatches of the second chunk in lower case::

        0: F0 F1 f0 f1 b1 b0 B1 B0
        1: F0 F1 f0 f1 b1 b0 B1 B0

    Parameters
    ----------
    chunks
        How many a device; chunk k of device r is stage kD + r.
    """

    def order(rank: int) -> Iterator[Op]:
        stages = range(rank, devices * chunks, devices)
        for stage in stages:
            for m in range(microbatches):
                yield F(stage, m)
        for stage in reversed(stages):
            for m in reversed(range(microbatches)):
                yield B(stage, m)

    return Schedule.from_orders(loop(devices, microbatches, chunks), map(order, range(devices)))


@looped_bfs.closed_form
def _formula(case: Case) -> Formula:
    """Idle (D-1)(F+B)/chunks from N = D on; every device holds all N activations."""
    d, n, v = case.devices, case.microbatches, case.count("chunks")
    if n < d:
        return Formula.inapplicable(f"needs at least as many microbatches as devices, {d}: fewer do not fill the loop")
    return Formula.idle(
        case, (d - 1) * (case.forward + case.backward) / v, [n] * d, "equal stages, no transfer time, N >= D"
    )
