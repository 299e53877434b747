"""The static figure of a comparison: where each schedule's makespan goes, and its peak of memory beside it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from explorer.evaluation.reasons import Share
from explorer.evaluation.results import Comparison
from explorer.reports import numbers
from explorer.reports.figures import breakdown, palette, plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HATCHES = {
    Share.COMMUNICATION: "////",
    Share.STEADY_STATE: "....",
    Share.SYNCHRONISATION: "xxxx",
    Share.OPTIMIZER: "++++",
}


def comparison(result: Comparison) -> Figure:
    """Draw a comparison of at least one schedule that flushes; see `plot.save` for files."""
    bars = breakdown.bars(result)
    text = textwrap.wrap(breakdown.costs(result) + _left_out(result), 140)
    rows, head, axis, foot = 0.2 * len(bars) + 0.1, 0.3, 0.62, 0.13 * len(text) + 0.08
    height = head + rows + axis + foot
    figure = plot.figure(height)
    longest = max(len(row.name) for row in bars)
    left = min(0.035 + 0.0085 * longest, 0.4)
    times, memory = figure.subplots(
        1, 2, sharey=True,
        gridspec_kw={
            "width_ratios": [3, 1], "left": left, "right": 0.96, "top": 1 - head / height,
            "bottom": (axis + foot) / height, "wspace": 0.16,
        },
    )  # fmt: skip
    _times(times, result, bars)
    _memory(memory, result, bars)
    times.set_ylim(len(bars) - 0.4, -0.6)
    times.set_yticks(range(len(bars)), [row.name for row in bars])
    times.tick_params(axis="y", length=0)
    figure.suptitle(breakdown.title(result), x=0.02, y=1 - 0.08 / height, ha="left", va="top", fontsize=8.5,
                    fontweight="bold")  # fmt: skip
    figure.text(0.02, foot / height, "\n".join(text), va="top", fontsize=6.5, linespacing=1.35)
    handles, labels = times.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0.015, (foot + 0.02) / height), ncols=len(labels),
        fontsize=6.5, borderaxespad=0.1, columnspacing=1.0, handlelength=1.3, handletextpad=0.4,
    )  # fmt: skip
    return figure


def _left_out(result: Comparison) -> str:
    names = ", ".join(row.name for row in result.asynchronous)
    return f" Not shown, without a flush: {names}." if names else ""


def _times(axes: Axes, result: Comparison, bars: list[breakdown.Bar]) -> None:
    unit = result.rows[0].problem.time.unit
    factor, name = numbers.scale(max(row.makespan for row in bars), unit)
    begun = np.zeros(len(bars))
    for share in breakdown.COLOURS:
        spent = np.array([float(row.shares[share] / factor) for row in bars])
        if spent.any():
            axes.barh(
                range(len(bars)), spent, left=begun, height=0.72, color=breakdown.COLOURS[share], label=share.value,
                edgecolor="white", linewidth=0.4, hatch=_HATCHES.get(share),
            )  # fmt: skip
        begun += spent
    for place, row in enumerate(bars):
        axes.annotate(
            numbers.plain(row.makespan / factor, 4), (float(row.makespan / factor), place), xytext=(3, 0),
            textcoords="offset points", va="center", fontsize=6.5,
        )  # fmt: skip
    axes.set_xlim(0, float(max(row.makespan for row in bars) / factor) * 1.1 or 1)
    axes.set_xlabel(f"makespan ({name})" if name else "makespan", labelpad=1)


def _memory(axes: Axes, result: Comparison, bars: list[breakdown.Bar]) -> None:
    in_bytes = result.rows[0].problem.bytes is not None
    limit = breakdown.memory_limit(result)
    factor, name = numbers.size_scale(int(max(row.peak for row in bars))) if in_bytes else (1, "")
    peaks = [float(row.peak / factor) for row in bars]
    colours = [palette.MEMORY_COLOUR if row.fits else palette.OVER_COLOUR for row in bars]
    axes.barh(range(len(bars)), peaks, height=0.72, color=colours)
    for place, row in enumerate(bars):
        axes.annotate(
            breakdown.peak(row.peak, in_bytes) + ("" if row.fits else " ✗"), (peaks[place], place), xytext=(3, 0),
            textcoords="offset points", va="center", fontsize=6.5,
        )  # fmt: skip
    most = max(peaks)
    if limit is not None:
        limit /= factor
        most = max(most, limit)
        axes.axvline(limit, color=palette.LIMIT_COLOUR, linewidth=0.8, linestyle=(0, (4, 2)))
    axes.set_xlim(0, most * 1.5 or 1)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"peak memory ({name})" if in_bytes else "peak activations", labelpad=1)
