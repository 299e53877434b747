"""What a search found, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from explorer.evaluation.memory import peaks
from explorer.evaluation.metrics import critical_path, split
from explorer.reports import numbers
from solvers.incumbent import Progress
from solvers.losses import Loss, losses
from solvers.optimise import Optimum
from solvers.outcome import Infeasible, Proved
from solvers.scope import Objective


def optimum(result: Optimum) -> RenderableType:
    """The answer, where its time goes, and the named schedules beside it."""
    return Group(_answer(result), *_explained(result), _compared(result))


def progress(now: Progress, result_unit: tuple[Fraction, str], time_limit: float) -> Text:
    """One line on a search under way."""
    tick, unit = result_unit
    best, bound = (numbers.time(ticks * tick, unit) for ticks in (now.best, now.bound))
    share = numbers.percent(Fraction(now.best - now.bound, now.best)) if now.best else "0%"
    left = "" if time_limit == float("inf") else f", {max(0, time_limit - now.seconds):.0f} s left"
    return Text(f"{now.doing}: best {best}, bound {bound}, gap {share}; {now.seconds:.0f} s{left}")


def _answer(result: Optimum) -> RenderableType:
    answer, outcome, unit = result.answer, result.answer.outcome, result.problem.time.unit
    if isinstance(outcome, Infeasible):
        return Text.assemble(("infeasible", "bold red"), f": {outcome.reason}")
    value, timeline, bound = result.problem.time.value, outcome.timeline, answer.bound
    assert bound is not None, "what is found has a bound"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column()
    proved = isinstance(outcome, Proved)
    span = result.settings.objective is Objective.SPAN
    whole = "" if result.settings.split else " of whole backwards"
    status = f"proved: no order{whole} on this placement is better" if proved else "found, not proved"
    if answer.interrupted:
        status += " (interrupted)"
    grid.add_row("status", Text(status, "bold green" if proved else "bold yellow"))
    grid.add_row("longest device span", numbers.time(value(int(timeline.spans.max())), unit))
    grid.add_row("makespan", numbers.time(value(timeline.makespan), unit))
    of = " of the longest device span" if span else ""
    grid.add_row(f"bound{of}", f"{numbers.time(value(bound.ticks), unit)}; gap {100 * float(result.gap):.2f}%")
    grid.add_row("it rests on", bound.reason)
    stash = result.problem.stash
    most = stash.unit * int(peaks(timeline.schedule, result.problem, stash).max())
    limit = result.problem.memory_limit
    grid.add_row("peak activations", numbers.plain(most) + (f" (limit {limit.text})" if limit else ""))
    grid.add_row("seed, and found by", f"{answer.seeded_by}; {answer.found_by}")
    grid.add_row("search", f"{answer.seconds:.1f} s, {result.settings.workers} workers, seed {result.settings.seed}")
    return grid


def _explained(result: Optimum) -> list[RenderableType]:
    timeline, problem = result.timeline, result.problem
    if timeline is None:
        return []
    value, unit = problem.time.value, problem.time.unit
    path = split(critical_path(timeline, problem), problem)
    parts = ", ".join(f"{part} {numbers.time(value(ticks), unit)}" for part, ticks in path.items() if ticks)
    lost = losses(timeline, problem)
    shares = ", ".join(f"{loss} {numbers.time(t * problem.time.tick, unit)}" for loss, t in lost.items() if t)
    return [
        Text(f"critical path: {parts or 'nothing takes time'}", "dim"),
        Text(f"idle time of a device, on average: {shares or 'none'}", "dim"),
    ]


def _compared(result: Optimum) -> RenderableType:
    unit, timeline = result.problem.time.unit, result.timeline
    span = result.settings.objective is Objective.SPAN
    table = Table(title="Named schedules beside it", title_justify="left")
    table.add_column("schedule", overflow="fold")
    for column in ("span" if span else "makespan", "ratio", "activations", "fits", "loses most by"):
        table.add_column(column, justify="left" if column == "loses most by" else "right")
    ours = None
    if timeline is not None:
        ours = {k: v * result.problem.time.tick for k, v in losses(timeline, result.problem).items()}
    for row in result.compared:
        name = row.name if row.same_placement else f"{row.name} (another placement)"
        table.add_row(
            name,
            numbers.time(row.longest_device_span if span else row.makespan, unit),
            "-" if row.ratio is None else f"{float(row.ratio):.3f}",
            numbers.plain(row.peak_activations),
            Text("yes", "green") if row.fits_memory else Text("no", "red"),
            "" if ours is None else _worst(ours, dict(row.losses), unit),
        )
    return table


def _worst(ours: dict[Loss, Fraction], theirs: dict[Loss, Fraction], unit: str) -> str:
    """The part by which a schedule's devices are idle longest over ours."""
    more = {loss: theirs[loss] - ours[loss] for loss in Loss}
    loss = max(more, key=lambda one: more[one])
    return f"{loss} (+{numbers.time(more[loss], unit)})" if more[loss] > 0 else ""


def replayed(findings: Iterable[tuple[str, str, bool | None]]) -> RenderableType:
    """What a replay found: each what was looked at, what came out, and whether it holds."""
    table = Table.grid(padding=(0, 2))
    for what, said, holds in findings:
        mark = {True: Text("holds", "green"), False: Text("fails", "bold red"), None: Text("not checked", "dim")}[holds]
        table.add_row(mark, Text(what, "bold"), said)
    return table
