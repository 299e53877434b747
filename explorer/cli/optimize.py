"""`explorer optimize`: the best schedule, a proof or a bound, and how far the named ones are from it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.options import Json, Output, ProblemOptions, shares_problem_options
from explorer.core.errors import Disagreement, UsageError

if TYPE_CHECKING:
    from fractions import Fraction

    from explorer.core.placement import Placement
    from explorer.core.schedule import Schedule
    from solvers.incumbent import Progress, Watch
    from solvers.optimise import Settings

_PANEL = "Search"
LONGEST = 7 * 24 * 3600
"""Seconds that a search may take: a week."""


def _option(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, show_default=False)


PlacementName = Annotated[
    str, _option("--placement", help="linear, loop, v, wave, mirrored; free for small cases (default: linear).")
]
ObjectiveName = Annotated[str, _option("--objective", help="makespan or longest-device-span (default: makespan).")]
TimeLimit = Annotated[float, _option("--time-limit", help="Seconds (default: 60).")]
Workers = Annotated[int | None, _option("--workers", help="Threads (default: as many as there are cores).")]
Seed = Annotated[int, _option("--seed", help="Of all random choices (default: 0).")]
Hint = Annotated[str | None, _option("--hint", help="A file with a schedule to start from.")]
Replay = Annotated[str | None, _option("--replay", help="Check the result in this file again; nothing is searched.")]


@shares_problem_options
def optimize(
    problem: ProblemOptions,
    context: typer.Context,
    placement: PlacementName = "linear",
    objective: ObjectiveName = "makespan",
    time_limit: TimeLimit = 60.0,
    workers: Workers = None,
    seed: Seed = 0,
    hint: Hint = None,
    replay: Replay = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Search the best schedule: proved, or with a bound; and see how far the named ones are from it.

    The backward is split into I and W unless --fused-backward. Ctrl-C or the time limit ends the search with the best
    found so far. Exit code 1 if the memory limit is infeasible, 130 if interrupted.
    """
    if replay is not None:
        raise typer.Exit(_replay(replay, json, context))
    from explorer import api
    from explorer.cli import console
    from explorer.io import optimum as files
    from explorer.reports import optimum as report
    from solvers.incumbent import Refuted
    from solvers.optimise import optimise

    settings = settings_of(problem, objective, time_limit, workers, seed)
    where = placements_of(problem, placement)
    known: Schedule | None = None if hint is None else api.load(Path(hint))
    require_writable(output)
    costs = problem.costs()
    first = costs.problem(where[0])
    try:
        with live(settings, first.time.tick, first.time.unit) as watch:
            result = optimise(costs.problem, where, settings, options=options_of(problem), hint=known, watch=watch)
    except Refuted as error:
        path = _kept(files.disagreement(str(error), error.timelines, first))
        raise Disagreement(f"{error}; what each says is kept in {path}") from None
    value = files.encode(result)
    if output is not None:
        write_json(output, value)
    if json:
        console.show_json(value)
    else:
        console.show(report.optimum(result))
    raise typer.Exit(exit_code(value))


def _kept(value: dict[str, Any]) -> str:
    """Write what must not be lost to a new file; its path."""
    import tempfile

    handle, path = tempfile.mkstemp(suffix=".json", prefix="disagreement-")
    os.close(handle)
    write_json(path, value)
    return path


def _require_alone(context: typer.Context) -> None:
    """Refuse options beside --replay: the file says all that there is to check."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source is not None and source.name == "COMMANDLINE" and option.name not in ("replay", "json"):
            raise UsageError(f"--replay checks a file as it stands; leave {option.opts[0]} out")


def _replay(path: str, json: bool, context: typer.Context) -> int:
    from explorer.cli import console
    from explorer.core.files import read_text
    from explorer.io.replay import replay as check_again
    from explorer.reports.optimum import replayed

    read_text(Path(path))  # a file that is not there is told first
    _require_alone(context)
    found = check_again(Path(path))
    if json:
        console.show_json({"valid": found.valid, "findings": [vars(one) for one in found.findings]})
    else:
        console.show(replayed((one.what, one.said, one.holds) for one in found.findings))
    return 0 if found.valid else 1


def exit_code(value: dict[str, Any]) -> int:
    """Of a result: infeasible is a "no", an interruption says so."""
    if value["interrupted"]:
        return 130
    return 1 if value["status"] == "infeasible" else 0


def settings_of(problem: ProblemOptions, objective: str, time_limit: float, workers: int | None, seed: int) -> Settings:
    """How to search.

    Raises
    ------
    UsageError
        If an option is out of its range.
    """
    from explorer.core.errors import nearest
    from solvers.optimise import Settings
    from solvers.scope import Objective

    names = {"makespan": Objective.MAKESPAN, "longest-device-span": Objective.SPAN}
    if objective not in names:
        raise UsageError(f"no objective is called {objective!r}; {nearest(objective, names)}")
    if not 0 < time_limit <= LONGEST:
        raise UsageError(f"--time-limit must be over 0 and at most {LONGEST} seconds, got {time_limit:g}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers is not None and not 1 <= workers <= 256:
        raise UsageError(f"--workers must be between 1 and 256, got {workers}")
    if not 0 <= seed < 2**31:
        raise UsageError(f"--seed must be between 0 and 2^31 - 1, got {seed}")
    return Settings(
        split=problem.split != "fused",
        objective=names[objective],
        time_limit=time_limit,
        workers=workers or cores,
        seed=seed,
    )


def placements_of(problem: ProblemOptions, name: str) -> tuple[Placement, ...]:
    """The placements that a name stands for.

    Raises
    ------
    UsageError
        If there is none of that name, or an option is given that it does not have.
    """
    from solvers.optimise import placements

    sizes = {"loop": problem.chunks, "wave": problem.waves, "free": problem.chunks}
    for what, value, of in (("chunks", problem.chunks, ("loop", "free")), ("waves", problem.waves, ("wave",))):
        if value is not None and name not in of:
            raise UsageError(f"--{what} goes with --placement {' or '.join(of)}, not with {name}")
        if value is not None and value < 1:
            raise UsageError(f"--{what} must be at least 1, got {value}")
    return placements(name, *problem.sizes, sizes.get(name) or 0)


def options_of(problem: ProblemOptions) -> dict[str, object]:
    """The options of the named schedules, typed by the first that has them."""
    import schedules
    from explorer.cli.subjects import typed

    found: dict[str, object] = {}
    for named in schedules.every():
        given = {key: value for key, value in problem.schedule_options.items() if key in named.options}
        found = {**typed(named, given), **found}
    return found


def require_writable(output: str | None) -> None:
    """Refuse a file that cannot be written before the search, not after it."""
    if output is not None and not Path(output).resolve().parent.is_dir():
        raise UsageError(f"{output} cannot be written: there is no folder {Path(output).parent}")


def write_json(output: str, value: Any) -> None:
    """Write a result."""
    import json

    from explorer.core.files import write_text

    write_text(Path(output), [json.dumps(value, indent=1, allow_nan=False), "\n"])


@contextmanager
def live(settings: Settings, tick: Fraction, unit: str) -> Iterator[Watch]:
    """Tell on stderr, where a person looks, where the search stands."""
    from explorer.cli import console
    from explorer.reports.optimum import progress

    with console.progress("searching") as status:

        def watch(now: Progress) -> None:
            status.update(progress(now, (tick, unit), settings.time_limit))

        yield watch
