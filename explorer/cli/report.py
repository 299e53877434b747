"""`explorer report`: one page that a team can pass on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from explorer.cli.compare import Subjects, compared
from explorer.cli.options import ProblemOptions, shares_problem_options
from explorer.core.errors import Inapplicable, UsageError

if TYPE_CHECKING:
    from solvers.pareto import Frontier as Found

Output = Annotated[str, typer.Option("--output", help="The page, an .html file.", show_default=True)]
Frontier = Annotated[
    float | None,
    typer.Option(
        "--frontier",
        help="Seconds to search for the best makespan under each memory limit, stages in a line; needs the extra plot.",
        show_default=False,
    ),
]
_OF_SCHEDULES = ("chunks", "waves", "variant", "option")


@shares_problem_options
def report(
    problem: ProblemOptions, subjects: Subjects = None, frontier: Frontier = None, output: Output = "report.html"
) -> None:
    """Write a page to pass on: question, recommendation and why, costs, comparison, timelines, how to repeat it."""
    from explorer.cli import console
    from explorer.core.files import write_text
    from explorer.reports.figures import plot
    from explorer.reports.html import report as html
    from explorer.reports.recommendation import recommend

    path = Path(output)
    if path.suffix.lower() != ".html":
        raise UsageError(f"a report is an .html file, not {path}")
    if frontier is not None:
        plot.require()
    result = compared(problem, subjects)
    if not result.rows:
        raise Inapplicable("a report compares makespans, and none of these schedules flushes")
    advice = recommend(result)
    chosen = None if advice.chosen is None else advice.chosen.name
    first = result.rows[0].schedule
    searched = None if frontier is None else _searched(problem, first.devices, first.microbatches, frontier)
    extra = [] if frontier is None else ["--frontier", f"{frontier:g}"]
    commands = _commands(problem, subjects or [], chosen, extra, path)
    origin = html.Origin(_setting(problem), commands, _files(problem, subjects or []))
    write_text(path, html.report(result, advice, origin, searched))
    console.show("\n".join([*([f"Take {chosen}."] if chosen else []), *advice.reasons, f"{path} tells the rest."]))
    if problem.mem_limit is not None and chosen is None:
        raise typer.Exit(1)


def _searched(problem: ProblemOptions, devices: int, microbatches: int, seconds: float) -> Found:
    """Makespan against memory, stages in a line."""
    from explorer.cli import console
    from explorer.cli.optimize import options_of, settings_of
    from explorer.core.placement import linear
    from solvers.pareto import frontier

    settings = settings_of(problem, "makespan", seconds, None, 0)
    costs = replace(problem, mem_limit=None).costs()
    with console.progress("searching the frontier"):
        return frontier(costs.problem, linear(devices, microbatches), settings, options=options_of(problem))


def _setting(problem: ProblemOptions) -> dict[str, str]:
    """The model and the system in words, where costs are modelled."""
    from explorer.config.modelled import ModelledCosts

    costs = problem.costs()
    if not isinstance(costs, ModelledCosts):
        return {}
    return {"system": costs.system.description, "model": costs.model.description}


def _commands(
    problem: ProblemOptions, subjects: list[str], chosen: str | None, extra: list[str], path: Path
) -> dict[str, str]:
    """What to type for the page, for the comparison, and for the recommended schedule; with what each gives."""
    common = list(_flags(problem))
    own = list(_flags(problem, leave_out=_OF_SCHEDULES))  # a compared schedule's name tells its options
    lines = {
        _line("report", *subjects, *common, *extra, "--output", str(path)): "this page",
        _line("compare", *subjects, *common): "the comparison",
    }
    if chosen is not None:
        lines |= {
            _line("evaluate", chosen, *own): "everything about the recommended schedule",
            _line("show", chosen, *own, "--output", f"{path.stem}.svg"): "its timeline as a figure",
            _line("export", chosen, *own, "--output", f"{path.stem}.json"): "the schedule, in a file",
        }
    return lines


def _line(*words: str) -> str:
    return shlex.join(["explorer", *words])


def _flags(problem: ProblemOptions, leave_out: Sequence[str] = ()) -> Iterator[str]:
    """The options that differ from their defaults, as words of the command line."""
    hints = get_type_hints(ProblemOptions, include_extras=True)
    for field in fields(problem):
        value = getattr(problem, field.name)
        if value == field.default or field.name in leave_out:
            continue
        flag = hints[field.name].__metadata__[0].default  # where typer keeps an annotated option's first name
        if isinstance(value, bool):
            yield flag
            continue
        for each in value if isinstance(value, list) else [value]:
            yield from (flag, str(each))


def _files(problem: ProblemOptions, subjects: list[str]) -> list[Path]:
    """The files that were read: schedules, systems, models, measured costs."""
    names = [*(subject.partition(".py:")[0] + ".py" if ".py:" in subject else subject for subject in subjects)]
    names += [name for name in (problem.system, problem.model, problem.measured) if name is not None]
    return [path for path in map(Path, names) if path.is_file()]
