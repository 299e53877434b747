"""The static figure of a frontier: makespan against memory, what is proved and what is not, named schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from explorer.reports import numbers
from explorer.reports.figures import palette, plot
from solvers.incumbent import measured
from solvers.outcome import Infeasible, Proved
from solvers.pareto import Frontier
from solvers.scope import Objective

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Step:
    """The best under one limit; memory and times as the figure's axes count them."""

    limit: float
    best: float
    bound: float
    proved: bool


@dataclass(frozen=True)
class Mark:
    """Named schedules at one place; ``own`` if they stand on the frontier's placement."""

    names: tuple[str, ...]
    memory: float
    time: float
    own: bool


@dataclass(frozen=True)
class Curve:
    """A frontier as it is drawn.

    Parameters
    ----------
    title, memory, time
        Of the figure and of its axes.
    too_little
        Up to which memory nothing can run, as far as is known; None if nothing is.
    steps
        From the tightest feasible limit on.
    marks
        Named schedules.
    """

    title: str
    memory: str
    time: str
    too_little: float | None
    steps: tuple[Step, ...]
    marks: tuple[Mark, ...]


def curve(result: Frontier) -> Curve:
    """What there is to draw of a frontier."""
    problem, span = result.problem, result.settings.objective is Objective.SPAN
    in_bytes = any(point.limit.in_bytes for point in result.points)
    largest = max(max(point.limit.per_device) for point in result.points)
    solved = [
        (max(point.limit.per_device), point.answer.outcome, point.answer.bound)
        for point in result.points
        if not isinstance(point.answer.outcome, Infeasible) and point.answer.bound is not None
    ]
    times = [problem.time.value(measured(outcome.timeline, result.settings.objective)) for _, outcome, _ in solved]
    factor, unit = numbers.scale(max(times), problem.time.unit) if times else (1, "")
    held, size = (1, "") if not in_bytes else numbers.size_scale(largest)
    per_unit = 1 / held if in_bytes else float(problem.stash.unit)
    steps = tuple(
        Step(limit * per_unit, float(time / factor), float(problem.time.value(bound.ticks) / factor),
             isinstance(outcome, Proved))
        for (limit, outcome, bound), time in zip(solved, times, strict=True)
    )  # fmt: skip
    groups: dict[tuple[float, float, bool], list[str]] = {}
    for row in result.compared:
        own = row.longest_device_span if span else row.makespan
        needs = (row.peak_memory or 0) * per_unit if in_bytes else float(row.peak_activations)
        groups.setdefault((needs, float(own / factor), row.same_placement), []).append(row.name)
    name = "longest device span" if span else "makespan"
    shown = f"{problem.title}, {result.placement.devices} devices, {result.placement.microbatches} microbatches"
    return Curve(
        title=f"{name[0].upper()}{name[1:]} against memory: {shown}",
        memory=f"memory of a device ({size})" if in_bytes else "activations a device may hold",
        time=f"{name} ({unit})" if unit else name,
        too_little=_too_little(result, per_unit) if in_bytes else float(result.least),
        steps=steps,
        marks=tuple(Mark(tuple(names), *place) for place, names in sorted(groups.items())),
    )


def _too_little(result: Frontier, per_unit: float) -> float | None:
    """The largest limit that was found infeasible."""
    found = [max(p.limit.per_device) for p in result.points if isinstance(p.answer.outcome, Infeasible)]
    return max(found) * per_unit if found else None


def frontier(drawn: Curve) -> Figure:
    """Draw a frontier; see `plot.save` for files."""
    figure = plot.figure(4.2)
    axes = figure.add_axes((0.1, 0.2, 0.88, 0.71))
    _limits(axes, drawn)
    _steps(axes, drawn)
    for mark in drawn.marks:
        axes.plot(
            mark.memory, mark.time, marker="D" if mark.own else "s", markersize=4, linestyle="none", color="#444444",
            markerfacecolor="#444444" if mark.own else "white", markeredgewidth=0.8, zorder=6,
        )  # fmt: skip
    axes.set_xlabel(drawn.memory)
    axes.set_ylabel(drawn.time)
    figure.suptitle(drawn.title, x=0.02, y=0.985, ha="left", va="top", fontsize=8.5, fontweight="bold")
    figure.legend(handles=_legend(drawn), loc="lower left", bbox_to_anchor=(0.015, 0.0), ncols=3, fontsize=6.5)
    _label(figure, axes, drawn)
    return figure


def _limits(axes: Axes, drawn: Curve) -> None:
    """Room for labels around all points; a logarithmic axis of times where they differ much."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    places = [step.limit for step in drawn.steps] + [mark.memory for mark in drawn.marks]
    places += [] if drawn.too_little is None else [drawn.too_little]
    wide = max(places) - min(places) or 1.0
    axes.set_xlim(max(0.0, min(places) - 0.1 * wide), max(places) + 0.14 * wide)
    times = [t for step in drawn.steps for t in (step.best, step.bound)] + [mark.time for mark in drawn.marks]
    low, high = (min(times), max(times)) if times else (0.0, 1.0)
    if low > 0 and high / low > 2.5:
        axes.set_yscale("log")
        axes.set_ylim(low * (low / high) ** 0.15, high * (high / low) ** 0.08)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        tall = max(high - low, 0.02 * high) or 1.0
        axes.set_ylim(low - 0.15 * tall, high + 0.1 * tall)
        axes.ticklabel_format(axis="y", useOffset=False)


def _steps(axes: Axes, drawn: Curve) -> None:
    """The best as a staircase, the bound as another; between them is what is not proved."""
    left, right = axes.get_xlim()
    if drawn.too_little is not None:
        axes.axvspan(left, drawn.too_little, color=palette.IDLE_COLOUR, linewidth=0, zorder=0)
    if not drawn.steps:
        return
    limits = [step.limit for step in drawn.steps] + [right]
    best = [step.best for step in drawn.steps]
    bound = [step.bound for step in drawn.steps]
    axes.fill_between(
        limits, [*bound, bound[-1]], [*best, best[-1]], step="post", color="#cfe3f1", linewidth=0, zorder=1,
    )  # fmt: skip
    axes.step(limits, [*best, best[-1]], where="post", color="#0072b2", linewidth=1.3, zorder=3)
    axes.step(
        limits, [*bound, bound[-1]], where="post", color="#0072b2", linewidth=0.7, linestyle=(0, (3, 2)), zorder=2
    )
    for step in drawn.steps:
        axes.plot(
            step.limit, step.best, marker="o", markersize=5, color="#0072b2", zorder=5,
            markerfacecolor="#0072b2" if step.proved else "white",
        )  # fmt: skip


def _legend(drawn: Curve) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    blue: dict[str, Any] = {"color": "#0072b2", "markersize": 5}
    entries: list[Any] = [Line2D([], [], marker="o", label="best, proved", **blue)]
    if not all(step.proved for step in drawn.steps):
        entries += [
            Line2D([], [], marker="o", markerfacecolor="white", label="best found", **blue),
            Patch(facecolor="#cfe3f1", label="not proved: between bound and best found"),
        ]
    if drawn.too_little is not None:
        entries.append(Patch(facecolor=palette.IDLE_COLOUR, label="too little memory"))
    grey: dict[str, Any] = {"color": "#444444", "linestyle": "none", "markersize": 4}
    for own, label in ((True, "named schedule, this placement"), (False, "named schedule, another placement")):
        if any(mark.own is own for mark in drawn.marks):
            marker: dict[str, Any] = {"marker": "D"} if own else {"marker": "s", "markerfacecolor": "white"}
            entries.append(Line2D([], [], label=label, **marker, **grey))
    return entries


def _label(figure: Figure, axes: Axes, drawn: Curve) -> None:
    """Each mark's names where they hide nothing: beside it, above or below it, or farther off with a line to it."""
    from matplotlib.transforms import Bbox

    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    points = [(m.memory, m.time) for m in drawn.marks] + [(s.limit, s.best) for s in drawn.steps]
    taken = [
        Bbox.from_extents(x - 9, y - 9, x + 9, y + 9) for x, y in axes.transData.transform(np.array(points or [(0, 0)]))
    ]
    ends = [step.limit for step in drawn.steps[1:]] + [axes.get_xlim()[1]]
    for step, end in zip(drawn.steps, ends, strict=False):
        (x0, y0), (x1, _) = axes.transData.transform([(step.limit, step.best), (end, step.best)])
        taken.append(Bbox.from_extents(x0, y0 - 3, x1, y0 + 3))
    inside = axes.get_window_extent(renderer)
    for mark in drawn.marks:
        for reach in (6, 14, 24, 36, 50, 70, 95, 120):
            if _placed(axes, mark, reach, taken, inside, renderer):
                break


def _placed(axes: Axes, mark: Mark, reach: int, taken: list[Any], inside: Any, renderer: Any) -> bool:
    from matplotlib.text import Text

    for x, y, ha, va in (
        (1, 0, "left", "center"), (0.7, 0.7, "left", "bottom"), (0.7, -0.7, "left", "top"), (0, 1, "center", "bottom"),
        (0, -1, "center", "top"), (-1, 0, "right", "center"), (-0.7, 0.7, "right", "bottom"),
        (-0.7, -0.7, "right", "top"),
    ):  # fmt: skip
        text = axes.annotate(
            ", ".join(mark.names), (mark.memory, mark.time), xytext=(x * reach, y * reach), textcoords="offset points",
            ha=ha, va=va, fontsize=6.5, zorder=7,
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": "#777777"} if reach > 6 else None,
        )  # fmt: skip
        text.update_positions(renderer)
        box = Text.get_window_extent(text, renderer)  # without the line to the mark
        free = not any(box.overlaps(other) for other in taken)
        if free and inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1:
            taken.append(box)
            return True
        text.remove()
    return False
