"""The cells of a schedule table: ops, and what ``torch.distributed.pipelining`` writes between them.

A line is a device, a cell an action; each cell knows its place, so that whatever is wrong can be pointed at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from explorer.core.errors import Malformed
from explorer.core.op import Entry, Kind, Op, Overlapped

_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")
_MESSAGE = re.compile(r"([0-9]{1,9})(SEND_F|RECV_F|SEND_B|RECV_B)([0-9]{1,9})")
_UPKEEP = re.compile(r"([0-9]{1,9})(REDUCE_GRAD|UNSHARD|RESHARD)")


class Verb(StrEnum):
    """What a message does at this end; F carries an activation down the route, B a gradient back up."""

    SEND_F = "SEND_F"
    RECV_F = "RECV_F"
    SEND_B = "SEND_B"
    RECV_B = "RECV_B"

    @property
    def sends(self) -> bool:
        """Whether this end sends."""
        return self in (Verb.SEND_F, Verb.SEND_B)


class Message(NamedTuple):
    """One end of a transfer: ``3RECV_F0`` receives the input of stage 3, ``3SEND_B0`` sends that input's gradient."""

    stage: int
    verb: Verb
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.verb}{self.microbatch}"

    @property
    def peer(self) -> int:
        """The stage at the other end."""
        return self.stage + (1 if self.verb in (Verb.SEND_F, Verb.RECV_B) else -1)

    def other_end(self) -> Message:
        """The action that the device of the peer stage must hold."""
        other = {
            Verb.SEND_F: Verb.RECV_F, Verb.RECV_F: Verb.SEND_F, Verb.SEND_B: Verb.RECV_B, Verb.RECV_B: Verb.SEND_B,
        }  # fmt: skip
        return Message(self.peer, other[self.verb], self.microbatch)


class Upkeep(NamedTuple):
    """What is done to a stage's weights or gradients as a whole; ``what`` is REDUCE_GRAD, UNSHARD or RESHARD."""

    stage: int
    what: str

    def __str__(self) -> str:
        return f"{self.stage}{self.what}"


Action = Entry | Message | Upkeep


class Cell(NamedTuple):
    """An action and its place; line and column count from 1."""

    action: Action
    line: int
    column: int

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops that it runs: one, the two of an overlapped pair, or none."""
        match self.action:
            case Op():
                return (self.action,)
            case Overlapped():
                return tuple(self.action)
            case _:
                return ()


class Line(NamedTuple):
    """One device: its cells, where it stands, and the places of cells that are empty though others follow."""

    cells: list[Cell]
    number: int
    end: int
    gaps: list[int]


def parse_entry(text: str, where: str = "") -> Entry:
    """Read an op, or a pair ``(0F1;3B0)OVERLAP_F_B``.

    Raises
    ------
    Malformed
        If it is neither.
    """
    pair = _PAIR.fullmatch(text)
    if pair is None:
        return Op.parse(text, where)
    return Overlapped(Op.parse(pair[1], where), Op.parse(pair[2], where))


def parse_action(text: str, where: str = "") -> Action:
    """Read any cell that ``torch.distributed.pipelining`` knows.

    Raises
    ------
    Malformed
        If it is none, also behind a good beginning.
    """
    if (message := _MESSAGE.fullmatch(text)) is not None:
        return Message(int(message[1]), Verb(message[2]), int(message[3]))
    if (upkeep := _UPKEEP.fullmatch(text)) is not None:
        return Upkeep(int(upkeep[1]), upkeep[2])
    return parse_entry(text, where)


def parse_lines(text: str, name: str = "table") -> list[Line]:
    """Read a table; trailing empty cells are left out, empty lines are kept.

    Raises
    ------
    Malformed
        At the first cell that is none, or if there is none at all; with line and column.
    """
    lines = [_line(line, number, name) for number, line in enumerate(text.splitlines(), 1)]
    if not any(cell.ops for line in lines for cell in line.cells):
        raise Malformed("the table holds no op", name)
    return lines


def _line(text: str, number: int, name: str) -> Line:
    cells: list[Cell] = []
    gaps: list[int] = []
    column = 1
    for raw in text.split(","):
        cell = raw.strip()
        place = column + (raw.index(cell) if cell else 0)
        if cell:
            cells.append(Cell(parse_action(cell, f"{name}:{number}:{place}"), number, place))
        elif text.strip():
            gaps.append(place)
        column += len(raw) + 1
    return Line(cells, number, column - 1, gaps)


def positions(lines: list[Line]) -> Iterator[tuple[int, int, Cell]]:
    """Every cell with its device and its position in the device's line."""
    for device, line in enumerate(lines):
        for position, cell in enumerate(line.cells):
            yield device, position, cell


def is_backward(kind: Kind) -> bool:
    """Whether an op of this kind makes the gradient of its stage's input."""
    return kind in (Kind.I, Kind.B)
