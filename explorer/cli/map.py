"""`explorer map`: which schedule wins where, by how much, and where the levels disagree."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.options import Json, Output
from explorer.core.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from explorer.reports.figures.winners import Grid
    from explorer.sweep.winners import Cell, Map

COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red", "bright_cyan", "bright_green", "bright_yellow", "white")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

StoreFile = Annotated[str, typer.Argument(metavar="SWEEP", help="A store that `explorer sweep` wrote, or its grid.")]
X = Annotated[str, typer.Option("--x", help="The axis of the columns, such as bandwidth.", show_default=False)]
Y = Annotated[str, typer.Option("--y", help="The axis of the rows, such as microbatches.", show_default=False)]
Where = Annotated[list[str] | None, typer.Option("--where", help="The value of another axis, as NAME=VALUE.")]
Level = Annotated[str, typer.Option("--level", help="execution, table or formula: whose winners are shown.")]


def map_(
    sweep: StoreFile, x: X = "bandwidth", y: Y = "microbatches", where: Where = None, level: Level = "execution",
    output: Output = None, json: Json = False,
) -> None:  # fmt: skip
    """Show which schedule wins where in a sweep, its lead over the next, and where the levels rank differently.

    --output draws the map to an .svg, .pdf or .png file.
    """
    from explorer.cli import console
    from explorer.reports import pictures
    from explorer.sweep import frame
    from explorer.sweep.winners import winners

    if output is not None:
        pictures.require_suffix(Path(output), pictures.FIGURE_SUFFIXES)
    path = Path(sweep)
    store = path.with_suffix(".sqlite") if path.suffix == ".toml" else path
    found = winners(frame.load(store), x, y, _fixed(where or []), level)
    if output is not None:
        pictures.winners(Path(output), drawn(found))
    if json:
        console.show_json(contract(found))
    else:
        console.show(rendered(found))


def _fixed(given: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for (name, equals, _), text in zip(pairs, given, strict=True):
        if not name or not equals:
            raise UsageError(f"--where must be NAME=VALUE, got {text!r}")
    return {name: value for name, _, value in pairs}


def contract(found: Map) -> dict[str, Any]:
    """A map as JSON."""
    cells = [
        {
            found.x: column, found.y: row, "winners": {k: list(v) for k, v in cell.winners.items()},
            "margin": cell.margin, "differing_pairs": dict(cell.differing), "overturned": sorted(cell.overturned),
        }
        for (column, row), cell in found.cells.items()
    ]  # fmt: skip
    return {"x": found.x, "y": found.y, "level": found.level, "cells": cells}


def drawn(found: Map) -> Grid:
    """A map as its figure wants it."""
    from explorer.reports.figures.winners import Field, Grid

    fields = {
        place: Field(
            cell.winners[found.level], cell.margin, any(bool(share) for share in cell.differing.values()),
            bool(cell.overturned),
        )
        for place, cell in found.cells.items()
    }  # fmt: skip
    title = f"Fastest by {found.level}, and its lead over the next"
    return Grid(title, found.x.replace("_", " "), found.y.replace("_", " "), found.columns, found.rows, fields)


def rendered(found: Map) -> RenderableType:
    """A map as a coloured grid with its legend."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from explorer.sweep.winners import text

    wins: dict[str, int] = {}
    for cell in found.cells.values():
        for name in cell.winners[found.level]:
            wins[name] = wins.get(name, 0) + 1
    names = sorted(wins, key=lambda name: -wins[name])
    marks = {name: (LETTERS[n % len(LETTERS)], COLOURS[n % len(COLOURS)]) for n, name in enumerate(names)}
    table = Table(title=f"Fastest by {found.level}, and its lead over the next", title_justify="left")
    table.add_column(f"{found.y} \\ {found.x}", justify="right")
    for column in found.columns:
        table.add_column(text(column), justify="left", no_wrap=True)
    for row in found.rows:
        cells = [found.cells.get((column, row)) for column in found.columns]
        table.add_row(text(row), *(_shown(cell, found.level, marks) for cell in cells))
    legend = [
        Text.assemble((f"{marks[name][0]} {name}", marks[name][1]), f"  {wins[name]} of {len(found.cells)}")
        for name in names
    ]
    return Group(table, *legend, *_disagreements(found))


def _shown(cell: Cell | None, level: str, marks: dict[str, tuple[str, str]]) -> Text:
    from rich.text import Text

    if cell is None or not cell.winners[level]:
        return Text("-", "dim")
    text = Text()
    for name in cell.winners[level]:
        text.append(marks[name][0], marks[name][1] + " bold")
    if cell.margin:
        text.append(f" {100 * cell.margin:.1f}%", marks[cell.winners[level][0]][1])
    for coarse, sign in (("table", "*"), ("formula", "'")):
        if coarse in cell.overturned:
            text.append(sign, "bold red")
    return text


def _disagreements(found: Map) -> list[Text]:
    from rich.text import Text

    lines = []
    for coarse, sign in (("table", "*"), ("formula", "'")):
        cells = [cell for cell in found.cells.values() if cell.differing[coarse] is not None]
        if not cells:
            continue
        other = sum(coarse in cell.overturned for cell in cells)
        changed = sum(bool(cell.differing[coarse]) for cell in cells)
        pairs = sum(cell.differing[coarse] or 0 for cell in cells) / len(cells)
        said = f" of those that the {coarse} ranks, another wins in execution: {other} of {len(cells)} cells; "
        said += f"ranks differ in {changed}, on average in {100 * pairs:.0f}% of all pairs"
        lines.append(Text.assemble((sign, "bold red"), said))
    return lines
