"""ZB-H2: a warm-up twice that of 1F1B, so that with equal costs no device ever waits between its first and last op."""

from __future__ import annotations

from fractions import Fraction

from explorer.core.placement import linear
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.registry import named
from schedules.zb_h1 import late_weights


@named(
    "zb-h2",
    summary="split backward and a double warm-up: no bubble inside a device's span, for 2D-1 activations",
    source="zero bubble pipeline parallelism, arXiv:2401.10241",
)
def zb_h2(devices: int, microbatches: int) -> Schedule:
    """Build ZB-H2: warm-up as in eager 1F1B; W of device s is 2s microbatches late.

    D = 3, N = 6::

        0: F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5
        1: F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5
        2: F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5
    """
    orders = (late_weights(s, microbatches, warmup=2 * (devices - s - 1), delay=2 * s) for s in range(devices))
    return Schedule.from_orders(linear(devices, microbatches), orders)


@zb_h2.closed_form
def _formula(case: Case) -> Formula:
    """Idle (D-1) max(F+I-2W, F, I-F) from N = 2D-1 on, a span's (D-1) max(F+I-2W, I-F, 0); 2D-1 activations."""
    d, n = case.devices, case.microbatches
    if n < 2 * d - 1:
        return Formula.inapplicable(f"needs at least 2D-1 = {2 * d - 1} microbatches")
    f, i, w = case.forward, case.input_grad, case.weight_grad
    return Formula.idle(
        case,
        (d - 1) * max(f + i - 2 * w, f, i - f),
        [2 * d - 1] * d,
        "equal stages, no transfer time, N >= 2D-1, activations held until W",
        split=True,
        span_idle=(d - 1) * max(f + i - 2 * w, i - f, Fraction(0)),
    )
