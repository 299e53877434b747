"""Schedules as a table of text: one line a device, cells such as ``0F0`` in the order in which they run.

The cells are those of ``torch.distributed.pipelining``; empty ones say nothing. The placement is read off the table: a
stage lives where its ops stand, and every microbatch takes the stages in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from explorer.core.errors import Inapplicable, Malformed
from explorer.core.files import read_text
from explorer.core.op import Entry, Op, Overlapped
from explorer.core.placement import along
from explorer.core.schedule import Schedule

_PAIR = re.compile(r"\(([^;()]*);([^;()]*)\)OVERLAP_F_B")


def parse_entry(text: str, where: str = "") -> Entry:
    """Read one cell: an op, or a pair ``(0F1;3B0)OVERLAP_F_B``.

    Raises
    ------
    Malformed
        If it is neither.
    """
    pair = _PAIR.fullmatch(text)
    if pair is None:
        return Op.parse(text, where)
    return Overlapped(Op.parse(pair[1], where), Op.parse(pair[2], where))


def read(path: Path) -> Schedule:
    """Read a schedule from a table.

    Raises
    ------
    Malformed
        If a cell is no op, a stage stands on two devices or is missing, or the table is empty; with line and column.
    """
    return parse(read_text(path), str(path))


def parse(text: str, name: str = "table") -> Schedule:
    """The same from text; ``name`` is what errors call it."""
    orders: list[list[Entry]] = []
    home: dict[int, int] = {}
    microbatches = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        device = len(orders)
        orders.append([])
        for column, cell in _cells(line):
            where = f"{name}:{number}:{column}"
            entry = parse_entry(cell, where)
            orders[-1].append(entry)
            for op in (entry,) if isinstance(entry, Op) else entry:
                if home.setdefault(op.stage, device) != device:
                    raise Malformed(
                        f"stage {op.stage} stands on device {home[op.stage]} too; a table can only hold schedules in "
                        "which a stage lives on one device",
                        where,
                    )
                microbatches = max(microbatches, op.microbatch + 1)
    if not home:
        raise Malformed("the table holds no op", name)
    missing = sorted(set(range(max(home) + 1)) - set(home))
    if missing:
        raise Malformed(f"stage {missing[0]} is missing: stages must be 0 to {max(home)}", name)
    if set(home.values()) != set(range(len(orders))):
        raise Malformed("a device has no op", name)
    cells = sum(map(len, orders))
    if microbatches > cells:
        raise Malformed(f"microbatches must be 0, 1, 2, ...; {microbatches - 1} is the highest of {cells} ops", name)
    return Schedule.from_orders(along([home[stage] for stage in range(len(home))], microbatches), orders)


def _cells(line: str) -> Iterator[tuple[int, str]]:
    """The cells of a line that are not empty, each with its column, from 1."""
    column = 1
    for raw in line.split(","):
        cell = raw.strip()
        if cell:
            yield column + raw.index(cell), cell
        column += len(raw) + 1


def write(schedule: Schedule) -> Iterator[str]:
    """The table's lines, with their ends.

    Raises
    ------
    Inapplicable
        If microbatches take different routes: a table could not be read back.
    """
    if len(schedule.placement.routes) > 1:
        raise Inapplicable(
            "a table of cells holds one route only, and microbatches of this schedule take "
            f"{len(schedule.placement.routes)}; write it as JSON"
        )
    return (",".join(map(str, order)) + "\n" for order in schedule.orders())
