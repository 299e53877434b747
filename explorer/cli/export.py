"""`explorer export`: a schedule to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.evaluate import Subject, evaluated
from explorer.cli.options import Output, ProblemOptions, shares_problem_options
from explorer.core.errors import UsageError

Format = Annotated[
    str | None,
    typer.Option("--format", help="json or csv; by the file's name if left out.", show_default=False),
]


@shares_problem_options
def export(problem: ProblemOptions, subject: Subject, format: Format = None, output: Output = None) -> None:
    """Write a schedule as JSON (without loss) or as a table of cells (CSV), to a file or to stdout."""
    import json
    import sys

    from explorer.core.files import write_text
    from explorer.io import native, table

    suffix = format or (Path(output).suffix.lower().lstrip(".") if output else "json")
    schedule = evaluated(problem, subject).schedule
    match suffix:
        case "json":
            parts = [json.dumps(native.encode(schedule)) + "\n"]
        case "csv":
            parts = list(table.write(schedule))
        case _:
            raise UsageError(f"no format is called {suffix!r}; known: json, csv")
    if output is None:
        sys.stdout.writelines(parts)
    else:
        write_text(Path(output), parts)
