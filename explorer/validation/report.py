"""Predictions beside measurements, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from explorer.validation.results import Study


def table(study: Study) -> RenderableType:
    """One study, row by row, with its errors."""
    shown = Table(title=f"{study.name}, {study.unit} ({study.source})", title_justify="left")
    shown.add_column("what")
    for column in ("measured", "predicted", "error"):
        shown.add_column(column, justify="right")
    for row in study.rows:
        error = f"{100 * row.error:+.1f}%" + (" fitted" if row.fitted else "")
        shown.add_row(row.what, f"{row.measured:.4g}", f"{row.predicted:.4g}", error)
    return Group(shown, Text(study.assumed, "dim"))


def summary(studies: Sequence[Study]) -> Table:
    """A row for every study: errors of what nothing was fitted on."""
    shown = Table(title="Absolute errors of the rows that nothing was fitted on", title_justify="left")
    for column in ("study", "rows", "mean", "median", "worst", "rank correlation"):
        shown.add_column(column, justify="left" if column == "study" else "right")
    for study in studies:
        rank = study.rank_correlation
        shown.add_row(
            study.name,
            str(len(study.judged)),
            *(f"{100 * error:.1f}%" for error in study.errors),
            "-" if rank is None else f"{rank:.2f}",
        )
    return shown


def contract(studies: Sequence[Study]) -> dict[str, Any]:
    """The same for programs."""
    return {"studies": [_study(study) for study in studies]}


def _study(study: Study) -> dict[str, Any]:
    mean, median, worst = study.errors
    return {
        "name": study.name,
        "source": study.source,
        "unit": study.unit,
        "assumed": study.assumed,
        "mean_error": mean,
        "median_error": median,
        "worst_error": worst,
        "rank_correlation": study.rank_correlation,
        "rows": [
            {"what": row.what, "measured": row.measured, "predicted": row.predicted, "error": row.error,
             "fitted": row.fitted}
            for row in study.rows
        ],
    }  # fmt: skip
