"""`explorer plan`: which degrees, microbatches and schedule for a model on so many devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.options import Json
from explorer.core.errors import ExplorerError
from explorer.core.units import quantity

if TYPE_CHECKING:
    from explorer.plan.candidates import Wish
    from explorer.plan.planner import Plan


def plan(
    model: Annotated[str, typer.Option("--model", help="Model, by name or file, as for `evaluate`.")],
    system: Annotated[str, typer.Option("--system", help="System, by name or TOML file.")],
    devices: Annotated[int, typer.Option("--devices", help="Devices in all.")],
    global_batch: Annotated[int, typer.Option("--global-batch", help="Sequences an iteration.")],
    sequence: Annotated[
        int | None, typer.Option("--sequence", help="Tokens a sequence (default: the model file's, or 4096).")
    ] = None,
    schedules: Annotated[
        str | None, typer.Option("--schedules", help="Schedules to try, such as 1f1b,zb-v (default: five).")
    ] = None,
    mem_limit: Annotated[
        str | None, typer.Option("--mem-limit", help="Of each device, such as 76GiB (default: all of it).")
    ] = None,
    top: Annotated[int, typer.Option("--top", help="How many to show.", min=1, max=1000)] = 10,
    mine: Annotated[
        str | None, typer.Option("--mine", help="Your own Megatron-LM arguments, to be held against the best.")
    ] = None,
    json: Json = False,
) -> None:
    """Choose parallel degrees, microbatches, recomputation and a schedule; say why others fall out.

    Interrupted, it prints the best so far. Exit code 1 if nothing fits, 130 if interrupted.
    """
    from explorer.cli import console
    from explorer.cli.boundary import INTERRUPTED
    from explorer.config import catalogue
    from explorer.costs.select import choose
    from explorer.plan import planner, report
    from explorer.plan.candidates import SCHEDULES, Wish, candidates

    chosen = choose(model, {} if sequence is None else {"sequence": sequence}, None)
    names = SCHEDULES if schedules is None else tuple(dict.fromkeys(planner.known(schedules.split(","))))
    limit = None if mem_limit is None else int(quantity(mem_limit, "size", "--mem-limit"))
    system_of = catalogue.load_system(system)
    wish = Wish(chosen.architecture, system_of, devices, global_batch, chosen.training.sequence, names, limit)
    grid = list(candidates(wish))
    with _progress(len(grid)) as advance:
        found = planner.plan(wish, grid, top, advance)
    said = None if mine is None else _mine(mine, wish, found)
    if json:
        console.show_json({**report.contract(found), "mine": said})
    else:
        console.show(report.table(found, ("--model", model, "--system", system), console.stdout().width))
        for text in (*chosen.architecture.assumed, said):
            if text:
                typer.echo(text)
    if found.interrupted or not found.best:
        raise typer.Exit(INTERRUPTED if found.interrupted else 1)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr where a person looks."""
    from rich.console import Console
    from rich.progress import Progress

    stderr = Console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task("evaluating settings", total=total)
        yield lambda done: bar.update(task, completed=done)


def _mine(text: str, wish: Wish, found: Plan) -> str:
    """How the user's own setting stands."""
    from explorer.plan import planner, report
    from explorer.plan.candidates import illegal
    from explorer.plan.own import own_setting

    own = own_setting(text, wish)
    try:
        reason = illegal(own, wish)
        if reason is None:
            return report.mine(planner.evaluate(own, wish), found)
    except ExplorerError as error:
        reason = str(error)
    return f"yours cannot run: {reason}"
