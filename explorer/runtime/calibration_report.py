"""What a calibration says: rich tables for people, plain values for programs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from explorer.reports import numbers
from explorer.runtime.calibration import Calibration, Estimate


def as_json(found: Calibration) -> dict[str, Any]:
    """A calibration as plain JSON values; times in seconds."""
    return {
        "devices": found.schedule.devices,
        "stages": [{kind.name: _values(estimate) for kind, estimate in stage.items()} for stage in found.stages],
        "transfer": found.transfer and _values(found.transfer),
        "clocks_agree": found.aligned,
        "steps": len(found.makespans),
        "makespans": [makespan / 1e9 for makespan in found.makespans],
        "predicted_makespan": found.predicted.makespan / 1e9,
        "explained": found.explained,
    }


def tables(found: Calibration) -> RenderableType:
    """Every estimate with its spread, then how well they explain the traces."""
    table = Table(title="Measured times", title_justify="left")
    for column in ("stage", "op", "median", "middle half", "uncertainty", "samples"):
        table.add_column(column, justify="right")
    for number, stage in enumerate(found.stages):
        for kind, estimate in stage.items():
            table.add_row(str(number), kind.name, *_cells(estimate))
        table.add_section()
    if found.transfer is not None:
        table.add_row("", "transfer", *_cells(found.transfer))
    measured = float(np.median(found.makespans))
    said = (
        f"{len(found.makespans)} step(s) of {_time(measured)}; these costs predict {_time(found.predicted.makespan)}, "
        f"{found.explained:.1%} of it"
    )
    return Group(table, Text(said), *(Text(f"note: {note}", "yellow") for note in _notes(found)))


def _notes(found: Calibration) -> list[str]:
    notes = []
    if not found.aligned:
        notes.append(
            "the ranks' clocks do not agree, or not all ranks are there: waits cannot be told from work, transfers are "
            "unknown, and the makespan is that of the longest rank"
        )
    elif found.transfer is None:
        notes.append("no op was seen to wait for a message, so transfers are unknown; the costs give them no time")
    if any(estimate.waited for stage in found.stages for estimate in stage.values()):
        notes.append("marked *: every sample waited for its input, so the time is known less a transfer's only")
    return notes


def _cells(estimate: Estimate) -> tuple[str, str, str, str]:
    return (
        _time(estimate.median) + (" *" if estimate.waited else ""),
        f"{_time(estimate.low)} to {_time(estimate.high)}",
        "unknown" if estimate.uncertainty is None else _time(estimate.uncertainty),
        str(estimate.samples),
    )


def _values(estimate: Estimate) -> dict[str, Any]:
    return {
        "median": estimate.median / 1e9,
        "low": estimate.low / 1e9,
        "high": estimate.high / 1e9,
        "uncertainty": None if estimate.uncertainty is None else estimate.uncertainty / 1e9,
        "samples": estimate.samples,
        "waited": estimate.waited,
    }


def _time(nanoseconds: float) -> str:
    return numbers.time(Fraction(round(nanoseconds), 10**9), "s")
