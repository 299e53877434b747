"""A frontier, as a person reads it."""

from __future__ import annotations

from fractions import Fraction

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
            reason = outcome.reason if isinstance(outcome, Infeasible) else ""
            table.add_row(point.limit.text, "-", "-", Text("infeasible", "red"), "", reason)
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
    held = "memory" if in_bytes(result) else "activations"
    for column in ("schedule", held, "span" if span else "makespan", "over the frontier"):
        table.add_column(column, justify="left" if column == "schedule" else "right")
    for row in sorted(result.compared, key=lambda one: (memory(one, result), one.makespan)):
        own = row.longest_device_span if span else row.makespan
        best = within(row, result)
        over = "-" if not best else f"{float(own / result.problem.time.value(best) - 1) * 100:+.1f}%"
        name = row.name if row.same_placement else f"{row.name} (another placement)"
        needs = memory(row, result)
        shown = numbers.size(int(needs)) if in_bytes(result) else numbers.plain(needs)
        table.add_row(name, shown, numbers.time(own, unit), over)
    return table


def in_bytes(result: Frontier) -> bool:
    """Whether memory is in bytes here: it is as soon as a limit is."""
    return any(point.limit.in_bytes for point in result.points)


def memory(row: Compared, result: Frontier) -> Fraction:
    """What a named schedule needs of a device, as the limits count it: bytes with static memory, or activations."""
    return Fraction(row.peak_memory or 0) if in_bytes(result) else row.peak_activations


def within(row: Compared, result: Frontier) -> int:
    """The best of the points whose limit a schedule's memory reaches; 0 if there is none."""
    return min(
        (
            ticks
            for point in result.points
            if max(point.limit.per_device) * (1 if point.limit.in_bytes else result.problem.stash.unit)
            <= (row.peak_memory or 0 if point.limit.in_bytes else row.peak_activations)
            and (ticks := _ticks(point, result))
        ),
        default=0,
    )
