"""`explorer pareto`: makespan against memory."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from explorer.cli.optimize import (
    ObjectiveName,
    PlacementName,
    Seed,
    TimeLimit,
    Workers,
    live,
    options_of,
    placements_of,
    require_writable,
    settings_of,
    write_json,
)
from explorer.cli.options import Json, Output, ProblemOptions, shares_problem_options
from explorer.core.errors import UsageError

_PANEL = "Search"
Limits = Annotated[
    str | None,
    typer.Option(
        "--limits",
        help="Memory limits with commas, such as 2,3,4 or 20GiB,40GiB (default: whole activations from the least on).",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Points = Annotated[
    int,
    typer.Option(
        "--points", help="Points at most, without --limits (default: 12).", rich_help_panel=_PANEL, show_default=False
    ),
]


@shares_problem_options
def pareto(
    problem: ProblemOptions,
    limits: Limits = None,
    points: Points = 12,
    placement: PlacementName = "linear",
    objective: ObjectiveName = "makespan",
    time_limit: TimeLimit = 60.0,
    workers: Workers = None,
    seed: Seed = 0,
    output: Output = None,
    json: Json = False,
) -> None:
    """Makespan against memory: the best under each limit, proved or bounded; named schedules by their memory.

    The time limit is that of all points together. Exit code 1 if every limit is infeasible. Ctrl-C ends it with the
    points found so far, and exit code 130.
    --output writes JSON, or draws to an .svg, .pdf or .png file.
    """
    from pathlib import Path

    from explorer.cli import console
    from explorer.io import pareto as files
    from explorer.reports import pareto as report
    from explorer.reports import pictures
    from solvers.pareto import frontier

    if problem.mem_limit is not None:
        raise UsageError("pareto goes through memory limits itself; give --limits instead of --mem-limit")
    if not 2 <= points <= 200:
        raise UsageError(f"--points must be between 2 and 200, got {points}")
    settings = settings_of(problem, objective, time_limit, workers, seed)
    where = placements_of(problem, placement)
    if len(where) > 1:
        raise UsageError("pareto needs one placement; see optimize for free ones")
    require_writable(output)
    as_picture = output is not None and Path(output).suffix.lower() in pictures.FIGURE_SUFFIXES
    if output is not None and as_picture:
        pictures.require_suffix(Path(output), pictures.FIGURE_SUFFIXES)
    costs = problem.costs()
    time = costs.problem(where[0]).time
    given = [part.strip() for part in limits.split(",")] if limits else []
    with live(settings, time.tick, time.unit) as watch:
        result = frontier(
            costs.problem, where[0], settings, limits=given, most=points, options=options_of(problem),
            watch=lambda text: watch,
        )  # fmt: skip
    value = files.encode(result)
    if output is not None and as_picture:
        pictures.frontier(Path(output), result)
    elif output is not None:
        write_json(output, value)
    if json:
        console.show_json(value)
    else:
        console.show(report.frontier(result))
    raise typer.Exit(exit_code(value))


def exit_code(value: dict[str, Any]) -> int:
    """Of a frontier: limits that are all infeasible are a "no", an interruption says so."""
    if value["interrupted"]:
        return 130
    return 1 if all(point["status"] == "infeasible" for point in value["points"]) else 0
