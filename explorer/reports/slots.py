"""The idealised table as papers print it: time slots across, devices down; as text, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Inapplicable
from explorer.core.op import Kind, Op
from explorer.core.placement import IntArray
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.results import Evaluation, idealised
from explorer.reports import numbers
from explorer.reports.figures.caption import title
from explorer.reports.figures.palette import COLOURS, NAMES

MOST = 1000
"""Slots beyond which nobody reads a table."""


@dataclass(frozen=True)
class Cell:
    """What a device does in one slot or several.

    Parameters
    ----------
    start, slots
        The first slot, and how many.
    ops
        One, or the two of an overlapped pair; none where the device idles.
    text
        How the table calls them; empty for idle.
    """

    start: int
    slots: int
    ops: tuple[Op, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class SlotTable:
    """A schedule in time slots.

    Parameters
    ----------
    title, caption
        What it is, and what a slot stands for.
    slots
        How many.
    rows
        For each device its cells, which cover all slots.
    """

    title: str
    caption: str
    slots: int
    rows: tuple[tuple[Cell, ...], ...]


def slot_table(result: Evaluation) -> SlotTable:
    """The table of an evaluated schedule, without transfers and synchronisation.

    Ops take their own abstract times; where costs are modelled, those that papers draw: forward 1, backward 2 (or input
    gradient 1 and weight gradient 1) for a device's share of the model.

    Raises
    ------
    Inapplicable
        If the table has more than `MOST` slots.
    """
    problem, said = _drawn_costs(result)
    timeline = evaluate(result.schedule, problem)
    slot = int(np.gcd.reduce(np.concatenate([timeline.start, timeline.end]))) or 1
    slots = timeline.makespan // slot
    if slots > MOST:
        raise Inapplicable(
            f"the table of {result.name} would have {slots} time slots, and {MOST} are the most; "
            "give times with a larger common divisor, such as --forward 1, or fewer microbatches"
        )
    one = numbers.time(problem.time.value(slot), problem.time.unit)
    caption = f"{said} A slot is {one}; {slots} slots."
    rows = tuple(
        tuple(_cells(result.schedule, timeline.start // slot, timeline.end // slot, device, slots))
        for device in range(result.schedule.devices)
    )
    return SlotTable(title(result), caption, slots, rows)


def _drawn_costs(result: Evaluation) -> tuple[Problem, str]:
    if not result.problem.time.rounds:
        return idealised(result.problem), "Without transfers and synchronisation."
    problem = AbstractCosts().problem(result.schedule.placement)
    return problem, "Forward 1, backward 2 on a device's share of the model, without transfers and synchronisation."


def _cells(schedule: Schedule, start: IntArray, end: IntArray, device: int, slots: int) -> Iterator[Cell]:
    several = len(schedule.placement.routes) > 1 or schedule.placement.stages > schedule.devices
    reached = 0
    for row in schedule.rows(device):
        if schedule.joined[row] or start[row] == end[row]:
            continue
        if start[row] > reached:
            yield Cell(reached, int(start[row]) - reached)
        paired = row + 1 < len(schedule) and schedule.joined[row + 1]
        ops = tuple(schedule.op(r) for r in ((row, row + 1) if paired else (row,)))
        text = "+".join(str(op) if several else f"{op.kind.name}{op.microbatch}" for op in ops)
        reached = int(end[row])
        yield Cell(int(start[row]), reached - int(start[row]), ops, text)
    if reached < slots:
        yield Cell(reached, slots - reached)


def text(table: SlotTable) -> Iterator[str]:
    """Lines of plain text, a column a slot."""
    width = _width(table)
    gutter = len(str(len(table.rows) - 1))
    yield f"{table.title}\n{table.caption}\n\n"
    yield " " * gutter + " " + "".join(" " + str(slot).center(width - 1) for slot in range(table.slots)).rstrip() + "\n"
    for device, cells in enumerate(table.rows):
        shown = "".join("|" + cell.text.center(cell.slots * width - 1) for cell in cells)
        yield f"{device:>{gutter}} {shown}|\n"


def _width(table: SlotTable) -> int:
    """Characters a slot, its border included, so that every text fits its cell."""
    needed = [-(-(len(cell.text) + 1) // cell.slots) for cells in table.rows for cell in cells]
    return max([len(str(table.slots - 1)) + 1, *needed])


def markdown(table: SlotTable) -> Iterator[str]:
    """A Markdown table; it cannot join cells, so that a longer op stands in each of its slots."""
    yield f"**{table.title}**\n\n"
    yield "| device | " + " | ".join(map(str, range(table.slots))) + " |\n"
    yield "|" + "---|" * (table.slots + 1) + "\n"
    for device, cells in enumerate(table.rows):
        shown = [cell.text for cell in cells for _ in range(cell.slots)]
        yield f"| {device} | " + " | ".join(shown) + " |\n"
    yield f"\n{table.caption}\n"


def latex(table: SlotTable) -> Iterator[str]:
    """A LaTeX ``table`` with coloured cells; the preamble that it needs stands in a comment."""
    kinds = sorted({op.kind for cells in table.rows for cell in cells for op in cell.ops})
    yield "% In the preamble: \\usepackage[table]{xcolor}\n"
    for kind in kinds:
        yield f"\\definecolor{{op{kind.name}}}{{HTML}}{{{COLOURS[kind][1:].upper()}}} % {NAMES[kind]}\n"
    yield "\\begin{table}\n  \\centering\\setlength{\\tabcolsep}{2pt}\\footnotesize\n"
    yield f"  \\begin{{tabular}}{{r|*{{{table.slots}}}{{c|}}}}\n"
    slots = " & ".join(map(str, range(table.slots)))
    yield f"    & {slots} \\\\ \\hline\n"
    for device, cells in enumerate(table.rows):
        yield f"    {device} & " + " & ".join(map(_latex_cell, cells)) + " \\\\ \\hline\n"
    yield f"  \\end{{tabular}}\n  \\caption{{{_escaped(f'{table.title}. {table.caption}')}}}\n\\end{{table}}\n"


def _latex_cell(cell: Cell) -> str:
    if not cell.ops:
        return " & ".join([""] * cell.slots).strip()
    colour = "\\cellcolor{op" + Kind(cell.ops[0].kind).name + "}"
    return f"\\multicolumn{{{cell.slots}}}{{c|}}{{{colour}{cell.text}}}"


def _escaped(said: str) -> str:
    """Text with LaTeX's own characters made harmless."""
    return "".join(
        "\\" + c if c in "#$%&_{}" else {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\^{}"}.get(c, c)
        for c in said
    )
