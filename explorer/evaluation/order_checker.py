"""The half of the independent checker that needs no costs: completeness, places and deadlocks of an order.

The rules are derived from the model's definition again; none is shared with the evaluator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from explorer.core.op import KINDS, Kind, Op
from explorer.core.schedule import Schedule


class Rule(StrEnum):
    """What a violation violates."""

    UNKNOWN = "unknown-op"
    DEVICE = "wrong-device"
    MISSING = "missing-op"
    REPEATED = "repeated-op"
    BACKWARD = "half-backward"
    PREMATURE = "premature-op"
    DEADLOCK = "deadlock"
    SHAPE = "shape"
    DURATION = "duration"
    PAIR = "overlapped-pair"
    OCCUPANCY = "device-busy"
    DEPENDENCY = "dependency"
    TRANSFER = "transfer"
    LINK = "link-busy"
    SYNC = "gradient-sync"
    OPTIMIZER = "optimizer"
    MEMORY = "memory"
    SLACK = "slack"


@dataclass(frozen=True)
class Violation:
    """One broken rule.

    Parameters
    ----------
    kind
        The rule, as text (see `Rule`).
    where
        The place, such as ``device 1, row 3: 2F0``, rows counted within the device's order.
    message
        What is wrong and what would be right.
    """

    kind: str
    where: str
    message: str


Slot = tuple[int, ...]
"""The rows that share one occupancy of a device: one, or the two of an overlapped pair."""


class Reading:
    """A schedule as lists: rows, the slots of each device, and the rows at which each op stands."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.routes = [schedule.placement.routes[number] for number in schedule.placement.route_of]
        columns = (schedule.stage.tolist(), schedule.kind.tolist(), schedule.microbatch.tolist())
        self.ops = [Op(*cells) for cells in zip(*columns, strict=True)]
        self.device: list[int] = []
        self.slots: list[list[Slot]] = []
        joined = schedule.joined.tolist()
        for device in range(schedule.devices):
            slots: list[Slot] = []
            for row in schedule.rows(device):
                self.device.append(device)
                slots.append((*slots.pop(), row) if joined[row] else (row,))
            self.slots.append(slots)
        self.rows: dict[Op, int] = {}
        for row, op in enumerate(self.ops):
            self.rows.setdefault(op, row)

    def where(self, row: int) -> str:
        """Name a row for a person."""
        device = self.device[row]
        return f"device {device}, row {row - int(self.schedule.offsets[device])}: {self.ops[row]}"

    def backward(self, stage: int, microbatch: int) -> int | None:
        """The row whose op makes the gradient of this stage's input."""
        fused = self.rows.get(Op(stage, Kind.B, microbatch))
        return self.rows.get(Op(stage, Kind.I, microbatch)) if fused is None else fused

    def source(self, row: int) -> int | None:
        """The row that this one waits for, besides those before it on its device."""
        stage, kind, microbatch = self.ops[row]
        if kind == Kind.W:
            return self.rows.get(Op(stage, Kind.I, microbatch))
        if kind == Kind.F:
            return self.rows.get(Op(stage - 1, Kind.F, microbatch)) if stage else None
        if stage + 1 == len(self.routes[microbatch]):
            return self.rows.get(Op(stage, Kind.F, microbatch))
        return self.backward(stage + 1, microbatch)


def verify_order(schedule: Schedule) -> list[Violation]:
    """Everything that is wrong with a schedule, whatever its costs.

    Every microbatch must have, at every stage of its route, on the device of that stage, one F and either one B or one
    I and one W; a backward stands behind its F and a W behind its I; order and dependencies form no cycle.

    Returns
    -------
    list of Violation
        Empty if the schedule is complete and free of deadlock. A cycle is looked for only where nothing else is wrong.
    """
    reading = Reading(schedule)
    return [*_strays(reading), *_incomplete(reading), *_premature(reading)] or list(_deadlock(reading))


def _strays(reading: Reading) -> Iterator[Violation]:
    microbatches = len(reading.routes)
    for row, (stage, _, microbatch) in enumerate(reading.ops):
        if not 0 <= microbatch < microbatches:
            yield Violation(Rule.UNKNOWN, reading.where(row), f"microbatches are 0 to {microbatches - 1}")
        elif not 0 <= stage < len(reading.routes[microbatch]):
            last = len(reading.routes[microbatch]) - 1
            yield Violation(Rule.UNKNOWN, reading.where(row), f"the stages of microbatch {microbatch} are 0 to {last}")
        elif (home := reading.routes[microbatch][stage].device) != reading.device[row]:
            yield Violation(
                Rule.DEVICE, reading.where(row), f"stage {stage} of microbatch {microbatch} lives on device {home}"
            )


def _incomplete(reading: Reading) -> Iterator[Violation]:
    counts = Counter(reading.ops)
    for microbatch, route in enumerate(reading.routes):
        for stage, hop in enumerate(route):
            place = f"device {hop.device}, stage {stage}, microbatch {microbatch}"
            ops = {kind: Op(stage, kind, microbatch) for kind in KINDS}
            for op in ops.values():
                if counts[op] > 1:
                    yield Violation(Rule.REPEATED, place, f"{op} stands {counts[op]} times, it must once")
            there = {kind for kind, op in ops.items() if counts[op]}
            if Kind.F not in there:
                yield Violation(Rule.MISSING, place, f"{ops[Kind.F]} is missing")
            backward = there - {Kind.F}
            if not backward:
                yield Violation(Rule.MISSING, place, f"{ops[Kind.B]}, or {ops[Kind.I]} and {ops[Kind.W]}, is missing")
            elif backward not in ({Kind.B}, {Kind.I, Kind.W}):
                found = " and ".join(str(ops[kind]) for kind in sorted(backward))
                yield Violation(Rule.BACKWARD, place, f"found {found}; a backward is one B, or one I and one W")


def _premature(reading: Reading) -> Iterator[Violation]:
    """Backwards before their F, and Ws before their I: on one device, so the order alone shows it."""
    for row, op in enumerate(reading.ops):
        if op.kind != Kind.F:
            cause = op._replace(kind=Kind.I if op.kind == Kind.W else Kind.F)
            before = reading.rows.get(cause)
            if before is not None and before > row and reading.device[before] == reading.device[row]:
                yield Violation(Rule.PREMATURE, reading.where(row), f"stands before {cause}, which it waits for")


def _deadlock(reading: Reading) -> Iterator[Violation]:
    """Take away what can run until nothing can; what is left holds a cycle."""
    slots = [slot for line in reading.slots for slot in line]
    number = {row: index for index, slot in enumerate(slots) for row in slot}
    followers: list[list[int]] = [[] for _ in slots]
    open_waits = [0] * len(slots)
    for index, slot in enumerate(slots):
        causes = [number[source] for row in slot if (source := reading.source(row)) is not None]
        if index and reading.device[slots[index - 1][0]] == reading.device[slot[0]]:
            causes.append(index - 1)
        for cause in causes:
            followers[cause].append(index)
        open_waits[index] = len(causes)
    runnable = [index for index, count in enumerate(open_waits) if not count]
    while runnable:
        for index in followers[runnable.pop()]:
            open_waits[index] -= 1
            if not open_waits[index]:
                runnable.append(index)
    stuck = {row for row, index in number.items() if open_waits[index]}
    if stuck:
        yield _cycle(reading, stuck)


def _cycle(reading: Reading, stuck: set[int]) -> Violation:
    """The first stuck slot of every stuck device waits for an op at or behind the first stuck slot of another one."""
    heads = {
        device: next(slot for slot in line if slot[0] in stuck)
        for device, line in enumerate(reading.slots)
        if not stuck.isdisjoint(row for slot in line for row in slot)
    }
    device = min(heads)
    waits: dict[int, tuple[int, int]] = {}
    while device not in waits:
        waits[device] = next((row, source) for row in heads[device] if (source := reading.source(row)) in stuck)
        device = reading.device[waits[device][1]]
    devices = list(waits)
    ring = devices[devices.index(device) :]
    steps = []
    for row, source in (waits[device] for device in ring):
        there = reading.device[source]
        steps.append(
            f"{reading.ops[row]} on device {reading.device[row]} waits for {reading.ops[source]} on device {there}"
        )
        if source not in heads[there]:
            steps.append(f"{reading.ops[source]} stands behind {reading.ops[heads[there][0]]}")
    return Violation(
        Rule.DEADLOCK, f"device{'s' * (len(ring) > 1)} {', '.join(map(str, sorted(ring)))}", "; ".join(steps)
    )
