"""The static figure of a timeline: devices down, time to the right, memory below, a legend and a caption."""

from __future__ import annotations

import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from explorer.core.op import KINDS, Kind
from explorer.evaluation.metrics import Part
from explorer.reports.figures import palette, plot
from explorer.reports.figures.drawing import FIRST, SECOND, Drawing, FloatArray
from explorer.reports.figures.shapes import FONT, add_boxes, corners, text_width, tint
from explorer.reports.numbers import scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VECTOR_OPS = 6000
"""Ops up to which each is a shape of its own; beyond, a picture of how each sliver of time is spent."""
VECTOR_TRANSFERS = 1200
"""Transfers up to which they are drawn."""
COLUMNS = int(plot.WIDTH * 0.91 * plot.DPI)
"""One a pixel."""
_PER_LINE = 7


def timeline(drawn: Drawing) -> Figure:
    """Draw a timeline; see `plot.save` for files."""
    from matplotlib.gridspec import GridSpec

    devices = drawn.schedule.devices
    row = max(float(np.clip(3.0 / devices, 0.05, 0.3)), 0.6 / devices)
    rows, strips = devices * row, devices * max(0.7 * row, 0.05)
    text = textwrap.wrap(drawn.caption + _left_out(drawn), 140)
    handles = _legend(drawn)
    lines = -(-len(handles) // _PER_LINE)
    head, gap, legend, foot = 0.3, 0.12, 0.4 + 0.15 * lines, 0.13 * len(text) + 0.08
    height = head + rows + gap + strips + legend + foot
    figure = plot.figure(height)
    grid = GridSpec(
        2, 1, figure, height_ratios=[rows, strips], left=0.075, right=0.985, top=1 - head / height,
        bottom=(legend + foot) / height, hspace=2 * gap / (rows + strips),
    )  # fmt: skip
    above = figure.add_subplot(grid[0])
    below = figure.add_subplot(grid[1], sharex=above)
    unit = _time_axis(drawn, below)
    above.tick_params(labelbottom=False)
    _devices_axis(above, devices, row, "device")
    _devices_axis(below, devices, strips / devices, "memory")
    _background(drawn, above)
    if len(drawn.schedule) <= VECTOR_OPS:
        _ops(drawn, above)
        _labels(drawn, above, row)
    else:
        _slivers(drawn, above)
    _syncs(drawn, above)
    _crossings(drawn, above)
    _critical(drawn, above)
    _memory(drawn, below)
    below.set_xlabel(f"time ({unit})" if unit else "time", labelpad=1)
    figure.suptitle(drawn.title, x=0.075, y=1 - 0.08 / height, ha="left", va="top", fontsize=8.5, fontweight="bold")
    figure.text(0.075, foot / height, "\n".join(text), va="top", fontsize=6.5, linespacing=1.35)
    figure.legend(
        handles=handles, loc="lower left", bbox_to_anchor=(0.065, foot / height), ncols=_PER_LINE, fontsize=6.5,
        borderaxespad=0.1, columnspacing=1.0, handlelength=1.3, handletextpad=0.4,
    )  # fmt: skip
    return figure


def _left_out(drawn: Drawing) -> str:
    said = ""
    if len(drawn.crossings.sent) and not _shows_transfers(drawn):
        said += f" {len(drawn.crossings.sent)} transfers not drawn."
    if len(drawn.schedule) > VECTOR_OPS:
        said += f" {len(drawn.schedule)} ops: colours mix where several share a point."
    return said


def _shows_transfers(drawn: Drawing) -> bool:
    """Whether there are transfers, few enough and between ops wide enough not to hide what is below."""
    return 0 < len(drawn.crossings.sent) <= VECTOR_TRANSFERS and not _narrow(drawn)


def _time_axis(drawn: Drawing, axes: Axes) -> str:
    """Ticks stay the data's unit; the labels are in the unit that suits. The unit's name."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    time = drawn.problem.time
    whole = max(drawn.timeline.makespan, 1)
    factor, unit = scale(time.value(whole), time.unit)
    per_tick = float(time.tick / factor)
    axes.set_xlim(0, whole)
    steps = MaxNLocator(9, steps=[1, 2, 2.5, 5, 10]).tick_values(0, whole * per_tick)
    axes.set_xticks([step / per_tick for step in steps if 0 <= step <= whole * per_tick * (1 + 1e-9)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * per_tick:.6g}"))
    return unit


def _devices_axis(axes: Axes, devices: int, height: float, name: str) -> None:
    """Device 0 on top; a number at every row that has room for it."""
    every = next(step for step in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048) if step * height > 0.11)
    axes.set_ylim(devices, 0)
    axes.set_yticks(np.arange(0, devices, every) + 0.5, [str(d) for d in range(0, devices, every)])
    axes.tick_params(axis="y", length=0, pad=2)
    axes.set_ylabel(name)
    axes.spines["left"].set_visible(False)


def _background(drawn: Drawing, axes: Axes) -> None:
    """Idle time, and the parts of it in which a transfer is waited for or a send keeps the device."""
    every = np.arange(drawn.schedule.devices)
    whole = np.full(len(every), max(drawn.timeline.makespan, 1))
    add_boxes(axes, corners(every, 0 * every, whole, 0.06, 0.94), facecolor=palette.IDLE_COLOUR, linewidth=0)
    if len(drawn.schedule) > VECTOR_OPS:
        return
    waits, sends = drawn.waits, drawn.sends
    add_boxes(
        axes, corners(waits.device, waits.start, waits.end, 0.06, 0.94), facecolor=palette.WAIT_COLOUR, linewidth=0,
    )  # fmt: skip
    add_boxes(
        axes, corners(sends.device, sends.start, sends.end, 0.06, 0.94), facecolor=palette.WAIT_COLOUR, hatch="//////",
        edgecolor=palette.TRANSFER_COLOUR, linewidth=0,
    )  # fmt: skip


def _extent(drawn: Drawing) -> tuple[FloatArray, FloatArray]:
    """Where in its row an op stands: over all of it, or over one half of an overlapped pair's; syncs need a lane."""
    bottom = 0.72 if len(drawn.synced) else 0.94
    middle = (0.06 + bottom) / 2
    return np.where(drawn.part == SECOND, middle, 0.06), np.where(drawn.part == FIRST, middle, bottom)


def _ops(drawn: Drawing, axes: Axes) -> None:
    schedule, (top, bottom) = drawn.schedule, _extent(drawn)
    line = 0.35 if len(schedule) < 120 * schedule.devices else 0.15
    for kind in KINDS:
        own = schedule.kind == kind
        boxes = corners(schedule.device[own], drawn.timeline.start[own], drawn.timeline.end[own], top[own], bottom[own])
        colours = [tint(kind, shade) for shade in drawn.shade[own].tolist()]
        add_boxes(axes, boxes, facecolor=colours, edgecolor="white", linewidth=line)
        if kind is Kind.I:  # as bright as F in print without colour
            add_boxes(axes, boxes, facecolor="none", edgecolor=(0, 0, 0, 0.35), hatch="/////", linewidth=0)


def _slivers(drawn: Drawing, axes: Axes) -> None:
    """Each column of pixels in the mixture of what the device does in its time."""
    shares = drawn.shares(COLUMNS)
    shares = shares / np.maximum(shares.sum(0), 1.0)
    colours = np.array([palette.channels(palette.COLOURS[kind]) for kind in KINDS])
    idle = np.array(palette.channels(palette.IDLE_COLOUR))
    image = np.einsum("kdc,kr->dcr", shares, colours) + (1 - shares.sum(0))[..., None] * idle
    extent = (0.0, float(max(drawn.timeline.makespan, 1)), float(drawn.schedule.devices), 0.0)
    axes.imshow(image.clip(0, 1), extent=extent, aspect="auto", interpolation="nearest", zorder=1)
    if drawn.schedule.devices <= 32:  # thinner rows would be blurred by lines between them
        axes.hlines(np.arange(1, drawn.schedule.devices), 0, extent[1], color="white", linewidth=0.4, zorder=2)


def _labels(drawn: Drawing, axes: Axes, row: float) -> None:
    """Kind and microbatch on ops where that fits, else the microbatch alone, else nothing.

    What fits is judged by the longest microbatch number, so that equal ops are labelled alike.
    """
    longest = "0" * len(str(drawn.schedule.microbatches - 1))
    schedule, (top, bottom) = drawn.schedule, _extent(drawn)
    points, fonts = _points_a_tick(drawn), np.minimum(6.5, 0.8 * 72 * row * (bottom - top))
    for number in np.flatnonzero(fonts >= 3.5).tolist():
        start, end, op = drawn.timeline.start[number], drawn.timeline.end[number], schedule.op(number)
        room = float(end - start) * points - 1.2
        for letter in (op.kind.name, ""):
            if text_width(letter + longest) * fonts[number] <= room:
                height = schedule.device[number] + (top[number] + bottom[number]) / 2
                axes.text(
                    (start + end) / 2, height, f"{letter}{op.microbatch}", fontsize=fonts[number], family=FONT,
                    ha="center", va="center_baseline", zorder=5, clip_on=True, gid=f"label-{number}",
                )  # fmt: skip
                break


def _syncs(drawn: Drawing, axes: Axes) -> None:
    syncs = drawn.syncs
    boxes = corners(syncs.device, syncs.start, syncs.end, 0.75, 0.94)
    add_boxes(axes, boxes, facecolor=palette.SYNC_COLOUR, edgecolor="white", linewidth=0.3, zorder=3)
    updates = drawn.updates
    boxes = corners(updates.device, updates.start, updates.end, 0.06, 0.94)
    add_boxes(axes, boxes, facecolor=palette.STEP_COLOUR, edgecolor="white", linewidth=0.3, zorder=3)


def _crossings(drawn: Drawing, axes: Axes) -> None:
    """From the sender at the transfer's start to the receiver at its arrival."""
    from matplotlib.collections import LineCollection

    crossings = drawn.crossings
    if not _shows_transfers(drawn):
        return
    device = drawn.schedule.device
    start = np.stack([crossings.sent, _edge(device, crossings.source, crossings.target)], 1)
    end = np.stack([crossings.arrival, _edge(device, crossings.target, crossings.source)], 1)
    weight = 0.6 if len(crossings.sent) <= 300 else 0.35
    axes.add_collection(
        LineCollection(
            list(np.stack([start, end], 1)), colors=palette.TRANSFER_COLOUR, linewidths=weight, zorder=4, alpha=0.9
        ),
        autolim=False,
    )
    axes.scatter(end[:, 0], end[:, 1], s=3 * weight, color=palette.TRANSFER_COLOUR, linewidths=0, zorder=4)


def _edge(device: Any, row: Any, other: Any) -> FloatArray:
    """The edge of a row's box that faces another device's."""
    edges: FloatArray = device[row] + np.where(device[other] > device[row], 0.88, 0.12)
    return edges


def _critical(drawn: Drawing, axes: Axes) -> None:
    """A frame around each op of the critical path and lines between them; one line through all where ops are narrow."""
    from matplotlib.collections import LineCollection

    schedule, (top, bottom) = drawn.schedule, _extent(drawn)
    framed = np.array([step.row for step in drawn.path if step.part is Part.COMPUTE], np.int64)
    stops = _stops(drawn, (top + bottom) / 2)
    if _narrow(drawn):
        line = [end for stop in stops for end in stop]
        axes.plot(*zip(*line, strict=True), color="black", linewidth=0.8, zorder=4.5)
        return
    moves = [(end, start) for (_, end), (start, _) in pairwise(stops) if end != start]
    axes.add_collection(LineCollection(moves, colors="black", linewidths=0.8, zorder=4.5), autolim=False)
    boxes = corners(
        schedule.device[framed], drawn.timeline.start[framed], drawn.timeline.end[framed], top[framed], bottom[framed]
    )
    add_boxes(axes, boxes, facecolor="none", edgecolor="black", linewidth=0.9, zorder=4.5)


def _narrow(drawn: Drawing) -> bool:
    """Whether ops are too narrow to be framed."""
    return bool(np.median(drawn.timeline.end - drawn.timeline.start) * _points_a_tick(drawn) < 4)


def _stops(drawn: Drawing, middle: FloatArray) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Both ends, as points, of all that the critical path computes, synchronises and updates."""
    stops = []
    for step in drawn.path:
        if step.part is Part.COMPUTE:
            height = drawn.schedule.device[step.row] + middle[step.row]
        elif step.part is Part.SYNCHRONISATION:
            same = (drawn.syncs.start == step.start) & (drawn.syncs.end == step.end)
            height = drawn.syncs.device[np.flatnonzero(same)[0]] + 0.845
        elif step.part is Part.OPTIMIZER:
            same = (drawn.updates.start == step.start) & (drawn.updates.end == step.end)
            height = drawn.updates.device[np.flatnonzero(same)[0]] + 0.5
        else:
            continue
        stops.append(((float(step.start), float(height)), (float(step.end), float(height))))
    return stops


def _points_a_tick(drawn: Drawing) -> float:
    """Points on paper that a tick takes."""
    return plot.WIDTH * 0.91 * 72 / max(drawn.timeline.makespan, 1)


def _memory(drawn: Drawing, axes: Axes) -> None:
    """One strip a device, all to the same scale: what it holds, and the limit as a line."""
    memory = drawn.memory
    top = memory.top * 1.08
    for device in range(drawn.schedule.devices):
        ticks, held = drawn.memory_curve(device)
        floor = device + 0.96
        axes.fill_between(
            ticks, floor, floor - 0.92 * held / top, step="post", color=palette.MEMORY_COLOUR, linewidth=0,
            rasterized=len(drawn.schedule) > VECTOR_OPS,
        )  # fmt: skip
        axes.hlines(floor, 0, ticks[-1], color="#444444", linewidth=0.3)
        if memory.limit is not None:
            over = np.maximum(held, memory.limit[device])
            axes.fill_between(
                ticks, floor - 0.92 * memory.limit[device] / top, floor - 0.92 * over / top, step="post",
                color=palette.OVER_COLOUR, linewidth=0, rasterized=len(drawn.schedule) > VECTOR_OPS,
            )  # fmt: skip
            level = floor - 0.92 * float(memory.limit[device]) / top
            axes.hlines(level, 0, ticks[-1], color=palette.LIMIT_COLOUR, linewidth=0.7, linestyle=(0, (4, 2)))


def _legend(drawn: Drawing) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    few = len(drawn.schedule) <= VECTOR_OPS
    entries: list[Any] = []
    for kind in KINDS:
        if (drawn.schedule.kind == kind).any():
            hatch = "/////" if kind is Kind.I and few else None
            entries.append(
                Patch(facecolor=tint(kind, 0), edgecolor=(0, 0, 0, 0.35), linewidth=0, hatch=hatch,
                      label=f"{kind.name} {palette.NAMES[kind]}")
            )  # fmt: skip
    entries.append(Patch(facecolor=palette.IDLE_COLOUR, label="idle"))
    if few and len(drawn.waits.start):
        entries.append(Patch(facecolor=palette.WAIT_COLOUR, label="waits for a transfer"))
    if few and len(drawn.sends.start):
        entries.append(
            Patch(
                facecolor=palette.WAIT_COLOUR,
                edgecolor=palette.TRANSFER_COLOUR,
                linewidth=0,
                hatch="//////",
                label="sends",
            )
        )
    if _shows_transfers(drawn):
        entries.append(Line2D([], [], color=palette.TRANSFER_COLOUR, linewidth=0.8, label="transfer"))
    if len(drawn.synced):
        entries.append(Patch(facecolor=palette.SYNC_COLOUR, label="gradient synchronisation"))
    if len(drawn.updates.start):
        entries.append(Patch(facecolor=palette.STEP_COLOUR, label="optimiser step"))
    path: dict[str, Any] = {"linewidth": 0.9, "label": "critical path"}
    entries.append(
        Line2D([], [], color="black", **path) if _narrow(drawn) else Patch(facecolor="none", edgecolor="black", **path)
    )
    if drawn.memory.limit is not None:
        entries.append(Line2D([], [], color=palette.LIMIT_COLOUR, linewidth=0.8, linestyle="--", label="memory limit"))
    return entries
