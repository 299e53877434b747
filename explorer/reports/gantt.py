"""A timeline in the terminal: one line a device, time from left to right, as wide as the terminal is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from explorer.core.op import Kind, Op
from explorer.core.placement import IntArray
from explorer.core.schedule import Schedule
from explorer.evaluation.results import Evaluation
from explorer.reports import numbers
from explorer.reports.figures.drawing import FIRST, SECOND, Drawing, drawing
from explorer.reports.figures.palette import COLOURS, NAMES, STEP_COLOUR, SYNC_COLOUR, TRANSFER_COLOUR

STYLES = {kind: f"black on {colour}" for kind, colour in COLOURS.items()}
IDLE, WAIT, SEND, SYNC, STEP = "·", "~", ">", "=", "#"
MARKS = {
    IDLE: ("dim", "idle"),
    WAIT: (TRANSFER_COLOUR, "waits for a transfer"),
    SEND: (TRANSFER_COLOUR, "kept by its send"),
    SYNC: (f"black on {SYNC_COLOUR}", "synchronises gradients"),
    STEP: (f"white on {STEP_COLOUR}", "optimiser step"),
}


class _Lane:
    """One device's line: ``columns`` characters for ``whole`` ticks; a character shows what runs at its middle."""

    def __init__(self, columns: int, whole: int) -> None:
        self.columns, self.whole = columns, whole
        self.cells = [(IDLE, MARKS[IDLE][0])] * columns

    def column(self, time: int) -> int:
        """The first column whose middle is not before a time."""
        return -(-(2 * time * self.columns - self.whole) // (2 * self.whole))

    def label(self, start: int, end: int, text: str, style: str) -> None:
        """Fill [start, end) with a style and put a text in its middle, or its first letter where there is no room."""
        first = self.column(start)
        room = self.column(end) - first
        shown = text.center(room) if len(text) <= room else text[0] * room
        for place, character in enumerate(shown, first):
            self.cells[place] = (character, style)

    def mark(self, start: int, end: int, mark: str, *, over: str = "") -> None:
        """Fill [start, end) with a mark; only where one of ``over`` stands, if given."""
        for place in range(self.column(start), self.column(end)):
            if not over or self.cells[place][0] in over:
                self.cells[place] = (mark, MARKS[mark][0])

    def text(self) -> Text:
        """The line."""
        return Text.assemble(*self.cells)


def gantt(result: Evaluation, width: int) -> RenderableType:
    """The timeline of an evaluation, at most ``width`` characters wide."""
    drawn = drawing(result)
    gutter = len(str(drawn.schedule.devices - 1)) + 1
    columns = max(width - gutter, 10)
    whole = max(drawn.timeline.makespan, 1)
    if columns % whole <= columns // 8:  # a whole number of characters a tick, so that equal ops look equal
        columns -= columns % whole
    table = Table.grid(padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(style="dim", justify="right")
    table.add_column(no_wrap=True)
    for device, lane in enumerate(_lanes(drawn, columns, whole)):
        table.add_row(str(device), lane.text())
    end = numbers.time(result.makespan, result.problem.time.unit)
    table.add_row("", Text("0" + end.rjust(columns - 1), "dim"))
    return Group(table, _legend(drawn.schedule, steps=bool(drawn.timeline.updates)), *_sampled(drawn, columns, whole))


def _sampled(drawn: Drawing, columns: int, whole: int) -> Iterator[Text]:
    """That a timeline is too long for its line, if ops are shorter than a character."""
    lengths = drawn.timeline.end - drawn.timeline.start
    short = int((lengths[lengths > 0] * columns < whole).sum())
    if short:
        yield Text(
            f"{short} of {len(lengths)} ops are shorter than a character, which shows what runs at its middle: "
            "patterns may be those of the drawing; --output draws them all",
            "yellow",
        )


def _lanes(drawn: Drawing, columns: int, whole: int) -> Iterator[_Lane]:
    for device in range(drawn.schedule.devices):
        lane = _Lane(columns, whole)
        for start, end in drawn.waits.of(device):
            lane.mark(start, end, WAIT)
        for start, end in drawn.sends.of(device):
            lane.mark(start, end, SEND)
        for row in drawn.schedule.rows(device):
            op = drawn.schedule.op(row)
            lane.label(*_extent(drawn, row), _label(drawn.schedule, op), _style(op))
        for start, end in drawn.syncs.of(device):
            lane.mark(start, end, SYNC, over=IDLE + WAIT)
        for start, end in drawn.updates.of(device):
            lane.mark(start, end, STEP)
        yield lane


def _label(schedule: Schedule, op: Op) -> str:
    """Such as F0; a small letter for later chunks of a device, and for the second direction."""
    first = op.stage < schedule.devices and schedule.placement.route_of[op.microbatch] == 0
    return (op.kind.name if first else op.kind.name.lower()) + str(op.microbatch)


def _style(op: Op) -> str:
    """The kind's colour; every second microbatch underlined, so that neighbours part."""
    return STYLES[op.kind] + (" underline" if op.microbatch % 2 else "")


def _extent(drawn: Drawing, row: int) -> tuple[int, int]:
    """Start and end of an op; a line has no height, so the two of an overlapped pair are drawn side by side."""
    start, end = int(drawn.timeline.start[row]), int(drawn.timeline.end[row])
    middle = (start + end) // 2
    if drawn.part[row] == SECOND:
        return middle, end
    return (start, middle) if drawn.part[row] == FIRST else (start, end)


def _legend(schedule: Schedule, *, steps: bool) -> Text:
    text = Text(overflow="fold")
    for value in np.unique(schedule.kind).tolist():
        kind = Kind(value)
        text.append(kind.name, STYLES[kind]).append(f" {NAMES[kind]}  ")
    for mark, (style, name) in MARKS.items():
        if mark == STEP and not steps:
            continue
        text.append(mark, style).append(f" {name}  ")
    if len(schedule.placement.routes) > 1:
        text.append("f0 the other direction")
    elif schedule.placement.stages > schedule.devices:
        text.append("f0 a later chunk")
    return text


def orders(schedule: Schedule, width: int) -> RenderableType:
    """The schedule's table: each device's ops in order, cut to the width."""
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", justify="right")
    table.add_column(no_wrap=True)
    room = max(width - len(str(schedule.devices)) - 2, 20)
    for device in range(schedule.devices):
        table.add_row(str(device), _cut([str(entry) for entry in schedule.order(device)], room))
    return table


def _cut(cells: list[str], room: int) -> str:
    """As many cells as fit, and how many are left."""
    if not cells:
        return ""
    ends: IntArray = np.cumsum([len(cell) + 1 for cell in cells]) - 1
    if ends[-1] <= room:
        return " ".join(cells)
    shown = int(np.searchsorted(ends, room - len(f" ... {len(cells)} more"), side="right"))
    return " ".join(cells[:shown]) + f" ... {len(cells) - shown} more"
