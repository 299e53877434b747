"""Which schedule to take, and why: sentences that follow from a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from explorer.evaluation.reasons import Share
from explorer.evaluation.results import Comparison, Evaluation
from explorer.reports import numbers
from explorer.reports.figures import breakdown
from explorer.reports.reasons import why

CLOSE = Fraction(2, 100)
"""A lead below this is called close: costs are rarely known better."""


@dataclass(frozen=True)
class Recommendation:
    """A choice with its reasons.

    Parameters
    ----------
    chosen
        None where no schedule stays within the memory.
    reasons
        Sentences.
    """

    chosen: Evaluation | None
    reasons: tuple[str, ...]


def recommend(result: Comparison) -> Recommendation:
    """The fastest schedule that flushes and fits; of equally fast ones the one with the lowest peak of memory."""
    fitting = sorted(result.fitting, key=lambda row: (row.makespan, _peak(row)))
    if not fitting:
        return Recommendation(None, tuple(_nothing_fits(result)))
    chosen, others = fitting[0], fitting[1:]
    return Recommendation(
        chosen,
        (
            *_lead(chosen, others),
            *filter(None, [why(Comparison(tuple(fitting)))]),
            *_too_large(chosen, result),
            _losses(chosen),
            *_bound(chosen),
            *_other_levels(chosen, result),
            *_asynchronous(chosen, result),
        ),
    )


def _peak(row: Evaluation) -> Fraction:
    return breakdown.bar(row).peak


def _shown_peak(row: Evaluation) -> str:
    return breakdown.peak(_peak(row), row.problem.bytes is not None)


def _time(row: Evaluation, value: Fraction) -> str:
    return numbers.time(value, row.problem.time.unit)


def _nothing_fits(result: Comparison) -> Iterator[str]:
    if not result.rows:
        yield "None of the schedules flushes, so that makespans do not compare."
        return
    least = min(result.rows, key=_peak)
    yield f"None of the {len(result.rows)} schedules fits into the memory."
    yield f"{least.name} needs the least, {_shown_peak(least)} on its fullest device."


def _lead(chosen: Evaluation, others: list[Evaluation]) -> Iterator[str]:
    limited = chosen.fits_memory is not None
    of = f"of the {len(others) + 1} schedules" + (" that fit into the memory" if limited else " compared")
    equal = [row for row in others if row.makespan == chosen.makespan]
    slower = next((row for row in others if row.makespan > chosen.makespan), None)
    yield f"Makespan {_time(chosen, chosen.makespan)}: the fastest {of}."
    if equal:
        names = ", ".join(row.name for row in equal)
        less = [row for row in equal if _peak(row) == _peak(chosen)]
        yield f"As fast: {names}; none of them needs less memory" + (
            f", and {', '.join(row.name for row in less)} as much." if less else "."
        )
    if slower is not None and chosen.makespan:
        lead = slower.makespan / chosen.makespan - 1
        close = (
            f": closer than {numbers.percent(CLOSE)}, so look at how well the costs are known" if lead < CLOSE else ""
        )
        yield f"The next, {slower.name}, takes {numbers.percent(lead)} longer{close}."


def _too_large(chosen: Evaluation, result: Comparison) -> Iterator[str]:
    faster = [row for row in result.rows if row.fits_memory is False and row.makespan < chosen.makespan]
    if faster:
        said = ", ".join(f"{row.name} ({_time(row, row.makespan)}, {_shown_peak(row)})" for row in faster)
        yield f"Faster but too large for the memory: {said}."


def _losses(chosen: Evaluation) -> str:
    shares = breakdown.shares(chosen)
    lost = {share: time for share, time in shares.items() if share is not Share.WORK and time}
    if not lost:
        return "No device is ever idle."
    worst = max(lost, key=lambda share: lost[share])
    parts = ", ".join(f"{share} {numbers.percent(time / chosen.makespan)}" for share, time in shares.items() if time)
    return f"Of its devices' time, on average: {parts}. The largest loss is {worst}."


def _bound(chosen: Evaluation) -> Iterator[str]:
    if chosen.bound is None or chosen.gap is None:
        return
    bound = _time(chosen, chosen.problem.time.value(chosen.bound.ticks))
    if chosen.gap == 0:
        yield f"No order of its ops on its placement is faster: the lower bound is {bound} too ({chosen.bound.reason})."
    else:
        yield (
            f"No order of its ops on its placement takes less than {bound} ({chosen.bound.reason}); at most "
            f"{numbers.percent(chosen.gap)} of its makespan could be gained by another order."
        )


def _other_levels(chosen: Evaluation, result: Comparison) -> Iterator[str]:
    """Whether a coarser level would have chosen otherwise among those that fit."""
    for level, words in (("formula", "closed formulas"), ("table", "the idealised table")):
        spans = {row.name: span for row in result.fitting if (span := row.levels[level].makespan) is not None}
        if chosen.name in spans and min(spans.values()) < spans[chosen.name]:
            best = min(spans, key=lambda name: spans[name])
            yield f"By {words} alone the choice would be {best}."


def _asynchronous(chosen: Evaluation, result: Comparison) -> Iterator[str]:
    rate = chosen.throughput or Fraction(0)
    fitting = [row for row in result.asynchronous if row.fits_memory is not False]
    gains = {row.name: row.throughput / rate - 1 for row in fitting if row.throughput and rate}
    more = [f"{name} ({numbers.percent(gain)} more)" for name, gain in gains.items() if gain > 0]
    if more:
        yield f"More microbatches in the same time without a flush, at the price of stale weights: {', '.join(more)}."
