"""Measured and predicted values side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median


@dataclass(frozen=True)
class Row:
    """One published value and ours.

    Parameters
    ----------
    what
        What was measured.
    measured, predicted
        In the unit of the table.
    group
        Rows of one group differ only in their schedule.
    fitted
        Whether it was used to fit a number; such rows are not judged.
    """

    what: str
    measured: float
    predicted: float
    group: str = ""
    fitted: bool = False

    @property
    def error(self) -> float:
        """Of the prediction, relative to the measurement."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Study:
    """A published table and what we predict for it.

    Parameters
    ----------
    name, source, unit
        What it is, from where, and in which unit.
    rows
        Its values.
    assumed
        What was fitted on what, and what the source does not say.
    """

    name: str
    source: str
    unit: str
    rows: tuple[Row, ...]
    assumed: str

    @property
    def judged(self) -> tuple[Row, ...]:
        """Rows that nothing was fitted on."""
        return tuple(row for row in self.rows if not row.fitted)

    @property
    def errors(self) -> tuple[float, float, float]:
        """Mean, median and worst of the absolute errors of the judged rows."""
        sizes = [abs(row.error) for row in self.judged]
        return mean(sizes), median(sizes), max(sizes)

    @property
    def rank_correlation(self) -> float | None:
        """Kendall's tau-a within groups, over all pairs of schedules; None where no group has two."""
        signs = [
            _sign(one.measured - other.measured) * _sign(one.predicted - other.predicted)
            for group in {row.group for row in self.judged if row.group}
            for one, other in _pairs([row for row in self.judged if row.group == group])
        ]
        return mean(signs) if signs else None


def _pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    return [(one, other) for place, one in enumerate(rows) for other in rows[place + 1 :]]


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
