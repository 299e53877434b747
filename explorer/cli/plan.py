"""`explorer plan`: which degrees, microbatches and schedule for a model on so many devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.options import Json
from explorer.core.errors import UsageError
from explorer.core.units import quantity

if TYPE_CHECKING:
    from explorer.plan.candidates import Candidate, Wish

_UNWEIGHED = (
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
    "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split",
)


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
    """Choose parallel degrees, microbatches, recomputation and a schedule; say why others fall out."""
    from rich.progress import Progress

    from explorer.cli import console
    from explorer.config import catalogue
    from explorer.core.errors import ExplorerError
    from explorer.costs.select import choose
    from explorer.plan import planner, report
    from explorer.plan.candidates import SCHEDULES, Wish, candidates, illegal

    chosen = choose(model, {} if sequence is None else {"sequence": sequence}, None)
    names = SCHEDULES if schedules is None else tuple(dict.fromkeys(planner.known(schedules.split(","))))
    wish = Wish(
        chosen.architecture,
        catalogue.load_system(system),
        devices,
        global_batch,
        chosen.training.sequence,
        names,
        None if mem_limit is None else int(quantity(mem_limit, "size", "--mem-limit")),
    )
    grid = list(candidates(wish))
    from rich.console import Console

    stderr = Console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as bar:
        task = bar.add_task("evaluating settings", total=len(grid))
        found = planner.plan(wish, grid, top, lambda done: bar.update(task, completed=done))
    said: str | None = None
    if mine is not None:
        own = _own(mine, wish)
        reason = illegal(own, wish)
        try:
            said = f"yours cannot run: {reason}" if reason else report.mine(planner.evaluate(own, wish), found)
        except ExplorerError as error:
            said = f"yours cannot run: {error}"
    if json:
        console.show_json({**report.contract(found), "mine": said})
    else:
        console.show(report.table(found, console.stdout().width))
        for text in (*chosen.architecture.assumed, said):
            if text:
                typer.echo(text)
    if not found.best:
        raise typer.Exit(1)


def _own(text: str, wish: Wish) -> Candidate:
    from explorer.costs.reading.megatron import arguments, settings
    from explorer.plan.candidates import Candidate

    given, written = settings(text, "--mine"), {name: value for name, (value, _) in arguments(text, "--mine").items()}
    _check_agreement(written, wish, int(given["tensor"]) * int(given["pipeline"]) * int(given["context"]))
    layers, pipeline = wish.architecture.layers, int(given["pipeline"])
    virtual = int(given["virtual"])
    if "layers_a_stage" in given:
        each = int(given["layers_a_stage"])
        if layers % (pipeline * each):
            raise UsageError(
                f"--mine: {layers} layers on {pipeline} devices with {each} a virtual stage: only "
                f"{layers // (pipeline * each) * pipeline * each} would be placed"
            )
        virtual = layers // (pipeline * each)
    own = Candidate(
        int(given["tensor"]),
        pipeline,
        int(given["microbatch"]),
        "interleaved-1f1b" if virtual > 1 else "1f1b",
        virtual,
        str(given["recompute"]),
        int(given["expert"]),
        int(given["context"]),
        sequence_parallel=written.get("--sequence-parallel", "false").lower() != "false",
        distributed_optimizer=written.get("--use-distributed-optimizer", "false").lower() != "false",
    )
    layout = written.get("--pipeline-model-parallel-layout")
    return own if layout is None else _with_layout(own, layout, wish)


def _with_layout(own: Candidate, layout: str, wish: Wish) -> Candidate:
    """A setting whose layers are spread as a layout says, if that is one of the two ways that a plan weighs."""
    from explorer.costs.layout import parse_layout

    pieces, virtual = parse_layout(layout, wish.architecture, own.pipeline)
    laid = replace(own, virtual=virtual, schedule="interleaved-1f1b" if virtual > 1 else "1f1b")
    for by_time in (False, True):
        if (candidate := replace(laid, balanced=by_time)).pieces(wish) == pieces:
            return candidate
    raise UsageError(
        "--mine: a plan weighs layers spread evenly and balanced by time, and this layout is neither; evaluate it with "
        "`explorer evaluate --layout`"
    )


def _check_agreement(written: dict[str, str], wish: Wish, group: int) -> None:
    """Arguments that contradict the question, or that a plan does not weigh, are errors: they would be passed over."""
    architecture = wish.architecture
    asked = {
        "--global-batch-size": wish.global_batch,
        "--seq-length": wish.sequence,
        "--num-layers": architecture.layers,
        "--hidden-size": architecture.hidden,
        "--num-attention-heads": architecture.heads,
    }
    if wish.devices % group == 0:
        asked["--data-parallel-size"] = wish.devices // group
    for name, value in asked.items():
        if name in written and written[name] != str(value):
            raise UsageError(f"--mine: {name} {written[name]} contradicts the {value} that the plan is for")
    for name in _UNWEIGHED:
        if name in written:
            raise UsageError(f"--mine: {name} is not weighed by plan, whose layers are spread evenly; leave it out")
