"""DualPipeV: DualPipe cut in half: the two directions become the two legs of a V, so weights are held once."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from explorer.core.errors import Inapplicable
from explorer.core.op import Entry
from explorer.core.placement import vee
from explorer.core.schedule import Schedule
from schedules.dualpipe import Lane, overlapped_formula, overlapped_order
from schedules.formula import Case, Formula
from schedules.registry import named


@named(
    "dualpipe-v",
    summary="DualPipe's overlapped pairs on a V placement: no second copy of the weights",
    source="cut-in-half of Sea AI Lab; deepseek-ai/DualPipe, ScheduleDualPipeV of torch.distributed.pipelining",
)
def dualpipe_v(devices: int, microbatches: int) -> Schedule:
    """Build DualPipeV.

    D = 2, N = 4; the second chunk in lower case, ``f1&B0`` is an overlapped pair::

        0: F0 F1 F2 f0 i0 w0 f1 F3&b1 f2&B0 b2 f3&B1 b3 I2 W2 I3 W3
        1: F0 f0 F1 f1 F2 b0 f2&B0 F3&b1 f3&B1 b2 B2 i3 I3 w3 W3

    Raises
    ------
    Inapplicable
        If N < 2D.
    """
    if microbatches < 2 * devices:
        raise Inapplicable(
            f"dualpipe-v on {devices} devices needs at least {2 * devices} microbatches, got {microbatches}; "
            f"{2 * devices} would do"
        )
    every = range(microbatches)

    def order(rank: int) -> Iterator[Entry]:
        return overlapped_order(devices, rank, Lane(rank, every), Lane(2 * devices - 1 - rank, every))

    return Schedule.from_orders(vee(devices, microbatches), map(order, range(devices)))


@dualpipe_v.closed_form
def _formula(case: Case) -> Formula:
    """Bubble (D-1)(F&B + B - 3W)/2 beside the last device's work, for F = I >= W; D+1/2 activations everywhere."""
    return overlapped_formula(case, case.devices, case.microbatches, Fraction(1, 2))
