"""`explorer costs`: what every stage of a model takes on a system, and where the numbers come from."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.options import Json, ProblemOptions, shares_problem_options
from explorer.core.errors import UsageError

if TYPE_CHECKING:
    from explorer.costs.explain import Line
    from explorer.costs.problem import TransformerCosts


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
    from explorer.cli.subjects import merged, parse_subject, typed
    from explorer.costs.problem import TransformerCosts
    from explorer.reports import costs as report

    name, own = parse_subject(_usual(problem) if subject is None else subject)
    named = api.resolve(name)
    if named is None:
        raise UsageError(f"{name} is a file; give a schedule's name, whose stages the costs are for")
    devices, microbatches = problem.sizes
    given = problem.costs()
    detailed = given if isinstance(given, TransformerCosts) else None
    if explain and detailed is None:
        raise UsageError("--explain is for costs layer by layer; give --tp 1, or a model's config.json, to have those")
    options = typed(named, merged(problem.launched(named, own), own))
    placement = named(devices, microbatches, recipe=given.problem, **options).placement
    of = given.problem(placement)
    pieces = detailed.pieces_of(placement) if detailed is not None else None
    explained = _explained(detailed) if detailed is not None and explain else {}
    if json:
        shown = report.contract(of, placement, pieces)
        if explain:
            shown["explain"] = {
                title: [{**asdict(line), "value": float(line.value)} for line in lines]
                for title, lines in explained.items()
            }
        console.show_json(shown)
        return
    console.show(report.table(of, placement, pieces))
    for title, lines in explained.items():
        console.show(report.explanation(lines, title))


def _usual(problem: ProblemOptions) -> str:
    """The schedule that the model's file asks for: by name, or by its stages a device."""
    launch = None if problem.chosen is None else problem.chosen.launch
    if launch is not None and launch.schedule:
        return launch.schedule
    return "interleaved-1f1b" if launch is not None and launch.virtual > 1 else "1f1b"


def _explained(costs: TransformerCosts) -> dict[str, list[Line]]:
    """How each kind of layer comes about."""
    from explorer.costs.explain import explain

    return {
        title: explain(costs.architecture, costs.training, costs.system, layer)
        for title, layer in costs.kinds_of_layers().items()
    }
