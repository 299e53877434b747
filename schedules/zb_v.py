"""ZB-V: two chunks a device, down and back up, split backward: no bubble inside a device's span at 1F1B's memory."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import repeat

from explorer.core.op import F, I, Op, W
from explorer.core.placement import vee
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.registry import named


@named(
    "zb-v",
    summary="V placement and split backward: no bubble inside a device's span at equal costs, D activations",
    source="zero bubble pipeline parallelism, arXiv:2401.10241; order of torch.distributed.pipelining",
)
def zb_v(devices: int, microbatches: int) -> Schedule:
    """Build ZB-V.

    The order is made for at least 2D-1 microbatches; with fewer, the ops of those that do not exist are left out.

    D = 2, N = 4; the second chunk in lower case::

        0: F0 F1 F2 f0 i0 w0 f1 i1 w1 F3 I0 W0 f2 i2 w2 I1 W1 f3 i3 w3 I2 W2 I3 W3
        1: F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 F3 I1 W1 f3 i2 w2 I2 i3 I3 W2 w3 W3
    """
    full = max(microbatches, 2 * devices - 1)

    def order(rank: int) -> Iterator[Op]:
        down, up = rank, 2 * devices - 1 - rank
        F0, I0, W0 = (map(op, repeat(down), range(full)) for op in (F, I, W))
        F1, I1, W1 = (map(op, repeat(up), range(full)) for op in (F, I, W))
        first = 2 * (devices - rank) - 1
        for _ in range(first):
            yield next(F0)
        for _ in range(rank):
            yield from (next(F1), next(F0))
        for _ in range(devices - rank):
            yield from (next(F1), next(I1), next(W1))
        ahead = first + rank - devices
        for _ in range(full - first - rank):
            yield from (next(F0), next(I0), next(W0), next(F1), next(I1), next(W1))
        for _ in range(ahead):
            yield from (next(I0), next(W0), next(F1), next(I1), next(W1))
        for _ in range(rank):
            yield from (next(I0), next(I1))
        for _ in range(devices - rank):
            yield from (next(I0), next(W0))
        yield from W1
        yield from W0

    orders = ([op for op in order(rank) if op.microbatch < microbatches] for rank in range(devices))
    return Schedule.from_orders(vee(devices, microbatches), orders)


@zb_v.closed_form
def _formula(case: Case) -> Formula:
    """Idle (D-1)F/2, none in a span, where F = I = W and N >= 2D-1; every device holds D activations."""
    d, n = case.devices, case.microbatches
    if n < 2 * d - 1:
        return Formula.inapplicable(f"needs at least 2D-1 = {2 * d - 1} microbatches")
    if not case.forward == case.input_grad == case.weight_grad:
        return Formula(
            "time only where F, I and W take equally long; activations held until W",
            peak_activations=(Fraction(d),) * d,
        )
    return Formula.idle(
        case,
        (d - 1) * case.forward / 2,
        [d] * d,
        "equal stages, no transfer time, F = I = W, N >= 2D-1, activations held until W",
        split=True,
        span_idle=Fraction(0),
    )


@zb_v.caution
def _caution(case: Case) -> str | None:
    full = 2 * case.devices - 1
    if case.microbatches >= full:
        return None
    return f"zb-v fills {case.devices} devices from {full} microbatches on, got {case.microbatches}"
