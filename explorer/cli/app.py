"""The application: its commands, a file each."""

from __future__ import annotations

from typing import Annotated

import typer

from explorer.cli.calibrate import calibrate
from explorer.cli.check import check
from explorer.cli.claims import claims
from explorer.cli.compare import compare
from explorer.cli.evaluate import evaluate
from explorer.cli.export import export
from explorer.cli.list import list_
from explorer.cli.map import map_
from explorer.cli.optimize import optimize
from explorer.cli.pareto import pareto
from explorer.cli.plan import plan
from explorer.cli.report import report
from explorer.cli.run import run
from explorer.cli.show import show
from explorer.cli.stages import costs
from explorer.cli.sweep import sweep
from explorer.cli.validate import validate

app = typer.Typer(
    name="explorer",
    help="Evaluate, compare and search pipeline-parallel training schedules, exactly.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from explorer import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


for name, command in {
    "list": list_,
    "evaluate": evaluate,
    "compare": compare,
    "show": show,
    "costs": costs,
    "plan": plan,
    "report": report,
    "sweep": sweep,
    "map": map_,
    "claims": claims,
    "export": export,
    "check": check,
    "optimize": optimize,
    "pareto": pareto,
    "run": run,
    "calibrate": calibrate,
    "validate": validate,
}.items():
    app.command(name, no_args_is_help=False)(command)
