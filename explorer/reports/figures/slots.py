"""The idealised table as a static figure."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from explorer.core.op import Kind
from explorer.reports.figures import plot
from explorer.reports.figures.shapes import FONT, add_boxes, corners, text_width, tint
from explorer.reports.slots import Cell, SlotTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def slots(table: SlotTable) -> Figure:
    """Draw a table of time slots: a box an op, a line a slot; see `plot.save` for files."""
    devices = len(table.rows)
    text = textwrap.wrap(table.caption, 140)
    row, head, axis, foot = float(np.clip(4 / devices, 0.09, 0.26)), 0.3, 0.36, 0.13 * len(text) + 0.08
    height = head + devices * row + axis + foot
    figure = plot.figure(height)
    axes = figure.add_axes((0.06, (axis + foot) / height, 0.925, devices * row / height))
    axes.set_xlim(0, table.slots)
    axes.set_ylim(devices, 0)
    slot = plot.WIDTH * 72 * 0.925 / table.slots
    axes.vlines(np.arange(1, table.slots), 0, devices, color="#dddddd", linewidth=min(0.4, slot / 20))
    font = min(6.5, 0.75 * 72 * row)
    for device, cells in enumerate(table.rows):
        for cell in cells:
            if cell.ops:
                _cell(axes, device, cell, slot, font)
    axes.hlines(np.arange(devices + 1), 0, table.slots, color="#888888", linewidth=0.4)
    axes.set_yticks(np.arange(devices) + 0.5, [str(device) for device in range(devices)])
    axes.tick_params(axis="both", length=0, pad=2)
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100) if step * slot > 14)
    axes.set_xticks(np.arange(0, table.slots, every) + 0.5, [str(n) for n in range(0, table.slots, every)])
    axes.set_ylabel("device")
    axes.set_xlabel("time slot", labelpad=1)
    figure.suptitle(
        table.title, x=0.06, y=1 - 0.08 / height, ha="left", va="top", fontsize=8.5, fontweight="bold",
    )  # fmt: skip
    figure.text(0.06, foot / height, "\n".join(text), va="top", fontsize=6.5, linespacing=1.35)
    return figure


def _cell(axes: Axes, device: int, cell: Cell, slot: float, font: float) -> None:
    """One box, or two halves, each with its own text where that fits."""
    parts, share = cell.text.split("+"), 1 / len(cell.ops)
    for number, (op, said) in enumerate(zip(cell.ops, parts, strict=True)):
        end = cell.start + cell.slots
        box = corners([device], [cell.start], [end], number * share, (number + 1) * share)
        hatch = {"hatch": "/////"} if op.kind == Kind.I else {}
        add_boxes(
            axes, box, facecolor=tint(op.kind, 0.0), edgecolor=(1, 1, 1, 0.6), linewidth=min(0.4, slot / 20), **hatch
        )
        size = min(font, font * share * 1.25)
        shown = next((s for s in (said, str(op.microbatch)) if text_width(s) * size <= cell.slots * slot - 1.2), "")
        axes.text(
            (cell.start + end) / 2, device + (number + 0.5) * share, shown, fontsize=size, family=FONT, ha="center",
            va="center_baseline", zorder=5,
        )  # fmt: skip
