"""`explorer show`: a schedule's table and its timeline."""

from __future__ import annotations

from explorer.cli.evaluate import Subject, evaluated
from explorer.cli.options import Json, ProblemOptions, shares_problem_options


@shares_problem_options
def show(problem: ProblemOptions, subject: Subject, json: Json = False) -> None:
    """Show a schedule: each device's order, and the timeline as wide as the terminal."""
    from rich.console import Group
    from rich.text import Text

    from explorer.cli import console
    from explorer.reports import contract, gantt, tables

    with console.progress(f"evaluating {subject}"):
        result = evaluated(problem, subject)
    if json:
        console.show_json(contract.timeline(result))
        return
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
