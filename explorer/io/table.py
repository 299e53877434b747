"""Schedules as a table of text: one line a device, cells such as ``0F0`` in the order in which they run.

The cells are those of ``torch.distributed.pipelining``; empty ones say nothing, and sends, receives and what is done to
weights are passed over: they follow from the order of the ops. The placement is read off the table: a stage lives
where its ops stand, and every microbatch takes the stages in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from explorer.core.errors import Inapplicable, Malformed
from explorer.core.files import read_text
from explorer.core.op import Entry, Op, Overlapped
from explorer.core.placement import along
from explorer.core.schedule import Schedule
from explorer.io.cells import Message, parse_lines


def read(path: Path) -> Schedule:
    """Read a schedule from a table.

    Raises
    ------
    Malformed
        If a cell is none, a stage stands on two devices or is missing, or the table is empty; with line and column.
    """
    return parse(read_text(path), str(path))


def holds_messages(path: Path) -> bool:
    """Whether a table says where messages are sent and received, which a `Schedule` does not keep."""
    lines = parse_lines(read_text(path), str(path))
    return any(isinstance(cell.action, Message) for line in lines for cell in line.cells)


def parse(text: str, name: str = "table") -> Schedule:
    """The same from text; ``name`` is what errors call it."""
    orders: list[list[Entry]] = []
    home: dict[int, int] = {}
    microbatches = 0
    for line in parse_lines(text, name):
        if not line.cells and not line.gaps:
            continue
        device = len(orders)
        orders.append([cell.action for cell in line.cells if isinstance(cell.action, Op | Overlapped)])
        for cell in line.cells:
            for op in cell.ops:
                if home.setdefault(op.stage, device) != device:
                    raise Malformed(
                        f"stage {op.stage} stands on device {home[op.stage]} too; a table can only hold schedules in "
                        "which a stage lives on one device",
                        f"{name}:{cell.line}:{cell.column}",
                    )
                microbatches = max(microbatches, op.microbatch + 1)
    missing = next((stage for stage in range(len(home)) if stage not in home), None)
    if missing is not None:
        raise Malformed(f"stage {missing} is missing: stages must be 0 to {max(home)}", name)
    if set(home.values()) != set(range(len(orders))):
        raise Malformed("a device has no op", name)
    cells = sum(map(len, orders))
    if microbatches > cells:
        raise Malformed(f"microbatches must be 0, 1, 2, ...; {microbatches - 1} is the highest of {cells} ops", name)
    return Schedule.from_orders(along([home[stage] for stage in range(len(home))], microbatches), orders)


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
