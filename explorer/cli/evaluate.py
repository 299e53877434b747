"""`explorer evaluate`: one schedule, the three levels, per-device figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.options import Json, ProblemOptions, shares_problem_options
from explorer.core.errors import UsageError

if TYPE_CHECKING:
    from explorer.api import Costs
    from explorer.evaluation.results import Evaluation

Subject = Annotated[
    str,
    typer.Argument(metavar="SCHEDULE|FILE", help="A schedule's name, as in `hanayo` or `hanayo:waves=2`, or a file."),
]


@shares_problem_options
def evaluate(problem: ProblemOptions, subject: Subject, json: Json = False) -> None:
    """Evaluate one schedule: closed formula, idealised table, execution; per-device figures."""
    from explorer.cli import console
    from explorer.reports import contract, tables

    with console.progress(f"evaluating {subject}"):
        result = evaluated(problem, subject)
    if json:
        console.show_json(contract.evaluation(result))
    else:
        console.show(tables.evaluation(result))
    if problem.mem_limit is not None and result.fits_memory is False:
        raise typer.Exit(1)


def evaluated(problem: ProblemOptions, subject: str) -> Evaluation:
    """Evaluate what the command line asks for."""
    from explorer import api
    from explorer.cli.subjects import merged, parse_subject, typed

    name, own = parse_subject(subject)
    options: dict[str, object] = {}
    devices, microbatches = problem.devices, problem.microbatches
    named = api.resolve(name)
    if named is None and problem.schedule_options:
        raise UsageError(f"{name} is a file, which has no options, got {', '.join(problem.schedule_options)}")
    if named is not None:
        options = typed(named, merged(problem.launched(named, own), own))
        devices, microbatches = problem.sizes
    return api.evaluate(
        name,
        _costs(problem, None if named is not None else Path(name)),
        devices,
        microbatches,
        options=options,
        backward=problem.split,
        engine=problem.engine,
        messages=problem.messages,
    )


def _costs(problem: ProblemOptions, file: Path | None) -> Costs:
    """Costs as the options have them; those of the search for its result, where no others are given."""
    if file is not None and not problem.begins_costs:
        from explorer.cli.costs import kept
        from explorer.io.kept import kept_costs

        found = kept_costs(file)
        if found is not None:
            return kept(problem, found, file)
    return problem.costs()
