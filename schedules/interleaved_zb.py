"""Interleaved zero bubble: looped chunks, a short warm-up, and W delayed to fill what is left of the bubble."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from explorer.core.errors import Inapplicable
from explorer.core.op import F, I, Op, W
from explorer.core.placement import loop
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.registry import named


@named(
    "interleaved-zb",
    summary="interleaving with a split backward: ZB-H1's bubble over the chunks, in D activations",
    source="ScheduleInterleavedZeroBubble of torch.distributed.pipelining",
)
def interleaved_zb(devices: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Build interleaved zero bubble.

    Microbatches go in N // D rounds of equal size. The virtual order goes through the rounds; in a round chunk by
    chunk, in a chunk microbatch by microbatch (backwards: last chunk first). Along it, each device runs a warm-up,
    then F and I in turn, then the I that are left; from its r-th I on, device r adds to each I the oldest W.

    D = 2, N = 4, chunks = 2; microbatches of the second chunk in lower case::

        0: F0 F1 f0 f1 i0 w0 F2 i1 w1 F3 I0 W0 f2 I1 W1 f3 i2 w2 i3 w3 I2 W2 I3 W3
        1: F0 F1 f0 i0 f1 i1 w0 F2 I0 w1 F3 I1 W0 f2 i2 W1 f3 i3 w2 I2 w3 I3 W2 W3

    Parameters
    ----------
    chunks
        How many a device; chunk k of device r is stage kD + r.

    Raises
    ------
    Inapplicable
        If the rounds cannot be of equal size.
    """
    rounds = _rounds(devices, microbatches)
    size = microbatches // rounds

    def passes() -> Iterator[tuple[int, int]]:
        for first in range(0, microbatches, size):
            for chunk in range(chunks):
                for m in range(first, first + size):
                    yield chunk, m

    def order(rank: int) -> Iterator[Op]:
        forwards = [F(chunk * devices + rank, m) for chunk, m in passes()]
        backwards = [((chunks - 1 - chunk) * devices + rank, m) for chunk, m in passes()]
        warmup = min(len(forwards), devices - rank - 1 + (chunks - 1) * size)
        yield from forwards[:warmup]
        for step, (stage, m) in enumerate(backwards):
            if warmup + step < len(forwards):
                yield forwards[warmup + step]
            yield I(stage, m)
            if step >= rank:
                yield W(*backwards[step - rank])
        for stage, m in backwards[max(len(backwards) - rank, 0) :]:
            yield W(stage, m)

    return Schedule.from_orders(loop(devices, microbatches, chunks), map(order, range(devices)))


def _rounds(devices: int, microbatches: int) -> int:
    def rounds(n: int) -> int:
        return max(1, n // devices)

    if microbatches % rounds(microbatches):
        below = next(n for n in range(microbatches, 0, -1) if n % rounds(n) == 0)
        above = next(n for n in range(microbatches, microbatches + devices) if n % rounds(n) == 0)
        raise Inapplicable(
            f"interleaved-zb needs microbatches in {rounds(microbatches)} rounds of equal size, got {microbatches}; "
            f"{below} or {above} would do"
        )
    return rounds(microbatches)


@interleaved_zb.closed_form
def _formula(case: Case) -> Formula:
    """Idle (D-1) max(F+I-W, F, I)/chunks from N = D on; D chunk activations and a round for each further chunk."""
    d, n, v = case.devices, case.microbatches, case.count("chunks")
    if n < d:
        return Formula.inapplicable(f"needs at least as many microbatches as devices, {d}")
    f, i, w = case.forward, case.input_grad, case.weight_grad
    held = d + (v - 1) * (n // _rounds(d, n))
    return Formula.idle(
        case,
        (d - 1) * max(f + i - w, f, i) / v,
        [Fraction(held, v)] * d,
        "equal stages, no transfer time, N >= D, activations held until W",
        split=True,
    )
