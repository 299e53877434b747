"""A comparison as HTML: a table with a bar for each schedule, and the timelines on one time axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from html import escape

from explorer.evaluation.reasons import Share
from explorer.evaluation.results import LEVELS, Comparison, Evaluation
from explorer.reports import numbers
from explorer.reports.figures import breakdown
from explorer.reports.figures.breakdown import COLOURS, Bar
from explorer.reports.figures.drawing import Drawing, drawing
from explorer.reports.html.page import VIEWER, page

MOST_OPS = 300_000
"""Ops up to which a page holds timelines: in the comparison's order, and always the first one."""


def comparison(result: Comparison) -> Iterator[str]:
    """A page that compares schedules that flush and shows their timelines."""
    shown = timelines(result.rows)
    title = breakdown.title(result)
    body = [f"<h1>{escape(title)}</h1>", table(result), "<h2>Timelines</h2>", left_out(result, shown), VIEWER]
    return page(title, "\n".join(body), shown)


def timelines(rows: Sequence[Evaluation]) -> list[Drawing]:
    """As many timelines as a page can hold."""
    shown: list[Drawing] = []
    ops = 0
    for row in rows:
        ops += len(row.schedule)
        if shown and ops > MOST_OPS:
            break
        shown.append(drawing(row))
    return shown


def left_out(result: Comparison, shown: Sequence[Drawing]) -> str:
    """Which schedules have no timeline on the page; nothing if all have."""
    names = [row.name for row in result.rows[len(shown) :]]
    return f'<p class="note">Too large to be shown together: {escape(", ".join(names))}.</p>' if names else ""


def table(result: Comparison) -> str:
    """Bars, makespans, ranks and peaks, and what does not exist for the problem."""
    bars = breakdown.bars(result)
    used = [share for share in COLOURS if any(row.shares[share] for row in bars)]
    longest = max(row.makespan for row in bars) or Fraction(1)
    ranks = {level: result.ranks(level) for level in LEVELS}
    head = ["schedule", "makespan", "over the first", "where it goes", "rank by formula", "by table", "by execution"]
    head += ["bubble ratio", "peak memory" if result.rows[0].problem.bytes is not None else "peak activations"]
    limited = any(row.fits_memory is not None for row in result.rows)
    lines = []
    for evaluation, row in zip(result.rows, bars, strict=True):
        over = row.makespan / bars[0].makespan - 1 if bars[0].makespan else None
        cells = [
            escape(row.name),
            numbers.time(row.makespan, evaluation.problem.time.unit),
            numbers.percent(over),
            None,
            *(str(ranks[level].get(row.name, "-")) for level in LEVELS),
            numbers.percent(evaluation.levels["execution"].bubble_ratio),
            breakdown.peak(row.peak, evaluation.problem.bytes is not None),
        ]
        if limited:
            cells.append("yes" if row.fits else "no")
        filled = "".join(
            f"<td>{cell}</td>" if cell is not None else f'<td class="bar-cell">{_bar(row, longest, evaluation)}</td>'
            for cell in cells
        )
        lines.append(f"<tr>{filled}</tr>")
    if limited:
        head.append("fits")
    titles = "".join(f"<th>{name}</th>" for name in head)
    return "\n".join(
        [
            _legend(used),
            f'<div class="scroll"><table class="bars"><thead><tr>{titles}</tr></thead>',
            f"<tbody>{''.join(lines)}</tbody></table></div>",
            f'<p class="caption">{escape(breakdown.costs(result))}</p>',
            *_notes(result),
        ]
    )


def _bar(row: Bar, longest: Fraction, evaluation: Evaluation) -> str:
    unit = evaluation.problem.time.unit
    parts = [(share, time) for share, time in row.shares.items() if time]
    said = ", ".join(f"{share} {numbers.time(time, unit)}" for share, time in parts)
    spans = "".join(
        f'<span style="width:{float(time / longest * 100):.3f}%;background:{COLOURS[share]}"></span>'
        for share, time in parts
    )
    return f'<div class="bar" role="img" title="{said}" aria-label="{said}">{spans}</div>'


def _legend(shares: Sequence[Share]) -> str:
    entries = "".join(
        f'<li><span class="swatch" style="background:{COLOURS[share]}"></span>{share}</li>' for share in shares
    )
    return f'<ul class="legend">{entries}</ul>'


def _notes(result: Comparison) -> Iterator[str]:
    if result.asynchronous:
        names = ", ".join(
            f"{row.name} ({numbers.plain(row.throughput, 4)} microbatches per unit of time)"
            for row in result.asynchronous
        )
        yield f'<p class="note">Without a flush, so that makespans do not compare: {escape(names)}.</p>'
    if result.inapplicable:
        items = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in result.inapplicable.items())
        yield f'<details class="note"><summary>Not for this problem</summary><ul>{items}</ul></details>'
