"""Why the fastest schedule of a comparison is the fastest, in a sentence."""

from __future__ import annotations

from fractions import Fraction

from explorer.evaluation.reasons import shares
from explorer.evaluation.results import Comparison, Evaluation
from explorer.reports import numbers

TOLD = Fraction(1, 20)
"""Differences below this part of the largest one are left out."""


def why(result: Comparison) -> str | None:
    """The parts of the devices' mean time by which the fastest differs from the next; None where there is no next."""
    if not result.rows:
        return None
    best = result.rows[0]
    second = next((row for row in result.rows if row.makespan > best.makespan), None)
    if second is None:
        return None
    unit = best.problem.time.unit
    ours, theirs = (_in_units(row) for row in (best, second))
    gains = {share: theirs[share] - ours[share] for share in ours}
    least = TOLD * max(map(abs, gains.values()))
    ordered = sorted((share for share in gains if abs(gains[share]) > least), key=lambda share: -gains[share])
    less = [f"{numbers.time(gains[share], unit)} less {share}" for share in ordered if gains[share] > 0]
    more = [f"{numbers.time(-gains[share], unit)} more {share}" for share in reversed(ordered) if gains[share] < 0]
    lead = numbers.time(second.makespan - best.makespan, unit)
    said = f"{best.name} takes {lead} less than {second.name}: on average a device has {_joined(less)}"
    said += f", but {_joined(more)}" if more else ""
    held = [max(device.peak_activations for device in row.devices) for row in (best, second)]
    if held[0] == held[1]:
        return f"{said}; both hold {numbers.plain(held[0])} activations at their peaks."
    return f"{said}; it holds {numbers.plain(held[0])} activations at its peak, {second.name} {numbers.plain(held[1])}."


def _in_units(row: Evaluation) -> dict[str, Fraction]:
    tick = row.problem.time.tick
    return {str(share): mean * tick for share, mean in shares(row.timeline, row.problem).items()}


def _joined(parts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
