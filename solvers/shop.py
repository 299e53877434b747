"""The ops of a placement as arrays, for everything that looks at many orders: heads and tails, list schedules, search.

Ops that differ by an identical microbatch alone are one *class* (`solvers.scope.alike`). Ops are numbered class by
class, in each by microbatch, and run in that order: see docs/optimising.md for why no optimum is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from explorer.core.op import KINDS, Kind, Op
from explorer.core.placement import IntArray, Placement
from explorer.core.problem import Problem, Stash
from explorer.core.schedule import Schedule
from solvers.space import limited_stash, room
from solvers.work import Costs, input_of, output_of, owed_syncs

UNLIMITED = 2**62
"""More memory than anything takes."""


@dataclass(frozen=True)
class Class:
    """Ops that differ by an identical microbatch alone, and what each of them costs.

    Parameters
    ----------
    group
        The index of their (route, profile).
    stage, kind, device
        As of each op.
    duration, busy
        Ticks from the start to the end of the op, and until its device may go on.
    offset, delay, hold, target
        Its send: ticks from the op's start until it is ready, from its own start until it arrives and until its link is
        free; and the receiving device, -1 for none.
    held, freed
        What it adds to its device's memory at its start, and takes from it at its end.
    source, lag
        The class whose product it needs, -1 for none, and the ticks from that op's start until the product is there,
        waits for links left out.
    sync
        The chunk whose gradient synchronisation waits for it; -1 for none.
    """

    group: int
    stage: int
    kind: Kind
    device: int
    duration: int
    busy: int
    offset: int
    delay: int
    hold: int
    target: int
    held: int
    freed: int
    source: int
    lag: int
    sync: int


@dataclass(frozen=True, eq=False)
class Shop:
    """All ops of a placement under a problem.

    Parameters
    ----------
    problem, placement, split
        What is to be run, and whether the backward is split.
    members
        For each group, its microbatches, ascending.
    classes
        In order of group, kind and stage.
    first
        (classes + 1,) where each class's ops begin.
    space
        (devices,) what may be held; `UNLIMITED` without a limit.
    """

    problem: Problem
    placement: Placement
    split: bool
    members: tuple[tuple[int, ...], ...]
    classes: tuple[Class, ...]
    first: IntArray
    space: IntArray

    @classmethod
    def of(cls, problem: Problem, placement: Placement, split: bool) -> Shop:
        """Tabulate a placement's ops.

        Raises
        ------
        UsageError
            If problem and placement differ in size.
        """
        costs = Costs(problem, placement)
        groups: dict[tuple[int, int], list[int]] = {}
        for m, route in enumerate(placement.route_of):
            groups.setdefault((route, int(problem.profile_of[m])), []).append(m)
        kinds = (Kind.F, Kind.I, Kind.W) if split else (Kind.F, Kind.B)
        keys = [
            (group, kind, stage)
            for group, (route, _) in enumerate(groups)
            for kind in kinds
            for stage in range(len(placement.routes[route]))
        ]
        members = tuple(map(tuple, groups.values()))
        one = {key: Op(key[2], key[1], members[key[0]][0]) for key in keys}
        number = {key: index for index, key in enumerate(keys)}
        maker = {(key[0], output_of(op)): key for key, op in one.items()}
        stash = _stash(problem)
        synchronised = set(owed_syncs(problem, placement))
        classes = []
        for key, op in one.items():
            needed = input_of(op, placement)
            source = None if needed is None else maker[key[0], needed]
            before = None if source is None else one[source]
            classes.append(
                _class(costs, stash, key[0], op, before, -1 if source is None else number[source], synchronised)
            )
        spaces = room(problem, placement.resident)
        space = np.full(placement.devices, UNLIMITED) if spaces is None else np.array(spaces, np.int64)
        first = np.concatenate(([0], np.cumsum([len(members[c.group]) for c in classes])))
        return cls(problem, placement, split, members, tuple(classes), first, space)

    def __len__(self) -> int:
        return int(self.first[-1])

    @cached_property
    def class_of(self) -> IntArray:
        """(ops,) Each op's class."""
        return np.repeat(np.arange(len(self.classes)), np.diff(self.first))

    def column(self, name: str) -> IntArray:
        """(ops,) An integer field of each op's class."""
        return np.array([getattr(c, name) for c in self.classes], np.int64)[self.class_of]

    @cached_property
    def source(self) -> IntArray:
        """(ops,) The op whose product each op needs; -1 for none."""
        needed = self.column("source")
        rank = np.arange(len(self)) - self.first[self.class_of]
        return np.where(needed >= 0, self.first[needed] + rank, -1)

    @cached_property
    def of_device(self) -> tuple[tuple[int, ...], ...]:
        """For each device, its classes."""
        found: list[list[int]] = [[] for _ in range(self.placement.devices)]
        for index, one in enumerate(self.classes):
            found[one.device].append(index)
        return tuple(map(tuple, found))

    def on(self, device: int) -> IntArray:
        """The ops of a device, by number."""
        return np.flatnonzero(self.column("device") == device)

    def op(self, index: int) -> Op:
        """An op by its number."""
        of = int(self.class_of[index])
        one = self.classes[of]
        return Op(one.stage, one.kind, self.members[one.group][index - int(self.first[of])])

    def schedule(self, orders: Sequence[Sequence[int] | IntArray]) -> Schedule:
        """The schedule of orders given as op numbers, one order a device."""
        rows = np.concatenate([np.asarray(order, np.int64) for order in orders])
        offsets = np.concatenate(([0], np.cumsum([len(order) for order in orders])))
        of = self.class_of[rows]
        microbatch = np.concatenate([np.array(self.members[c.group]) for c in self.classes])
        stage, kind = (np.array([getattr(c, name) for c in self.classes])[of] for name in ("stage", "kind"))
        return Schedule(self.placement, offsets, stage, kind, microbatch[rows])

    def rows(self, schedule: Schedule) -> IntArray | None:
        """(ops,) The op number of each row, counting the ops of each class as they come.

        The schedule's microbatches may have other numbers than the placement's, as long as each route has as many. A
        fused backward is split, or a split one fused where its I stands, as this shop asks for; overlapped pairs are
        taken apart.

        Returns
        -------
        array or None
            None if the schedule is of another placement.
        """
        theirs = schedule.placement
        same = theirs.routes == self.placement.routes and theirs.shares == self.placement.shares
        if not same or sorted(theirs.route_of) != sorted(self.placement.route_of):
            return None
        if theirs.route_of != self.placement.route_of and len(set(self.problem.profile_of.tolist())) > 1:
            return None
        numbers = np.full((len(self.members), len(KINDS), self.placement.stages), -1, np.int64)
        for index, one in enumerate(self.classes):
            numbers[one.group, one.kind, one.stage] = index
        group_of = np.empty(theirs.microbatches, np.int64)
        by_route = {self.placement.route_of[members[0]]: group for group, members in enumerate(self.members)}
        if theirs.route_of == self.placement.route_of:
            for group, members in enumerate(self.members):
                group_of[list(members)] = group
        else:
            group_of[:] = [by_route[route] for route in theirs.route_of]
        of = numbers[group_of[schedule.microbatch], schedule.kind, schedule.stage]
        order = np.argsort(of, kind="stable")
        ranks = np.empty_like(of)
        counts = np.bincount(of, minlength=len(self.classes))
        ranks[order] = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        numbered: IntArray = self.first[of] + ranks
        return numbered

    def conformed(self, schedule: Schedule) -> list[IntArray] | None:
        """A known schedule as orders of this shop's op numbers; None if it is of another placement."""
        kinds = schedule.kind
        plain = Schedule(schedule.placement, schedule.offsets, schedule.stage, kinds, schedule.microbatch)
        if self.split:
            plain = plain.with_split_backward()
        elif plain.splits_backward:
            keep = kinds != Kind.W
            offsets = np.concatenate(([0], np.cumsum(keep)))[plain.offsets]
            fused = np.where(kinds == Kind.I, np.int8(Kind.B), kinds)[keep]
            plain = Schedule(plain.placement, offsets, plain.stage[keep], fused, plain.microbatch[keep])
        rows = self.rows(plain)
        if rows is None:
            return None
        return [rows[start:end] for start, end in zip(plain.offsets[:-1], plain.offsets[1:], strict=True)]


def _stash(problem: Problem) -> Stash:
    return problem.stash if problem.memory_limit is None else limited_stash(problem, problem.memory_limit)


def _class(
    costs: Costs, stash: Stash, group: int, op: Op, before: Op | None, source: int, synchronised: set[int]
) -> Class:
    occupancy = costs.occupancy(op)
    send = occupancy.sends[0] if occupancy.sends else None
    lag = 0
    if before is not None:
        sender = costs.occupancy(before)
        here = costs.device(before) == occupancy.device
        lag = sender.duration if here else sender.sends[0].offset + sender.sends[0].delay
    chunk = costs.chunk(op)
    return Class(
        group=group,
        stage=op.stage,
        kind=op.kind,
        device=occupancy.device,
        duration=occupancy.duration,
        busy=occupancy.busy,
        offset=send.offset if send else 0,
        delay=send.delay if send else 0,
        hold=send.hold if send else 0,
        target=send.target if send else -1,
        held=costs.held(stash, op) if op.kind is Kind.F else 0,
        freed=costs.freed(stash, op),
        source=source,
        lag=lag,
        sync=chunk if op.kind in (Kind.W, Kind.B) and chunk in synchronised else -1,
    )
