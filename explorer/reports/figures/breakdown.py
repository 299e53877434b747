"""Where a schedule's makespan goes: the split that comparisons draw, as figures and as HTML."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from explorer.core.timeline import Timeline
from explorer.evaluation.results import Comparison, Evaluation
from explorer.reports import numbers
from explorer.reports.figures import caption, palette
from explorer.reports.figures.drawing import drawing


class Share(StrEnum):
    """What the devices' time is spent on."""

    COMPUTE = "compute"
    OVERHEAD = "launching and posting"
    COMMUNICATION = "exposed communication"
    EDGES = "warm-up and drain"
    BETWEEN = "idle in between"
    SYNCHRONISATION = "synchronisation"


COLOURS = {
    Share.COMPUTE: "#0072b2",
    Share.OVERHEAD: "#7a7a7a",
    Share.COMMUNICATION: palette.TRANSFER_COLOUR,
    Share.EDGES: "#c9c9c9",
    Share.BETWEEN: "#e8e8e8",
    Share.SYNCHRONISATION: palette.SYNC_COLOUR,
}
"""Of Okabe and Ito, and greys; each of another brightness than its neighbours, for print without colour."""


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
        Mean over the devices; they add up to the makespan.
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
    """The mean over all devices of what their time goes to, in the problem's unit; the sum is the makespan.

    Exposed communication is what `DeviceReport` says. Of the rest, idle time before a device's first op and after its
    last one is warm-up and drain, except where gradients are synchronised after the last op.
    """
    timeline, time = result.timeline, result.problem.time
    waits = drawing(result).waits
    totals = dict.fromkeys(Share, Fraction(0))
    for device in result.devices:
        rows = timeline.schedule.rows(device.device)
        first = int(timeline.start[rows[0]]) if rows else timeline.makespan
        last = int(timeline.free[rows[-1]]) if rows else timeline.makespan
        waited = sum(min(end, first) - start for start, end in waits.of(device.device) if start < first)
        synchronising = _after(timeline, device.device, last)
        parts = {
            Share.COMPUTE: device.busy,
            Share.OVERHEAD: device.overhead,
            Share.COMMUNICATION: device.exposed_communication,
            Share.EDGES: time.value(first - waited + timeline.makespan - last - synchronising),
            Share.SYNCHRONISATION: time.value(synchronising),
        }
        parts[Share.BETWEEN] = result.makespan - sum(parts.values())
        for share, spent in parts.items():
            totals[share] += spent
    return {share: spent / len(result.devices) for share, spent in totals.items()}


def _after(timeline: Timeline, device: int, moment: int) -> int:
    """Ticks after a moment in which a device synchronises gradients: it does so one chunk at a time."""
    spans = [(sync.start, sync.end) for sync in timeline.syncs if device in sync.devices]
    return sum(max(0, end - max(start, moment)) for start, end in spans)


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
