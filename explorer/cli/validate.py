"""`explorer validate`: predictions held against published measurements."""

from __future__ import annotations

from explorer.cli.options import Json


def validate(json: Json = False) -> None:
    """Recompute published tables: measured, predicted, error; mean, median, worst and rank correlation."""
    from explorer.cli import console
    from explorer.validation import report
    from explorer.validation.studies import all_studies

    with console.progress("recomputing published tables"):
        studies = all_studies()
    if json:
        console.show_json(report.contract(studies))
        return
    for study in studies:
        console.show(report.table(study))
    console.show(report.summary(studies))
