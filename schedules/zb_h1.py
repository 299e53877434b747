"""ZB-H1: 1F1B with the backward split, each W delayed until the memory of 1F1B is full."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.core.op import F, I, Op, W
from explorer.core.placement import linear
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.registry import named


@named(
    "zb-h1",
    summary="1F1B with a split backward: W fills a part of the bubble, with 1F1B's peak of D activations",
    source="zero bubble pipeline parallelism, arXiv:2401.10241",
)
def zb_h1(devices: int, microbatches: int) -> Schedule:
    """Build ZB-H1: warm-up as in 1F1B; W of device s is s microbatches late.

    D = 3, N = 4::

        0: F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3
        1: F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
        2: F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3
    """
    orders = (late_weights(s, microbatches, warmup=devices - s - 1, delay=s) for s in range(devices))
    return Schedule.from_orders(linear(devices, microbatches), orders)


def late_weights(stage: int, microbatches: int, warmup: int, delay: int) -> Iterator[Op]:
    """One device's order: ``warmup`` forwards, then F and I in turn, each W ``delay`` microbatches after its I."""
    for m in range(min(warmup, microbatches)):
        yield F(stage, m)
    for m in range(microbatches):
        if warmup + m < microbatches:
            yield F(stage, warmup + m)
        yield I(stage, m)
        if m >= delay:
            yield W(stage, m - delay)
    for m in range(max(microbatches - delay, 0), microbatches):
        yield W(stage, m)


@zb_h1.closed_form
def _formula(case: Case) -> Formula:
    """Idle (D-1) max(F+I-W, F, I) from N = D on; every device holds min(N, D) until W."""
    d, n = case.devices, case.microbatches
    if n < d:
        return Formula.inapplicable(f"needs at least as many microbatches as devices, {d}")
    f, i, w = case.forward, case.input_grad, case.weight_grad
    return Formula.idle(
        case,
        (d - 1) * max(f + i - w, f, i),
        [d] * d,
        "equal stages, no transfer time, N >= D, activations held until W",
        split=True,
        span_idle=(d - 1) * max(f + i - w, i),
    )
