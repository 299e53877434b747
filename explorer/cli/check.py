"""`explorer check`: validate someone's schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.options import Json

File = Annotated[str, typer.Argument(metavar="FILE", help="A schedule in .json or .csv.")]


def check(file: File, json: Json = False) -> None:
    """Check a schedule: every op once and in its place, messages in order, no deadlock. Exit code 1 if not."""
    from explorer import api
    from explorer.cli import console
    from explorer.evaluation.order_checker import verify_order
    from explorer.io.check import check_file
    from explorer.reports import contract, tables

    path = Path(file)
    violations = check_file(path) if path.suffix.lower() == ".csv" else verify_order(api.load(path))
    if json:
        console.show_json(contract.violations(violations))
    else:
        console.show(tables.violations(file, violations))
    if violations:
        raise typer.Exit(1)
