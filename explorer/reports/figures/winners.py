"""The static figure of a map: who wins over two parameters, by how much, and where coarser levels rank otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from explorer.reports.figures import palette, plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HUES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a600", "#555555")
"""Of Okabe and Ito, yellow darkened; letters tell apart what shares a hue."""
FULL = 0.1
"""The lead from which a colour is full."""


@dataclass(frozen=True)
class Field:
    """One problem of a map.

    Parameters
    ----------
    winners
        The fastest schedules, more than one where they are equal; none where nothing is known.
    margin
        How much longer the next one takes, as a fraction; None where there is none.
    reranked, overturned
        Whether a coarser level ranks the schedules otherwise; whether it names another winner.
    """

    winners: tuple[str, ...]
    margin: float | None
    reranked: bool
    overturned: bool


@dataclass(frozen=True)
class Grid:
    """A map as it is drawn: ``fields`` by (column value, row value), rows from below."""

    title: str
    x: str
    y: str
    columns: Sequence[Any]
    rows: Sequence[Any]
    fields: Mapping[tuple[Any, Any], Field]


def winners(grid: Grid) -> Figure:
    """Draw a map; see `plot.save` for files."""
    from matplotlib.patches import Patch, Rectangle

    names = _by_wins(grid)
    letters = {name: chr(ord("A") + place % 26) for place, name in enumerate(names)}
    hues = dict(zip(names, islice(cycle(HUES), len(names)), strict=True))
    tall = float(np.clip(3.6 / len(grid.rows), 0.2, 0.5))
    lines = -(-(len(names) + 3) // 4)
    head, foot = 0.35, 0.75 + 0.16 * lines
    height = head + tall * len(grid.rows) + foot
    figure = plot.figure(height)
    axes = figure.add_axes((0.12, foot / height, 0.85, tall * len(grid.rows) / height))
    axes.set_xlim(0, len(grid.columns))
    axes.set_ylim(0, len(grid.rows))
    width = plot.WIDTH * 72 * 0.85 / len(grid.columns)
    for column, x in enumerate(grid.columns):
        for row, y in enumerate(grid.rows):
            field = grid.fields.get((x, y))
            if field is not None and field.winners:
                colour = tinted(hues[field.winners[0]], field.margin)
                hatch = "xxxx" if field.overturned else "////" if field.reranked else None
                axes.add_patch(
                    Rectangle((column, row), 1, 1, facecolor=colour, edgecolor="#333333", linewidth=0.3, hatch=hatch)
                )
                _text(axes, column, row, field, letters, width)
    axes.set_xticks(np.arange(len(grid.columns)) + 0.5, [str(value) for value in grid.columns],
                    rotation=0 if width > 34 else 60, ha="center" if width > 34 else "right")  # fmt: skip
    axes.set_yticks(np.arange(len(grid.rows)) + 0.5, [str(value) for value in grid.rows])
    axes.tick_params(length=0)
    axes.set_xlabel(grid.x)
    axes.set_ylabel(grid.y)
    figure.suptitle(grid.title, x=0.02, y=1 - 0.08 / height, ha="left", va="top", fontsize=8.5, fontweight="bold")
    handles: list[Any] = [Patch(facecolor=hues[name], label=f"{letters[name]}  {name}") for name in names]
    handles += [
        Patch(
            facecolor="white", edgecolor="#333333", linewidth=0.3, hatch="////", label="a coarser level ranks otherwise"
        ),
        Patch(
            facecolor="white", edgecolor="#333333", linewidth=0.3, hatch="xxxx", label="... and names another winner"
        ),
        Patch(facecolor=tinted(HUES[0], 0.0), label=f"pale: small lead; full from {100 * FULL:.0f}%"),
    ]
    figure.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.015, 0.0), ncols=4, fontsize=6.5)
    return figure


def _by_wins(grid: Grid) -> list[str]:
    """Every winner, the one that wins most often first."""
    wins: dict[str, int] = {}
    for field in grid.fields.values():
        for name in field.winners:
            wins[name] = wins.get(name, 0) + 1
    return sorted(wins, key=lambda name: -wins[name])


def tinted(colour: str, margin: float | None) -> tuple[float, float, float]:
    """A winner's colour, paler the smaller its lead; full where nothing else takes part."""
    share = 0.25 + 0.75 * min((FULL if margin is None else margin) / FULL, 1.0)
    red, green, blue = (1 - share * (1 - part) for part in palette.channels(colour))
    return red, green, blue


def _text(axes: Axes, column: int, row: int, field: Field, letters: Mapping[str, str], width: float) -> None:
    """Letters and lead, as far as there is room."""
    who = "".join(letters[name] for name in field.winners)
    lead = "" if field.margin is None else f" {100 * field.margin:.1f}%"
    said = next((s for s in (who + lead, who, who[:1]) if len(s) * 4 <= width - 2), "")
    axes.text(
        column + 0.5, row + 0.5, said, ha="center", va="center", fontsize=6.5,
        bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8} if said else None,
    )  # fmt: skip
