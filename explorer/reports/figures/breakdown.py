"""Where a schedule's makespan goes: the split that comparisons draw, as figures and as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from explorer.evaluation import reasons
from explorer.evaluation.reasons import Share
from explorer.evaluation.results import Comparison, Evaluation
from explorer.reports import numbers
from explorer.reports.figures import caption, palette

COLOURS = {
    Share.WORK: "#0072b2",
    Share.OVERHEAD: "#7a7a7a",
    Share.COMMUNICATION: palette.TRANSFER_COLOUR,
    Share.WARM_UP: "#a9a9a9",
    Share.STEADY_STATE: "#e8e8e8",
    Share.DRAIN: "#c9c9c9",
    Share.SYNCHRONISATION: palette.SYNC_COLOUR,
    Share.OPTIMIZER: palette.STEP_COLOUR,
}
"""Of Okabe and Ito, and greys; each of another brightness than its neighbours, for print without colour. In this order
they stand in a bar."""


@dataclass(frozen=True)
class Bar:
    """One schedule of a comparison.

    Parameters
    ----------
    name
        The schedule's.
    makespan
        In the problem's unit of time.
    shares
        Means over the devices; they add up to the makespan.
    peak
        The highest peak of memory of any device: bytes where they are modelled, else device units of activation.
    fits
        Whether it stays within the limit and the devices' memory, as far as there are any.
    """

    name: str
    makespan: Fraction
    shares: dict[Share, Fraction]
    peak: Fraction
    fits: bool


def bar(result: Evaluation) -> Bar:
    """One schedule's bar."""
    peaks = [d.peak_activations if d.peak_memory is None else Fraction(d.peak_memory) for d in result.devices]
    return Bar(result.name, result.makespan, shares(result), max(peaks), result.fits_memory is not False)


def shares(result: Evaluation) -> dict[Share, Fraction]:
    """What the devices' time goes to, in the problem's unit and in a bar's order; see `explorer.evaluation.reasons`."""
    found = reasons.shares(result.timeline, result.problem)
    return {share: found[share] * result.problem.time.tick for share in COLOURS}


def bars(result: Comparison) -> list[Bar]:
    """The bars of all schedules that flush, in the comparison's order."""
    return [bar(row) for row in result.rows]


def memory_limit(result: Comparison) -> float | None:
    """What peaks must stay under, in the bars' measure, where it is the same for all devices; None otherwise."""
    problem = result.rows[0].problem
    limit = problem.memory_limit
    if limit is not None and limit.in_bytes == (problem.bytes is not None):
        most = set(limit.per_device)
        return float(most.pop() * (1 if limit.in_bytes else problem.stash.unit)) if len(most) == 1 else None
    return None if problem.device_memory is None else float(problem.device_memory)


def title(result: Comparison) -> str:
    """What is compared."""
    shown = result.rows[0].parameters
    return f"{len(result.rows)} schedules, {shown['devices']} devices, {shown['microbatches']} microbatches"


def costs(result: Comparison) -> str:
    """Costs and mode, and how to read the bars."""
    return f"{caption.costs(result.rows[0])} Bars: mean over the devices."


def peak(value: Fraction, in_bytes: bool) -> str:
    """A peak of memory as people read it."""
    return numbers.size(int(value)) if in_bytes else numbers.plain(value, 4)
