"""1F1B: a few forwards, then one forward and one backward in turn, then the backwards that are left."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.core.op import B, F, Op
from explorer.core.placement import linear
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.registry import named


@named(
    "1f1b",
    summary="one forward, one backward in turn: GPipe's bubble, at most D activations",
    source="PipeDream-flush, arXiv:2006.09503; DAPPLE, arXiv:2007.01045",
)
def one_f_one_b(devices: int, microbatches: int) -> Schedule:
    """Build 1F1B.

    D = 3, N = 4::

        0: F0 F1 F2 B0 F3 B1 B2 B3
        1: F0 F1 B0 F2 B1 F3 B2 B3
        2: F0 B0 F1 B1 F2 B2 F3 B3
    """
    orders = (alternating(rank, devices - rank - 1, microbatches) for rank in range(devices))
    return Schedule.from_orders(linear(devices, microbatches), orders)


def alternating(stage: int, warmup: int, microbatches: int) -> Iterator[Op]:
    """A stage's order: at most ``warmup`` forwards, then a forward and a backward in turn, then what is left."""
    warmup = min(warmup, microbatches)
    for m in range(warmup):
        yield F(stage, m)
    for m in range(microbatches - warmup):
        yield F(stage, warmup + m)
        yield B(stage, m)
    for m in range(microbatches - warmup, microbatches):
        yield B(stage, m)


@one_f_one_b.closed_form
def _formula(case: Case) -> Formula:
    """Idle (D-1)(F+B); device s holds min(N, D-s) activations."""
    d, n = case.devices, case.microbatches
    return Formula.idle(
        case,
        (d - 1) * (case.forward + case.backward),
        [min(n, d - s) for s in range(d)],
        "equal stages, no transfer time",
    )
