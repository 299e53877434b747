"""`explorer validate`: predictions held against published measurements."""

from __future__ import annotations

from typing import Annotated

import typer

from explorer.cli.options import Json


def validate(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="korthikanti, megatron, zero-bubble, vtrain; all by default."),
    ] = None,
    json: Json = False,
) -> None:
    """Recompute published tables: measured, predicted, error; mean, median, worst and rank correlation."""
    from explorer.cli import console
    from explorer.validation import report
    from explorer.validation.studies import all_studies

    with console.progress("recomputing published tables"):
        studies = all_studies(names or ())
    if json:
        console.show_json(report.contract(studies))
        return
    for study in studies:
        console.show(report.table(study))
    console.show(report.summary(studies))
