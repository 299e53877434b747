"""What is wrong with the ops of a schedule table, each finding at its line and column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from explorer.core.op import Kind, Op
from explorer.io.cells import Cell, Line, Message, Upkeep, Verb


class Finding(NamedTuple):
    """A broken rule; findings sort by their place."""

    line: int
    column: int
    kind: str
    message: str


class Spot(NamedTuple):
    """Where an action stands: its device and its position in the device's line."""

    device: int
    position: int
    cell: Cell

    @property
    def place(self) -> str:
        """Line and column, as text."""
        return f"{self.cell.line}:{self.cell.column}"

    def finding(self, kind: str, message: str) -> Finding:
        """Something that is wrong here."""
        return Finding(self.cell.line, self.cell.column, kind, message)


class Table:
    """A table's actions, each by its first place.

    Parameters
    ----------
    lines
        One a device; empty lines are none.

    Attributes
    ----------
    home
        The device of each stage: where most of its ops stand, of several the first.
    ops, messages, upkeep
        The first place of every op, message, and treatment of weights or gradients.
    repeated
        Every further place of something that stands twice, with its first place.
    talks
        Whether the table holds messages, as PyTorch's *compute and communication* format does.
    reduces
        Whether it says where gradients are reduced; then it must say so of every stage.
    """

    def __init__(self, lines: list[Line]) -> None:
        self.lines = [line for line in lines if line.cells or line.gaps]
        self.empty = [line for line in lines if not line.cells and not line.gaps]
        self.home = self._homes()
        self.ops: dict[Op, Spot] = {}
        self.messages: dict[Message, Spot] = {}
        self.upkeep: dict[Upkeep, Spot] = {}
        self.repeated: list[tuple[Op | Message | Upkeep, Spot, Spot]] = []
        for device, line in enumerate(self.lines):
            for position, cell in enumerate(line.cells):
                self._enter(Spot(device, position, cell))
        self.talks = bool(self.messages)
        self.reduces = self.talks or any(upkeep.what == "REDUCE_GRAD" for upkeep in self.upkeep)
        self.microbatches = 1 + max(op.microbatch for op in self.ops)
        self.stages = 1 + max(self.home)

    def _homes(self) -> dict[int, int]:
        counts = Counter(
            (op.stage, device) for device, line in enumerate(self.lines) for c in line.cells for op in c.ops
        )
        homes: dict[int, int] = {}
        for stage, device in counts:
            if counts[stage, device] > counts[stage, homes.get(stage, -1)]:
                homes[stage] = device
        return homes

    def _enter(self, spot: Spot) -> None:
        match spot.cell.action:
            case Message() as message:
                first: Spot = self.messages.setdefault(message, spot)
                if first is not spot:
                    self.repeated.append((message, spot, first))
            case Upkeep() as upkeep:
                first = self.upkeep.setdefault(upkeep, spot)
                if first is not spot and upkeep.what == "REDUCE_GRAD":
                    self.repeated.append((upkeep, spot, first))
            case _:
                for op in spot.cell.ops:
                    if op in self.ops:
                        self.repeated.append((op, spot, self.ops[op]))
                    else:
                        self.ops[op] = spot

    def backward(self, stage: int, microbatch: int) -> Spot | None:
        """Where the gradient of a stage's input is made."""
        fused = self.ops.get(Op(stage, Kind.B, microbatch))
        return self.ops.get(Op(stage, Kind.I, microbatch)) if fused is None else fused

    def made(self, message: Message) -> Spot | None:
        """Where what a send carries is made."""
        if message.verb == Verb.SEND_F:
            return self.ops.get(Op(message.stage, Kind.F, message.microbatch))
        return self.backward(message.stage, message.microbatch)

    def used(self, message: Message) -> Spot | None:
        """Where what a receive brings is needed."""
        if message.verb == Verb.RECV_F:
            return self.ops.get(Op(message.stage, Kind.F, message.microbatch))
        return self.backward(message.stage, message.microbatch)

    def sends(self) -> Iterator[tuple[Op, Spot, Message]]:
        """Every op whose product is needed on another device, with the send that must follow it."""
        for op, spot in self.ops.items():
            if op.kind == Kind.W:
                continue
            send = Message(op.stage, Verb.SEND_F if op.kind == Kind.F else Verb.SEND_B, op.microbatch)
            if self.home.get(send.peer, self.home[op.stage]) != self.home[op.stage]:
                yield op, spot, send


def op_findings(table: Table) -> Iterator[Finding]:
    """Everything that is wrong with ops and places, whatever their dependencies."""
    yield from _lines(table)
    yield from _places(table)
    yield from _numbers(table)
    for what, spot, first in table.repeated:
        yield spot.finding("repeated-op", f"{what} stands at {first.place} already; it must once")
    yield from _complete(table)
    yield from _premature(table)
    yield from _losses(table)


def _lines(table: Table) -> Iterator[Finding]:
    for line in table.empty:
        yield Finding(line.number, 1, "empty-line", "PyTorch takes an empty line for a rank without ops; remove it")
    for line in table.lines:
        if not any(cell.ops for cell in line.cells):
            yield Finding(line.number, 1, "idle-device", "this device has no op; PyTorch needs a stage on every rank")
        if table.talks:
            for column in line.gaps:
                yield Finding(
                    line.number, column, "empty-cell", "PyTorch refuses empty cells in a table with sends and receives"
                )


def _places(table: Table) -> Iterator[Finding]:
    for spot in _spots(table):
        stages = [op.stage for op in spot.cell.ops]
        if isinstance(spot.cell.action, Message | Upkeep):
            stages = [spot.cell.action.stage]
        for stage in stages:
            home = table.home.get(stage)
            if home is None:
                yield spot.finding("unknown-stage", f"stage {stage} has no op anywhere")
            elif home != spot.device:
                yield spot.finding(
                    "wrong-device",
                    f"stage {stage} lives on device {home} (line {table.lines[home].number}) and stands here too; a "
                    "stage has one device",
                )


def _spots(table: Table) -> Iterator[Spot]:
    for device, line in enumerate(table.lines):
        for position, cell in enumerate(line.cells):
            yield Spot(device, position, cell)


def _numbers(table: Table) -> Iterator[Finding]:
    """Stages and microbatches are numbered from 0 without gaps."""
    for what, used, highest in (
        ("stage", {op.stage for op in table.ops}, table.stages - 1),
        ("microbatch", {op.microbatch for op in table.ops}, table.microbatches - 1),
    ):
        if len(used) <= highest:
            missing = next(number for number in range(highest) if number not in used)
            spot = next(
                spot for op, spot in table.ops.items() if (op.stage if what == "stage" else op.microbatch) == highest
            )
            yield spot.finding(
                f"missing-{what}", f"{what} {highest} stands here, but {what} {missing} nowhere; they must be 0, 1, ..."
            )


def _complete(table: Table) -> Iterator[Finding]:
    """Every stage runs for every microbatch one F, and one B or one I and one W."""
    stages, microbatches = {op.stage for op in table.ops}, {op.microbatch for op in table.ops}
    for stage, microbatch in product(sorted(stages), sorted(microbatches)):
        ops = {kind: Op(stage, kind, microbatch) for kind in Kind}
        there = {kind: table.ops[op] for kind, op in ops.items() if op in table.ops}
        forward, whole, first, second = (there.get(kind) for kind in (Kind.F, Kind.B, Kind.I, Kind.W))
        if not there:
            line = table.lines[table.home[stage]]
            yield Finding(
                line.number, line.end, "missing-op", f"{ops[Kind.F]} and its backward are missing from this line"
            )
            continue
        if forward is None:
            spot = next(iter(there.values()))
            yield spot.finding("missing-op", f"{ops[Kind.F]} is missing; {spot.cell.action} needs it")
        elif len(there) == 1:
            yield forward.finding("missing-op", f"the backward of {ops[Kind.F]} is missing: B, or I and W")
        if whole and (first or second):
            half = first or second
            assert half is not None
            yield max(whole, half).finding(
                "half-backward", f"a backward is one B, or one I and one W; {ops[Kind.B]} stands at {whole.place} too"
            )
        elif first and not second:
            yield first.finding(
                "half-backward", f"{ops[Kind.I]} without {ops[Kind.W]}: the weights' gradient would be lost"
            )
        elif second and not first:
            yield second.finding("half-backward", f"{ops[Kind.W]} without {ops[Kind.I]}, which it completes")


def _premature(table: Table) -> Iterator[Finding]:
    """Backwards before their F, and Ws before their I."""
    for op, spot in table.ops.items():
        if op.kind == Kind.F:
            continue
        cause = op._replace(kind=Kind.I if op.kind == Kind.W else Kind.F)
        before = table.ops.get(cause)
        if before is None or before.device != spot.device:
            continue
        if before.position > spot.position:
            yield spot.finding("premature-op", f"{op} stands before {cause} at {before.place}, which it waits for")
        elif before.position == spot.position:
            yield spot.finding("premature-op", f"{op} waits for {cause}, so the two cannot overlap")


def _losses(table: Table) -> Iterator[Finding]:
    """The last stage's forwards ascend."""
    last = [(spot.position, op, spot) for op, spot in table.ops.items() if op[:2] == (table.stages - 1, Kind.F)]
    highest = -1
    for _, op, spot in sorted(last):
        if op.microbatch < highest:
            yield spot.finding(
                "loss-order",
                f"{op} runs behind microbatch {highest} on the last stage; PyTorch keeps losses in the order of these "
                "forwards and looks them up by microbatch, so gradients would silently be wrong: number microbatches "
                "in this order",
            )
            return
        highest = op.microbatch
