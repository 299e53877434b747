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
    typer.Option("--format", help="See `explorer list formats`; by the file's name if left out.", show_default=False),
]


@shares_problem_options
def export(problem: ProblemOptions, subject: Subject, format: Format = None, output: Output = None) -> None:
    """Write a schedule, or its timeline, for other programs: to a file, or to stdout. See `explorer list formats`."""
    import sys

    from explorer.core.files import write_bytes, write_text
    from explorer.io import formats

    path = None if output is None else Path(output)
    form = formats.find(format, path)
    written = form.write(evaluated(problem, subject))
    match written.parts:
        case bytes() as data:
            if path is None:
                raise UsageError("this format is no text; give --output")
            write_bytes(path, [data])
        case parts:
            if path is None:
                sys.stdout.writelines(parts)
            else:
                write_text(path, parts)
    for note in written.notes:
        sys.stderr.write(f"note: {note}\n")
