"""A frontier, as a person reads it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from explorer.reports import numbers
from solvers.incumbent import measured
from solvers.optimise import Compared
from solvers.outcome import Infeasible, Proved
from solvers.pareto import Frontier, Point
from solvers.scope import Objective

WIDTH = 40
"""Characters of the longest bar."""


def frontier(result: Frontier) -> RenderableType:
    """Every limit with its best makespan and bound; the named schedules by their memory."""
    needs = f"at least {numbers.plain(result.least)} activations a device are needed: {result.infeasible}"
    return Group(_points(result), Text(needs, "dim"), _named(result))


def _points(result: Frontier) -> Table:
    unit, value = result.problem.time.unit, result.problem.time.value
    span = result.settings.objective is Objective.SPAN
    table = Table(title=f"{'Longest device span' if span else 'Makespan'} against memory", title_justify="left")
    table.add_column("limit", justify="right")
    table.add_column("best", justify="right")
    table.add_column("bound", justify="right")
    for column in ("status", "", "it rests on"):
        table.add_column(column, overflow="fold")
    longest = max((ticks for point in result.points if (ticks := _ticks(point, result))), default=1)
    for point in result.points:
        outcome, bound, ticks = point.answer.outcome, point.answer.bound, _ticks(point, result)
        if isinstance(outcome, Infeasible) or bound is None:
            table.add_row(point.limit.text, "-", "-", Text("infeasible", "red"), "", "")
            continue
        proved = isinstance(outcome, Proved)
        table.add_row(
            point.limit.text, numbers.time(value(ticks), unit), numbers.time(value(bound.ticks), unit),
            Text("proved", "green") if proved else Text("found", "yellow"),
            "█" * max(1, ticks * WIDTH // longest), bound.reason,
        )  # fmt: skip
    return table


def _ticks(point: Point, result: Frontier) -> int:
    outcome = point.answer.outcome
    return 0 if isinstance(outcome, Infeasible) else measured(outcome.timeline, result.settings.objective)


def _named(result: Frontier) -> Table:
    unit, span = result.problem.time.unit, result.settings.objective is Objective.SPAN
    table = Table(title="Named schedules", title_justify="left")
    for column in ("schedule", "activations", "span" if span else "makespan", "over the frontier"):
        table.add_column(column, justify="left" if column == "schedule" else "right")
    for row in sorted(result.compared, key=lambda one: (one.peak_activations, one.makespan)):
        own = row.longest_device_span if span else row.makespan
        best = _within(row, result)
        over = "-" if not best else f"{float(own / result.problem.time.value(best) - 1) * 100:+.1f}%"
        name = row.name if row.same_placement else f"{row.name} (another placement)"
        table.add_row(name, numbers.plain(row.peak_activations), numbers.time(own, unit), over)
    return table


def _within(row: Compared, result: Frontier) -> int:
    """The best of the points whose limit a schedule's memory reaches; 0 if there is none, or limits are in bytes."""
    unit = result.problem.stash.unit
    return min(
        (
            ticks
            for point in result.points
            if not point.limit.in_bytes and max(point.limit.per_device) * unit <= row.peak_activations
            and (ticks := _ticks(point, result))
        ),
        default=0,
    )  # fmt: skip
