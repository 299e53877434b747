"""`explorer claims`: the source paper's findings, each with our answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.options import Json
from explorer.core.errors import UsageError, nearest

if TYPE_CHECKING:
    from rich.console import RenderableType

    from explorer.sweep.claims import Claim

COLOURS = {"confirmed": "green", "refuted": "red", "only under named conditions": "yellow"}

Names = Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Only these, with their figures.")]


def claims(names: Names = None, json: Json = False) -> None:
    """Hold the source paper's findings against this program: confirmed, refuted, or only under named conditions."""
    from dataclasses import asdict

    from explorer.cli import console
    from explorer.sweep.claims import CLAIMS, SOURCE

    for name in names or ():
        if name not in CLAIMS:
            raise UsageError(f"no claim is called {name!r}; {nearest(name, CLAIMS)}")
    with console.progress("evaluating"):
        found = [CLAIMS[name]() for name in names or CLAIMS]
    if json:
        console.show_json({"source": SOURCE, "claims": [asdict(claim) for claim in found]})
        return
    for claim in found:
        console.show(rendered(claim, figures=bool(names)))
    typer.echo(f"Theirs: {SOURCE}. `explorer claims NAME` shows our figures.")


def rendered(claim: Claim, *, figures: bool) -> RenderableType:
    """A finding, the verdict and our answer; with its figures if asked for."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [
        Text.assemble((claim.name, "bold"), "  ", (claim.verdict, f"bold {COLOURS[claim.verdict]}")),
        Text.assemble(("  they: ", "dim"), claim.said),
        Text.assemble(("  ours: ", "dim"), claim.answer),
    ]
    if figures:
        table = Table(*claim.header)
        for row in claim.rows:
            table.add_row(*row)
        parts.append(table)
    return Group(*parts)
