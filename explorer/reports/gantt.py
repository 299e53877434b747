"""A timeline in the terminal: one line a device, time from left to right, as wide as the terminal is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from explorer.core.op import Kind
from explorer.core.placement import IntArray
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.metrics import producers
from explorer.evaluation.results import Evaluation
from explorer.reports import numbers

STYLES = {
    Kind.F: "black on #56b4e9",
    Kind.I: "black on #e69f00",
    Kind.W: "black on #009e73",
    Kind.B: "black on #f0e442",
}
"""Colours of Okabe and Ito, distinct for colour-blind readers; the letter says the same without colour."""
NAMES = {Kind.F: "forward", Kind.I: "input gradient", Kind.W: "weight gradient", Kind.B: "backward"}
IDLE, WAIT, SEND, SYNC = "·", "~", ">", "="
MARKS = {
    IDLE: ("dim", "idle"),
    WAIT: ("#d55e00", "waits for a transfer"),
    SEND: ("#d55e00", "kept by its send"),
    SYNC: ("black on #cc79a7", "synchronises gradients"),
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
    timeline = result.timeline
    gutter = len(str(timeline.schedule.devices - 1)) + 1
    columns = max(width - gutter, 10)
    whole = max(timeline.makespan, 1)
    if whole <= columns:  # a whole number of characters a tick, so that equal ops look equal
        columns = columns // whole * whole
    table = Table.grid()
    table.add_column(style="dim", justify="right", width=gutter)
    table.add_column(no_wrap=True)
    for device, lane in enumerate(_lanes(timeline, columns, whole)):
        table.add_row(f"{device} ", lane.text())
    end = numbers.time(result.makespan, result.problem.time.unit)
    table.add_row("", Text("0" + end.rjust(columns - 1), "dim"))
    return Group(table, _legend(timeline))


def _lanes(timeline: Timeline, columns: int, whole: int) -> Iterator[_Lane]:
    schedule, source = timeline.schedule, producers(timeline.schedule)
    for device in range(schedule.devices):
        lane = _Lane(columns, whole)
        idle_from = 0
        for row in schedule.rows(device):
            start, end = int(timeline.start[row]), int(timeline.end[row])
            made_by = int(source[row])
            if made_by >= 0 and timeline.arrival[made_by] >= 0 and schedule.kind[row] != Kind.W:
                on_its_way = max(idle_from, int(timeline.end[made_by]))
                lane.mark(on_its_way, min(start, int(timeline.arrival[made_by])), WAIT)
            lane.mark(end, int(timeline.free[row]), SEND)
            idle_from = int(timeline.free[row])
        for row in schedule.rows(device):
            op = schedule.op(row)
            lane.label(*_half_if_paired(timeline, row), f"{op.kind.name}{op.microbatch}", STYLES[op.kind])
        for sync in timeline.syncs:
            if device in sync.devices:
                lane.mark(sync.start, sync.end, SYNC, over=IDLE + WAIT)
        yield lane


def _half_if_paired(timeline: Timeline, row: int) -> tuple[int, int]:
    """Start and end of an op; the two of an overlapped pair are drawn side by side."""
    joined, start, end = timeline.schedule.joined, int(timeline.start[row]), int(timeline.end[row])
    middle = (start + end) // 2
    if joined[row]:
        return middle, end
    if row + 1 < len(joined) and joined[row + 1]:
        return start, middle
    return start, end


def _legend(timeline: Timeline) -> Text:
    text = Text()
    for value in np.unique(timeline.schedule.kind).tolist():
        kind = Kind(value)
        text.append(kind.name, STYLES[kind]).append(f" {NAMES[kind]}  ")
    for mark, (style, name) in MARKS.items():
        text.append(mark, style).append(f" {name}  ")
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
    ends: IntArray = np.cumsum([len(cell) + 1 for cell in cells]) - 1
    if ends[-1] <= room:
        return " ".join(cells)
    shown = int(np.searchsorted(ends, room - len(f" ... {len(cells)} more"), side="right"))
    return " ".join(cells[:shown]) + f" ... {len(cells) - shown} more"
