"""`explorer calibrate`: costs from profiler traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.options import Json, Output

Traces = Annotated[
    list[str], typer.Argument(metavar="TRACE...", help="PyTorch profiler or Chrome traces, one a rank; .gz too.")
]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        help="What labels of ops look like: a regular expression with groups kind, stage, microbatch [PyTorch's].",
        show_default=False,
    ),
]


def calibrate(traces: Traces, pattern: Pattern = None, output: Output = None, json: Json = False) -> None:
    """Estimate what ops and transfers take from traces, and say how well that explains the traces.

    --output writes a costs file for `--costs` of `evaluate`, `compare` and the others.
    """
    from explorer.cli import console
    from explorer.core.files import write_text
    from explorer.io import profile
    from explorer.runtime import calibration
    from explorer.runtime import calibration_report as report

    labels = profile.pattern(pattern)
    with console.progress("reading traces"):
        profiles = [profile.read(Path(name), labels, place) for place, name in enumerate(traces)]
        found = calibration.calibrate(profiles)
    if output is not None:
        write_text(Path(output), calibration.toml(found))
    if json:
        console.show_json(report.as_json(found))
    else:
        console.show(report.tables(found))
