"""What there is to draw of a timeline: the one source of the terminal's, the static and the interactive pictures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from explorer.core.op import KINDS, Kind
from explorer.core.placement import IntArray
from explorer.core.problem import Problem, Stash
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.memory import levels, static
from explorer.evaluation.metrics import Step, producers
from explorer.evaluation.results import Evaluation
from explorer.reports.figures.caption import caption, title

FloatArray = NDArray[np.float64]
WHOLE, FIRST, SECOND = 0, 1, 2
"""The part of its occupancy that an op has: all of it, or one half of an overlapped pair's."""


@dataclass(frozen=True, eq=False)
class Spans:
    """Stretches of devices' time, in ticks; each an array over stretches, device by device and in order of time."""

    device: IntArray
    start: IntArray
    end: IntArray

    def of(self, device: int) -> list[tuple[int, int]]:
        """One device's stretches."""
        own = self.device == device
        return list(zip(self.start[own].tolist(), self.end[own].tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Crossings:
    """Transfers between devices that take time; each an array over transfers, in the order of the rows that cause them.

    Parameters
    ----------
    source, target
        The row that made the product and the row that waits for it.
    sent, arrival
        Ticks.
    """

    source: IntArray
    target: IntArray
    sent: IntArray
    arrival: IntArray


@dataclass(frozen=True, eq=False)
class Memory:
    """What every device holds, in bytes (static memory included) or in device units of activation.

    Parameters
    ----------
    in_bytes
        Which of the two.
    base
        (devices,) before the first op.
    during, after
        (ops,) while a row runs, and when it has ended.
    limit
        (devices,) what must not be passed; None where nothing limits it.
    """

    in_bytes: bool
    base: FloatArray
    during: FloatArray
    after: FloatArray
    limit: FloatArray | None

    @property
    def top(self) -> float:
        """The highest level or limit of any device; 1 where all is zero."""
        limits = () if self.limit is None else self.limit.tolist()
        return float(max([*self.during.tolist(), *self.base.tolist(), *limits])) or 1.0


@dataclass(frozen=True, eq=False)
class Drawing:
    """A timeline with everything that a picture of it shows.

    Parameters
    ----------
    name, title, caption
        Of the schedule; what was evaluated; under which costs and with which outcome.
    timeline, problem
        When all runs, and how long a tick is.
    source
        (ops,) the row whose product each row waits for; -1 for none.
    part
        (ops,) `WHOLE`, or `FIRST` or `SECOND` of an overlapped pair.
    waits
        Idle stretches in which an input that the device waits for is on its way.
    sends
        Stretches in which a device is kept by posting or sending.
    syncs, synced
        Gradient synchronisations, one for each device in it, and their chunks.
    updates
        Optimiser steps.
    crossings, memory
        Transfers between devices, and memory held.
    path
        The critical path, from time 0 to the makespan.
    """

    name: str
    title: str
    caption: str
    timeline: Timeline
    problem: Problem
    source: IntArray
    part: NDArray[np.int8]
    waits: Spans
    sends: Spans
    syncs: Spans
    synced: IntArray
    updates: Spans
    crossings: Crossings
    memory: Memory
    path: tuple[Step, ...]

    @property
    def schedule(self) -> Schedule:
        """What is drawn."""
        return self.timeline.schedule

    @cached_property
    def chunk_rank(self) -> IntArray:
        """(ops,) Which of its device's chunks a row runs: 0 for the first."""
        rank = np.zeros((self.schedule.devices, self.schedule.placement.chunks), np.int64)
        for device, chunks in enumerate(self.schedule.placement.resident):
            rank[device, list(chunks)] = np.arange(len(chunks))
        return rank[self.schedule.device, self.schedule.chunk]

    @cached_property
    def shade(self) -> FloatArray:
        """(ops,) From 0 to 1: by chunk where some device has several, else by microbatch."""
        rank = self.chunk_rank
        if not rank.any():
            rank = self.schedule.microbatch.astype(np.int64)
        return rank / max(int(rank.max(initial=0)), 1)

    def memory_curve(self, device: int) -> tuple[IntArray, FloatArray]:
        """Ticks and levels of one device's memory: each level holds from its tick to the next one.

        Returns
        -------
        ticks, levels
            From tick 0 to the makespan; the last level is that at the end.
        """
        rows = np.array(self.schedule.rows(device), np.int64)
        rows = rows[~self.schedule.joined[rows]]
        ticks = np.stack([self.timeline.start[rows], self.timeline.end[rows]], 1).ravel()
        held = np.stack([self.memory.during[rows], self.memory.after[rows]], 1).ravel()
        ticks = np.concatenate(([0], ticks, [self.timeline.makespan]))
        base = self.memory.base[device]
        return ticks, np.concatenate(([base], held, held[-1:] if len(held) else [base]))

    def shares(self, columns: int) -> FloatArray:
        """(kinds, devices, columns) The part of each column of time that each device spends on each kind of op.

        The makespan is cut into ``columns`` equal columns; what is left to 1 is idle.
        """
        found = np.zeros((len(KINDS), self.schedule.devices, columns))
        whole = max(self.timeline.makespan, 1)
        edges = np.linspace(0, whole, columns + 1)
        weight = np.where(self.part == WHOLE, 1.0, 0.5)
        for device in range(self.schedule.devices):
            rows = np.array(self.schedule.rows(device), np.int64)
            for kind in KINDS:
                own = rows[self.schedule.kind[rows] == kind]
                if len(own):
                    start, end = self.timeline.start[own], self.timeline.end[own]
                    done = np.cumsum((end - start) * weight[own])
                    before = np.concatenate(([0], done[:-1]))
                    times = np.stack([start, end], 1).ravel()
                    spent = np.interp(edges, times, np.stack([before, done], 1).ravel())
                    found[kind, device] = np.diff(spent) * columns / whole
        return found


def drawing(result: Evaluation) -> Drawing:
    """Gather what there is to draw of an evaluation."""
    timeline, schedule = result.timeline, result.schedule
    source = producers(schedule)
    synced = sorted((device, sync.start, sync.end, sync.chunk) for sync in timeline.syncs for device in sync.devices)
    return Drawing(
        name=result.name,
        title=title(result),
        caption=caption(result),
        timeline=timeline,
        problem=result.problem,
        source=source,
        part=_parts(schedule),
        waits=_waits(timeline, source),
        sends=_sends(timeline),
        syncs=Spans(*np.array(synced, np.int64).reshape(-1, 4).T[:3]),
        synced=np.array([chunk for *_, chunk in synced], np.int64),
        updates=Spans(*np.array(timeline.updates, np.int64).reshape(-1, 3).T),
        crossings=_crossings(timeline, source),
        memory=_memory(result),
        path=result.path,
    )


def _parts(schedule: Schedule) -> NDArray[np.int8]:
    parts = np.where(schedule.joined, SECOND, WHOLE).astype(np.int8)
    parts[:-1][schedule.joined[1:]] = FIRST
    return parts


def _remote(timeline: Timeline, source: IntArray) -> NDArray[np.bool_]:
    """(ops,) Whether a row's input comes from another device; W takes what its I left on its own."""
    remote: NDArray[np.bool_] = (source >= 0) & (timeline.schedule.kind != Kind.W) & (timeline.arrival[source] >= 0)
    return remote


def _waits(timeline: Timeline, source: IntArray) -> Spans:
    schedule = timeline.schedule
    remote = _remote(timeline, source)
    idle_from = np.concatenate(([0], timeline.free[:-1])) if len(schedule) else timeline.free
    idle_from[schedule.offsets[:-1][schedule.offsets[:-1] < len(schedule)]] = 0
    first = np.maximum.accumulate(np.where(schedule.joined, 0, np.arange(len(schedule))))
    since = np.where(remote, np.maximum(timeline.end[source], idle_from[first]), 0)
    until = np.where(remote, timeline.arrival[source], 0)
    some = until > since
    return Spans(schedule.device[some].astype(np.int64), since[some], until[some])


def _sends(timeline: Timeline) -> Spans:
    schedule = timeline.schedule
    last_of_occupancy = np.append(~schedule.joined[1:], True) if len(schedule) else schedule.joined
    some = last_of_occupancy & (timeline.free > timeline.end)
    return Spans(schedule.device[some].astype(np.int64), timeline.end[some], timeline.free[some])


def _crossings(timeline: Timeline, source: IntArray) -> Crossings:
    remote = np.flatnonzero(_remote(timeline, source))
    target = remote[np.argsort(source[remote], kind="stable")]
    made = source[target]
    takes_time = timeline.arrival[made] > timeline.end[made]
    made, target = made[takes_time], target[takes_time]
    return Crossings(made, target, timeline.sent[made], timeline.arrival[made])


def _memory(result: Evaluation) -> Memory:
    problem, schedule, limit = result.problem, result.schedule, result.problem.memory_limit
    in_bytes = problem.bytes is not None and (limit is None or limit.in_bytes)
    stash: Stash = problem.bytes if in_bytes and problem.bytes is not None else problem.stash
    unit = float(stash.unit)
    versions = result.asynchrony.weight_versions if result.asynchrony else ()
    base = static(schedule, stash, versions) * unit if in_bytes else np.zeros(schedule.devices)
    found = levels(schedule, problem, stash)
    resting = base[schedule.device]
    most: FloatArray | None = None
    if limit is not None:
        most = np.array(limit.per_device, np.float64) * unit
    elif in_bytes and problem.device_memory is not None:
        most = np.full(schedule.devices, float(problem.device_memory))
    return Memory(in_bytes, base.astype(np.float64), resting + found.during * unit, resting + found.after * unit, most)
