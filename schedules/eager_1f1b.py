"""Eager 1F1B: 1F1B with twice the warm-up, so that transfers have a step of slack in the steady state."""

from __future__ import annotations

from explorer.core.placement import linear
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.one_f_one_b import alternating
from schedules.registry import named


@named(
    "eager-1f1b",
    summary="1F1B with twice the warm-up: hides transfers shorter than a forward, for up to 2D-1 activations",
    source="arXiv:2211.05322",
)
def eager_1f1b(devices: int, microbatches: int) -> Schedule:
    """Build eager 1F1B.

    D = 3, N = 6::

        0: F0 F1 F2 F3 F4 B0 F5 B1 B2 B3 B4 B5
        1: F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5
        2: F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5
    """
    orders = (alternating(rank, 2 * (devices - rank - 1), microbatches) for rank in range(devices))
    return Schedule.from_orders(linear(devices, microbatches), orders)


@eager_1f1b.closed_form
def _formula(case: Case) -> Formula:
    """Idle (D-1)(F+B); device s holds min(N, 2(D-s)-1) activations."""
    d, n = case.devices, case.microbatches
    return Formula.idle(
        case,
        (d - 1) * (case.forward + case.backward),
        [min(n, 2 * (d - s) - 1) for s in range(d)],
        "equal stages, no transfer time",
    )
