"""GPipe: all forwards, then all backwards."""

from __future__ import annotations

from collections.abc import Iterator

from explorer.core.op import B, F, Op
from explorer.core.placement import linear
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.registry import named


@named(
    "gpipe",
    summary="all forwards, then all backwards: every microbatch's activation is held at once",
    source="GPipe, arXiv:1811.06965",
)
def gpipe(devices: int, microbatches: int, reverse: bool = False) -> Schedule:
    """Build GPipe.

    D = 3, N = 4::

        0: F0 F1 F2 F3 B0 B1 B2 B3
        1: F0 F1 F2 F3 B0 B1 B2 B3
        2: F0 F1 F2 F3 B0 B1 B2 B3

    Parameters
    ----------
    reverse
        Run the backwards last microbatch first, as a stack of saved activations would; the time is the same.
    """

    def order(rank: int) -> Iterator[Op]:
        there = range(microbatches)
        yield from (F(rank, m) for m in there)
        yield from (B(rank, m) for m in (reversed(there) if reverse else there))

    return Schedule.from_orders(linear(devices, microbatches), map(order, range(devices)))


@gpipe.closed_form
def _formula(case: Case) -> Formula:
    """Idle (D-1)(F+B); every device holds N activations."""
    d, n = case.devices, case.microbatches
    return Formula.idle(case, (d - 1) * (case.forward + case.backward), [n] * d, "equal stages, no transfer time")
