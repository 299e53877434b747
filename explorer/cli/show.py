"""`explorer show`: a schedule's table and its timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.evaluate import Subject, evaluated
from explorer.cli.options import Json, ProblemOptions, shares_problem_options

if TYPE_CHECKING:
    from explorer.evaluation.results import Evaluation

Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        help="Draw the timeline to this .svg, .pdf, .png or .html file, or the table to .txt, .md, .tex, .svg, ...",
        show_default=False,
    ),
]
Table = Annotated[
    bool,
    typer.Option("--table", help="The idealised table, time slots across, as papers print it.", show_default=False),
]


@shares_problem_options
def show(
    problem: ProblemOptions, subject: Subject, table: Table = False, output: Output = None, json: Json = False
) -> None:
    """Show a schedule: each device's order, and the timeline as wide as the terminal, or as a figure in a file."""
    import sys

    from explorer.cli import console
    from explorer.reports import contract, pictures, slots

    draw, known = (pictures.table, pictures.TABLE_SUFFIXES) if table else (pictures.timeline, pictures.SUFFIXES)
    if output is not None:
        pictures.require_suffix(Path(output), known)
    with console.progress(f"evaluating {subject}"):
        result = evaluated(problem, subject)
    if output is not None:
        draw(Path(output), result)
    if json:
        console.show_json(contract.timeline(result))
    elif output is None and table:
        sys.stdout.writelines(slots.text(slots.slot_table(result)))
    elif output is None:
        _in_terminal(result)


def _in_terminal(result: Evaluation) -> None:
    from rich.console import Group
    from rich.text import Text

    from explorer.cli import console
    from explorer.reports import gantt, tables

    width = console.stdout().width
    console.show(
        Group(
            tables.heading(result),
            Text("\nOrder", "bold"),
            gantt.orders(result.schedule, width),
            Text("\nTimeline", "bold"),
            gantt.gantt(result, width),
            *tables.cautions(result.cautions),
        )
    )
