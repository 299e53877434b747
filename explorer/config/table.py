"""A table of costs: one line a stage, as a spreadsheet writes it.

    stage,F,B,activation,parameters
    0,1.2ms,2.5ms,1.5GiB,350000000
    1,1.1ms,2.3ms,1.5GiB,300000000

Times stand under F and B, or F, I and W, or all four; with a unit, or in seconds. ``activation`` (bytes of a
microbatch) and ``parameters`` (a number) may be left out, both or one.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fractions import Fraction

from explorer.core import units
from explorer.core.errors import ExplorerError, Malformed
from explorer.core.units import duration, quantity

TIMES = ("F", "I", "W", "B")
COLUMNS = ("stage", *TIMES, "activation", "parameters")
_KINDS = ({"F", "B"}, {"F", "I", "W"}, {"F", "I", "W", "B"})


@dataclass(frozen=True)
class Stage:
    """One line.

    Parameters
    ----------
    seconds
        By the letters of `TIMES` that the table has.
    activation
        Bytes of a microbatch.
    parameters
        How many there are.
    """

    seconds: dict[str, Fraction]
    activation: int
    parameters: int


def read(text: str, where: str) -> tuple[tuple[Stage, ...], bool]:
    """The stages in order, and whether their sizes are given.

    Raises
    ------
    Malformed
        With the line.
    """
    try:
        lines = [line for line in csv.reader(text.splitlines(), strict=True) if line]
    except csv.Error as error:
        raise Malformed(f"no table: {error}", where) from None
    if not lines:
        raise Malformed("a table of costs begins with a line such as stage,F,B", where)
    columns = [name.strip() for name in lines[0]]
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown or len(set(columns)) < len(columns):
        raise Malformed(f"columns may be {', '.join(COLUMNS)}, once each; got {', '.join(columns)}", f"{where}:1")
    if set(columns) & set(TIMES) not in _KINDS or "stage" not in columns:
        raise Malformed("a table of costs needs stage, F, and B, or I and W, or all three", f"{where}:1")
    stages = tuple(_stage(columns, line, number, f"{where}:{number + 2}") for number, line in enumerate(lines[1:]))
    if not stages:
        raise Malformed("a table of costs needs a line for every stage", where)
    return stages, "activation" in columns or "parameters" in columns


def _stage(columns: list[str], line: list[str], number: int, where: str) -> Stage:
    if len(line) != len(columns):
        raise Malformed(f"expected {len(columns)} values, got {len(line)}", where)
    cells = {name: cell.strip() for name, cell in zip(columns, line, strict=True)}
    if cells["stage"] != str(number):
        raise Malformed(f"expected stage {number}, got {cells['stage']!r}", where)
    try:
        seconds = {name: duration(cells[name], name)[0] for name in TIMES if name in cells}
        held = quantity(_bytes(cells["activation"]), "size", "activation") if "activation" in cells else Fraction(0)
        count = units.number(cells.get("parameters", "0"), "parameters")
    except ExplorerError as error:
        raise Malformed(str(error), where) from None
    if min(*seconds.values(), held, count) < 0 or count.denominator > 1:
        raise Malformed("times and sizes cannot be negative, and parameters are a whole number", where)
    return Stage(seconds, int(held), int(count))


def _bytes(text: str) -> str:
    """A size; a plain number is in bytes."""
    return text if text[-1:] == "B" else f"{text} B"
