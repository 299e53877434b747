"""A schedule: a placement and one ordered list of ops a device. Order only: no times, no costs, no idle cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.core.errors import Inapplicable, Incomplete, UsageError
from explorer.core.op import KINDS, Entry, Kind, Op, Overlapped
from explorer.core.placement import IntArray, Placement


class Schedule:
    """The order of every device's ops, held as read-only columns.

    All devices' orders stand one behind the other: those of device d are rows ``offsets[d]:offsets[d + 1]``. A row
    whose ``joined`` is true runs in one occupancy together with the row before it (an overlapped pair).

    Parameters
    ----------
    placement
        Where the chunks live and how microbatches go through them.
    offsets
        (devices + 1,) int64, where each device's rows begin and end.
    stage, kind, microbatch
        (ops,) int32, int8, int32.
    joined
        (ops,) bool; none by default.

    Raises
    ------
    UsageError
        If columns differ in length, offsets do not cover them, a kind is unknown, or a row is joined to none or to a
        joined one.
    """

    __slots__ = ("__dict__", "joined", "kind", "microbatch", "offsets", "placement", "stage")

    def __init__(
        self,
        placement: Placement,
        offsets: IntArray,
        stage: NDArray[np.int32],
        kind: NDArray[np.integer[Any]],
        microbatch: NDArray[np.int32],
        joined: NDArray[np.bool_] | None = None,
    ) -> None:
        self.placement = placement
        self.offsets = np.array(offsets, np.int64)
        self.stage = np.array(stage, np.int32)
        if len(kind) and not 0 <= np.min(kind) <= np.max(kind) < len(KINDS):
            raise UsageError(f"kinds are 0 to {len(KINDS) - 1}: {', '.join(kind.name for kind in KINDS)}")
        self.kind = np.array(kind, np.int8)
        self.microbatch = np.array(microbatch, np.int32)
        self.joined = np.zeros(len(self.stage), np.bool_) if joined is None else np.array(joined, np.bool_)
        columns = (self.stage, self.kind, self.microbatch, self.joined)
        if len({len(column) for column in columns}) > 1:
            raise UsageError("the columns of a schedule differ in length")
        if len(self.offsets) != placement.devices + 1 or self.offsets[0] != 0 or self.offsets[-1] != len(stage):
            raise UsageError(f"offsets do not cut {len(stage)} ops into {placement.devices} devices")
        if (np.diff(self.offsets) < 0).any():
            raise UsageError("offsets must not descend")
        heads = self.offsets[:-1]
        if self.joined[heads[heads < len(stage)]].any():
            raise UsageError("a device's first op has none before it to overlap with")
        if (self.joined[1:] & self.joined[:-1]).any():
            raise UsageError("at most two ops overlap: the row before a joined one cannot be joined itself")
        for column in (self.offsets, *columns):
            column.setflags(write=False)

    @classmethod
    def from_orders(cls, placement: Placement, orders: Iterable[Iterable[Entry]]) -> Schedule:
        """Build from one order a device; each may be a generator, and only one is held at a time.

        Raises
        ------
        UsageError
            If the number of orders is not the number of devices.
        """
        tables: list[NDArray[np.int32]] = []
        marks: list[NDArray[np.bool_]] = []
        for order in orders:
            ops: list[Op] = []
            joined: list[bool] = []
            for entry in order:
                if isinstance(entry, Overlapped):
                    ops += entry
                    joined += (False, True)
                else:
                    ops.append(entry)
                    joined.append(False)
            try:
                numbers = np.fromiter(map(index, chain.from_iterable(ops)), np.int32, 3 * len(ops))
            except (TypeError, ValueError, OverflowError) as error:
                raise UsageError(f"an order is a sequence of ops, each of three whole numbers: {error}") from None
            tables.append(numbers.reshape(-1, 3))
            marks.append(np.array(joined, np.bool_))
        if len(tables) != placement.devices:
            raise UsageError(f"{len(tables)} orders for {placement.devices} devices")
        offsets = np.concatenate(([0], np.cumsum([len(table) for table in tables])))
        rows = np.concatenate(tables)
        return cls(placement, offsets, rows[:, 0], rows[:, 1], rows[:, 2], np.concatenate(marks))

    def __len__(self) -> int:
        return len(self.stage)

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return self.placement.devices

    @property
    def microbatches(self) -> int:
        """How many microbatches there are."""
        return self.placement.microbatches

    def rows(self, device: int) -> range:
        """The row numbers of a device's ops, in its order."""
        return range(int(self.offsets[device]), int(self.offsets[device + 1]))

    def op(self, row: int) -> Op:
        """The op in a row."""
        return Op(int(self.stage[row]), KINDS[self.kind[row]], int(self.microbatch[row]))

    def ops(self, device: int) -> list[Op]:
        """A device's ops in order."""
        rows = slice(*self.offsets[device : device + 2])
        columns = (self.stage[rows].tolist(), self.kind[rows].tolist(), self.microbatch[rows].tolist())
        return [Op(stage, KINDS[kind], microbatch) for stage, kind, microbatch in zip(*columns, strict=True)]

    def order(self, device: int) -> list[Entry]:
        """A device's occupancies in order, overlapped pairs as such."""
        entries: list[Entry] = []
        for op, joined in zip(self.ops(device), self.joined[slice(*self.offsets[device : device + 2])], strict=True):
            if joined:
                first = entries.pop()
                assert isinstance(first, Op)
                entries.append(Overlapped(first, op))
            else:
                entries.append(op)
        return entries

    def orders(self) -> Iterator[list[Entry]]:
        """Every device's order, device 0 first."""
        return (self.order(device) for device in range(self.devices))

    @cached_property
    def device(self) -> NDArray[np.int32]:
        """(ops,) The device of each row."""
        return np.repeat(np.arange(self.devices, dtype=np.int32), np.diff(self.offsets))

    @cached_property
    def chunk(self) -> IntArray:
        """(ops,) The chunk that each row runs; only valid once `require_complete` has passed."""
        columns = self.placement.columns
        return columns.chunk[columns.route_of[self.microbatch], self.stage]

    @property
    def splits_backward(self) -> bool:
        """Whether any backward is split into I and W."""
        return bool((self.kind == Kind.I).any())

    @property
    def overlaps(self) -> bool:
        """Whether any two ops run as one occupancy."""
        return bool(self.joined.any())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return self.placement == other.placement and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("offsets", "stage", "kind", "microbatch", "joined")
        )

    def __hash__(self) -> int:
        return hash(
            (
                self.placement,
                self.offsets.tobytes(),
                self.stage.tobytes(),
                self.kind.tobytes(),
                self.microbatch.tobytes(),
            )
        )

    def __repr__(self) -> str:
        return f"Schedule({self.devices} devices, {self.microbatches} microbatches, {len(self)} ops)"

    def require_complete(self) -> None:
        """Check that every microbatch has, at every stage of its route, one F and either one B or one I and one W.

        Raises
        ------
        Incomplete
            Naming the first op that is unknown, on the wrong device, missing or repeated.
        """
        columns = self.placement.columns
        microbatches, stages = self.microbatches, self.placement.stages
        known = (
            (self.microbatch >= 0) & (self.microbatch < microbatches) & (self.stage >= 0)
            & (self.kind >= 0) & (self.kind < len(KINDS))
        )  # fmt: skip
        routes = columns.route_of[np.where(known, self.microbatch, 0)]
        known &= self.stage < columns.length[routes]
        if not known.all():
            row = int(np.flatnonzero(~known)[0])
            text = f"{self.stage[row]}{KINDS[self.kind[row]].name}{self.microbatch[row]}"
            raise Incomplete(
                f"device {self.device[row]} runs {text}, but there are {microbatches} microbatches "
                f"on routes of {stages} stages"
            )
        wrong = columns.device[routes, self.stage] != self.device
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise Incomplete(
                f"device {self.device[row]} runs {self.op(row)}, but stage {self.stage[row]} of microbatch "
                f"{self.microbatch[row]} lives on device {columns.device[routes[row], self.stage[row]]}"
            )
        cell = self.microbatch.astype(np.int64) * stages + self.stage
        counts = np.zeros((len(KINDS), microbatches * stages), np.int64)
        for kind in KINDS:
            counts[kind] = np.bincount(cell[self.kind == kind], minlength=microbatches * stages)
        F, I, W, B = counts
        expected = (np.arange(stages) < columns.length[columns.route_of][:, None]).ravel()
        good = np.where(
            expected, (F == 1) & (((B == 1) & (I == 0) & (W == 0)) | ((B == 0) & (I == 1) & (W == 1))), True
        )
        if not good.all():
            microbatch, stage = divmod(int(np.flatnonzero(~good)[0]), stages)
            found = ", ".join(
                f"{n}x {stage}{kind.name}{microbatch}"
                for kind in KINDS
                if (n := int(counts[kind, microbatch * stages + stage]))
            )
            raise Incomplete(
                f"microbatch {microbatch} needs at stage {stage} one F and either one B or one I and one W; "
                f"found {found or 'nothing'}"
            )

    def with_split_backward(self) -> Schedule:
        """Every B replaced by I, then W at once; overlapped pairs keep their whole backward as one occupancy's op."""
        fused = (self.kind == Kind.B) & ~self._paired()
        copies = np.where(fused, 2, 1)
        ends = np.cumsum(copies)
        kind = np.repeat(np.where(fused, np.int8(Kind.I), self.kind), copies)
        kind[ends[fused] - 1] = Kind.W
        offsets = np.concatenate(([0], ends))[self.offsets]
        stage, microbatch = np.repeat(self.stage, copies), np.repeat(self.microbatch, copies)
        return Schedule(self.placement, offsets, stage, kind, microbatch, np.repeat(self.joined, copies))

    def with_fused_backward(self) -> Schedule:
        """Every I that is followed at once by its own W replaced by B.

        Raises
        ------
        Inapplicable
            If some W comes later than right after its I, or one of the two overlaps: fusing would change the order.
        """
        if not self.splits_backward:
            return self
        after = np.arange(1, len(self) + 1).clip(max=len(self) - 1)
        overlapped = self._paired()
        pair = (
            ~overlapped & ~overlapped[after] & (self.kind == Kind.I) & (self.kind[after] == Kind.W)
            & (self.stage[after] == self.stage) & (self.microbatch[after] == self.microbatch)
            & (self.device[after] == self.device)
        )  # fmt: skip
        if (self.kind == Kind.I).sum() != pair.sum():
            row = int(np.flatnonzero((self.kind == Kind.I) & ~pair)[0])
            raise Inapplicable(
                f"device {self.device[row]} does not run the W of {self.op(row)} right after it on its own, so the "
                "backward cannot be fused without changing the order"
            )
        keep = self.kind != Kind.W
        kind = np.where(self.kind == Kind.I, np.int8(Kind.B), self.kind)[keep]
        offsets = np.concatenate(([0], np.cumsum(keep)))[self.offsets]
        return Schedule(self.placement, offsets, self.stage[keep], kind, self.microbatch[keep], self.joined[keep])

    def _paired(self) -> NDArray[np.bool_]:
        """(ops,) Whether a row is part of an overlapped pair."""
        following: NDArray[np.bool_] = np.append(self.joined[1:], False)
        return np.logical_or(self.joined, following)
