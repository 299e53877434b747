"""Who wins where: a sweep's results over two of its axes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from explorer.core.errors import UsageError, nearest
from explorer.core.units import DIMENSIONS
from explorer.sweep.costs import ABSTRACT, COMMON, MODELLED

AXES = ("schedule", "devices", "microbatches", *ABSTRACT, *MODELLED, *COMMON)
LEVELS = {"formula": "formula_makespan", "table": "table_makespan", "execution": "makespan"}
"""For each level the column of its makespan."""
COARSER = ("formula", "table")


@dataclass(frozen=True)
class Cell:
    """One problem of a map.

    Parameters
    ----------
    winners
        For each level the fastest schedules, more than one where they are equal; none where the level says nothing.
    margin
        How much longer the next one takes at the chosen level, as a fraction; None where there is none.
    differing
        For each coarser level the share of pairs of schedules, of those that both levels rank, which are the other way
        round in execution or equal in only one of them; None where there is no pair.
    overturned
        The coarser levels of whose schedules another one wins in execution.
    """

    winners: Mapping[str, tuple[str, ...]]
    margin: float | None
    differing: Mapping[str, float | None]
    overturned: frozenset[str]


@dataclass(frozen=True)
class Map:
    """A grid of cells; a place without one had no schedule that fits.

    Parameters
    ----------
    x, y
        Names of the axes.
    columns, rows
        Their values, ascending.
    cells
        By (column value, row value).
    level
        By which winners and margins are taken.
    """

    x: str
    y: str
    columns: tuple[Any, ...]
    rows: tuple[Any, ...]
    cells: Mapping[tuple[Any, Any], Cell]
    level: str


def winners(
    table: pd.DataFrame, x: str, y: str, fixed: Mapping[str, str] | None = None, level: str = "execution"
) -> Map:
    """Lay a sweep out over two axes.

    Only schedules that flush and meet the memory limit take part.

    Parameters
    ----------
    table
        As `explorer.sweep.frame.load` gives it.
    x, y
        Two axes of the sweep other than the schedule.
    fixed
        Values of other axes, as text; an axis with several values must be among them.

    Raises
    ------
    UsageError
        If an axis or a value does not exist, another axis has several values, or nothing could be evaluated.
    """
    known = [axis for axis in AXES if axis in table.columns and axis != "schedule"]
    for name in (x, y, *(fixed or {})):
        if name not in known:
            raise UsageError(f"the sweep has no axis {name!r}; {nearest(name, known)}")
    if x == y:
        raise UsageError("x and y must be two different axes")
    if level not in LEVELS:
        raise UsageError(f"no level is called {level!r}; {nearest(level, LEVELS)}")
    table = table.astype(dict.fromkeys(known, object)).fillna(dict.fromkeys(known, "-"))
    chosen = ""
    for name, value in (fixed or {}).items():
        values = table[name].map(text)
        if value not in set(values):
            raise UsageError(f"the sweep has no point with {chosen}{name} = {value}; it has {_listed(table[name])}")
        table, chosen = table[values == value], f"{chosen}{name} = {value} and "
    for name in known:
        if name not in (x, y) and table[name].map(text).nunique() > 1:
            raise UsageError(
                f"{name} has several values ({_listed(table[name])}): choose one with --where {name}=VALUE"
            )
    if not (table.status == "done").any():
        raise UsageError(f"no point of this part of the sweep could be evaluated: {table.reason.iloc[0]}")
    fits = table.fits_limit.eq(True)
    if "fits_device" in table:  # abstract costs have no memory
        fits &= ~table.fits_device.eq(False)
    took_part = table[(table.status == "done") & ~table.asynchronous.eq(True) & fits]
    columns, rows = (tuple(sorted(table[name].unique(), key=magnitude)) for name in (x, y))
    groups: Any = took_part.groupby([x, y], sort=False)
    cells = {key: _cell(group, level) for key, group in groups}
    return Map(x, y, columns, rows, cells, level)


def _cell(group: pd.DataFrame, level: str) -> Cell:
    spans = {
        name: {s: float(span) for s, span in zip(group.schedule, group[column], strict=True) if pd.notna(span)}
        for name, column in LEVELS.items()
    }
    best = {name: tuple(s for s, span in found.items() if span == min(found.values())) for name, found in spans.items()}
    ordered = sorted(spans[level].values())
    margin = ordered[1] / ordered[0] - 1 if len(ordered) > 1 and ordered[0] > 0 else None
    coarser = {name: spans[name] for name in COARSER}
    differing = {name: _differing(found, spans["execution"]) for name, found in coarser.items()}
    overturned = frozenset(name for name, found in coarser.items() if _overturned(found, spans["execution"]))
    return Cell(best, margin, differing, overturned)


def _overturned(coarse: Mapping[str, float], fine: Mapping[str, float]) -> bool:
    both = [name for name in coarse if name in fine]
    firsts = ({name for name in both if level[name] == min(level[n] for n in both)} for level in (coarse, fine))
    return bool(both) and set.isdisjoint(*firsts)


def _differing(coarse: Mapping[str, float], fine: Mapping[str, float]) -> float | None:
    pairs = list(combinations([name for name in coarse if name in fine], 2))
    if not pairs:
        return None
    return sum(_sign(coarse[a] - coarse[b]) != _sign(fine[a] - fine[b]) for a, b in pairs) / len(pairs)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def text(value: Any) -> str:
    """A value of an axis as a grid writes it; whole numbers that stand beside gaps have become floats."""
    if isinstance(value, (bool, np.bool_)):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def magnitude(value: Any) -> tuple[int, float, str]:
    """A key that sorts numbers and quantities by size, and text behind them."""
    if isinstance(value, (int, float)):
        return 0, float(value), ""
    match = re.fullmatch(r"\s*([0-9.eE+-]+(?:/[0-9]+)?)\s*(\S*)", str(value))
    if match:
        scales = {unit: scale for units in DIMENSIONS.values() for unit, scale in units.items()} | {"": Fraction(1)}
        try:
            return 0, float(Fraction(match[1]) * scales[match[2]]), ""
        except (ValueError, KeyError, ZeroDivisionError):
            pass
    return 1, 0.0, str(value)


def _listed(values: Sequence[Any] | pd.Series) -> str:
    return ", ".join(map(text, sorted(set(values), key=magnitude)))
