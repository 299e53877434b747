"""`explorer run`: a schedule through PyTorch's own runtime, on processes of this machine."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.evaluate import Subject, evaluated
from explorer.cli.options import Json, ProblemOptions, shares_problem_options
from explorer.core.errors import Infeasible, UsageError

_PANEL = "This run"
LONGEST = 86_400
"""Seconds that an op, or the wait for another process, may take."""

OpTime = Annotated[
    str, typer.Option("--op-time", help="How long an op takes on average, such as 20ms.", rich_help_panel=_PANEL)
]
Latency = Annotated[
    str,
    typer.Option(
        "--emulate-latency", help="Delay deliveries between devices by this, such as 30ms.", rich_help_panel=_PANEL
    ),
]
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout", help="How long a process waits for another one before it gives up.", rich_help_panel=_PANEL
    ),
]
Profile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="Have PyTorch's profiler write a trace of each device to this folder.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
Ops = Annotated[bool, typer.Option("--ops", help="Show every op.", show_default=False, rich_help_panel=_PANEL)]


@shares_problem_options
def run(
    problem: ProblemOptions,
    subject: Subject,
    op_time: OpTime = "20ms",
    emulate_latency: Latency = "0ms",
    timeout: Timeout = "30s",
    profile: Profile = None,
    ops: Ops = False,
    json: Json = False,
) -> None:
    """Run a schedule through torch.distributed.pipelining, one process a device, and hold it against the prediction.

    Each stage is a small real module whose ops take their costs' time, scaled; gradients must equal those of the
    unsplit model. A .csv file with sends and receives runs as it stands. Exit code 1 if gradients or order are wrong.
    """
    from explorer.cli import console
    from explorer.core.units import quantity
    from explorer.io.formats import require_synchronous
    from explorer.runtime import measure, report
    from explorer.runtime.cluster import require_torch

    require_torch()
    times = [
        quantity(text, "time", option)
        for text, option in ((op_time, "--op-time"), (emulate_latency, "--emulate-latency"), (timeout, "--timeout"))
    ]
    for value, option in ((times[0], "--op-time"), (times[2], "--timeout")):
        if not Fraction(1, 10**6) <= value <= LONGEST:
            raise UsageError(f"{option} must be between 1 us and {LONGEST} s")
    talking = _talking(Path(subject)) if subject.lower().endswith(".csv") else None
    with console.progress(f"running {subject}"):
        result = evaluated(problem, subject)
        require_synchronous(result)
        measured, notes = measure.run(
            result.schedule,
            result.problem,
            mean_op=times[0],
            latency=times[1],
            timeout=float(times[2]),
            talking=talking,
            profile=_folder(profile),
        )
    if json:
        console.show_json(report.as_json(subject, measured, notes))
    else:
        console.show(report.summary(subject, measured, notes))
        if ops:
            console.show(report.op_by_op(measured))
    if not measured.gradients_equal or not measured.order_kept:
        raise typer.Exit(1)


def _folder(profile: str | None) -> str:
    """An absolute path for the processes; empty if none is wanted."""
    if profile is None:
        return ""
    path = Path(profile).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"traces cannot be written to {profile}: {error.strerror}") from None
    if any(path.iterdir()):
        raise UsageError(f"the folder {profile} is not empty; traces of two runs must not mix")
    return str(path)


def _talking(path: Path) -> str | None:
    """The text of a table that holds sends and receives; None for one of ops alone.

    Raises
    ------
    Infeasible
        If something is wrong with the table: it might hang.
    """
    from explorer.core.files import read_text
    from explorer.io.cells import Message, parse_lines
    from explorer.io.check import check

    text = read_text(path)
    found = check(text, str(path))
    if found:
        more = f" ({len(found) - 1} more: explorer check {path})" if len(found) > 1 else ""
        raise Infeasible(f"{found[0].where}: {found[0].message}{more}")
    lines = parse_lines(text, str(path))
    talks = any(isinstance(cell.action, Message) for line in lines for cell in line.cells)
    return text if talks else None
