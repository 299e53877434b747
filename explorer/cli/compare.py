"""`explorer compare`: schedules side by side, ranked at each level."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.options import Json, ProblemOptions, shares_problem_options
from explorer.core.errors import UsageError

if TYPE_CHECKING:
    from explorer.evaluation.jitter import Jitter, Spread
    from explorer.evaluation.results import Comparison

Subjects = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SCHEDULE|FILE]...", help="Names such as `hanayo:waves=2`, or files; all schedules if none."
    ),
]


Output = Annotated[
    str | None,
    typer.Option("--output", help="Draw the comparison to this .svg, .pdf, .png or .html file.", show_default=False),
]


JitterText = Annotated[
    str | None,
    typer.Option(
        "--jitter",
        help="Spread of makespans when times vary: ops=0.1,transfers=0.3,devices=0.05,straggler=1.5,draws=1000,seed=0.",
        show_default=False,
    ),
]


@shares_problem_options
def compare(
    problem: ProblemOptions,
    subjects: Subjects = None,
    output: Output = None,
    jitter: JitterText = None,
    json: Json = False,
) -> None:
    """Compare schedules under the same costs, ranked by formula, by table and by execution."""
    from rich.text import Text

    from explorer.cli import console
    from explorer.evaluation.jitter import read
    from explorer.reports import contract, pictures, tables
    from explorer.reports.jitter import table as jitter_table
    from explorer.reports.reasons import why

    disturbance = None if jitter is None else read(jitter)
    if output is not None:
        pictures.require_suffix(Path(output))
    result = compared(problem, subjects)
    if output is not None:
        pictures.comparison(Path(output), result)
    spreads = None if disturbance is None else _spreads(result, disturbance)
    if json:
        told = {} if spreads is None else {"jitter": {name: asdict(spread) for name, spread in spreads.items()}}
        console.show_json(contract.comparison(result) | told)
    else:
        console.show(tables.comparison(result, console.stdout().width))
        if (reason := why(result)) is not None:
            console.show(Text(reason))
        if spreads and disturbance is not None:
            console.show(jitter_table(spreads, result.rows[0].problem.time.unit, disturbance))
    if problem.mem_limit is not None and not result.fitting:
        raise typer.Exit(1)


def _spreads(result: Comparison, disturbance: Jitter) -> dict[str, Spread]:
    from explorer.cli import console
    from explorer.evaluation.jitter import spread

    with console.progress("disturbing"):
        return {row.name: spread(row.schedule, row.problem, disturbance) for row in result.rows}


def compared(problem: ProblemOptions, subjects: list[str] | None) -> Comparison:
    """Compare what the command line asks for."""
    from rich.text import Text

    from explorer import api
    from explorer.cli import console

    names = subjects or [named.name for named in api.known()]
    pairs = _with_options(problem, names)
    devices, microbatches = _sizes(problem, pairs)
    costs = problem.costs()
    with console.progress("comparing") as status:
        return api.compare(
            pairs,
            costs,
            devices,
            microbatches,
            backward=problem.split,
            engine=problem.engine,
            messages=problem.messages,
            progress=lambda name: status.update(Text(f"evaluating {name}")),
        )


def _sizes(problem: ProblemOptions, pairs: list[tuple[str, dict[str, object]]]) -> tuple[int, int]:
    """Those given, else those of the first file, else the defaults."""
    from explorer import api

    devices, microbatches = problem.devices, problem.microbatches
    file = next((name for name, _ in pairs if api.resolve(name) is None), None)
    if file is not None and (devices is None or microbatches is None):
        schedule = api.load(Path(file))
        devices = schedule.devices if devices is None else devices
        microbatches = schedule.microbatches if microbatches is None else microbatches
    default_devices, default_microbatches = problem.sizes
    return (
        default_devices if devices is None else devices,
        default_microbatches if microbatches is None else microbatches,
    )


def _with_options(problem: ProblemOptions, names: list[str]) -> list[tuple[str, dict[str, object]]]:
    """Give every schedule the options that it has; an option that none of them has is an error."""
    from explorer import api
    from explorer.cli.subjects import merged, parse_subject, typed

    unused = dict(problem.schedule_options)
    pairs: list[tuple[str, dict[str, object]]] = []
    for text in names:
        name, own = parse_subject(text)
        named = api.resolve(name)
        if named is None:
            pairs.append((name, {}))
            continue
        common = {key: value for key, value in problem.launched(named, own).items() if key in named.options}
        for key in common:
            unused.pop(key, None)
        pairs.append((name, typed(named, merged(common, own))))
    if unused:
        raise UsageError(f"none of the schedules has an option {', '.join(unused)}")
    return pairs
