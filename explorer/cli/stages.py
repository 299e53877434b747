"""`explorer costs`: what every stage of a model takes on a system, and where the numbers come from."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from explorer.cli.options import Json, ProblemOptions, shares_problem_options
from explorer.core.errors import UsageError


@shares_problem_options
def costs(
    problem: ProblemOptions,
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCHEDULE]",
            help="The schedule whose stages are shown (default: the model file's, or 1f1b).",
            show_default=False,
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how the numbers of a layer come about.", show_default=False)
    ] = False,
    json: Json = False,
) -> None:
    """Show what every stage takes: times, activations, static memory, messages; and why, with --explain."""
    from explorer import api
    from explorer.cli import console
    from explorer.cli.costs import launch_of
    from explorer.cli.subjects import merged, parse_subject, typed
    from explorer.costs.layers import explain as explained
    from explorer.costs.problem import TransformerCosts
    from explorer.reports import costs as report

    launch = launch_of(problem)
    if subject is None:
        usual = "interleaved-1f1b" if launch is not None and launch.virtual > 1 else "1f1b"
        subject = launch.schedule if launch is not None and launch.schedule else usual
    name, own = parse_subject(subject)
    named = api.resolve(name)
    if named is None:
        raise UsageError(f"{subject} is a file; give a schedule's name, whose stages the costs are for")
    devices, microbatches = problem.sizes
    given = problem.costs()
    detailed = given if isinstance(given, TransformerCosts) else None
    if explain and detailed is None:
        raise UsageError("--explain is for costs layer by layer; give --tp 1, or a model's config.json, to have those")
    options = typed(named, merged(problem.launched(named, own), own))
    placement = named(devices, microbatches, recipe=given.problem, **options).placement
    of = given.problem(placement)
    pieces = detailed.pieces_of(placement) if detailed is not None else None
    kinds = detailed.kinds_of_layers() if detailed is not None and explain else {}
    lines = {
        title: explained(detailed.architecture, detailed.training, detailed.system, layer)
        for title, layer in kinds.items()
        if detailed is not None
    }
    if json:
        shown = report.contract(of, placement, pieces)
        if explain:
            shown["explain"] = {
                title: [{**asdict(line), "value": float(line.value)} for line in found]
                for title, found in lines.items()
            }
        console.show_json(shown)
        return
    console.show(report.table(of, placement, pieces))
    for title, found in lines.items():
        console.show(report.explanation(found, title))
