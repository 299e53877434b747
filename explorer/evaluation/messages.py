"""Messages as runtimes serve them: in the order in which they are posted, whatever is ready first.

Mode ``link`` serves each directed pair of devices in order of readiness. Libraries do not:

===============  ==============================================================================================
``independent``  mode ``link`` as it is
``fifo-pair``    all messages between two devices, both directions mixed, one after the other as posted: one
                 communicator a pair, as NCCL behind ``torch.distributed`` makes them on first use
``fifo-device``  all messages of a device one after the other as posted: one communicator for all, initialised
                 eagerly
===============  ==============================================================================================

Sends and receives are posted where PyTorch posts them (`explorer.evaluation.posting`). A message starts when what it
carries is made and its send posted, when its receiver has come to the receive (is done with the op before it), and when
the message before it has arrived. A receive that is posted early so delays a later send: head-of-line blocking.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from explorer.core.dataflow import flow
from explorer.core.errors import Inapplicable, Inexact
from explorer.core.op import Kind
from explorer.core.placement import IntArray
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.core.units import HORIZON
from explorer.evaluation.contended import paths
from explorer.evaluation.kernel import PRODUCT
from explorer.evaluation.longest_path import step, synchronise
from explorer.evaluation.posting import turns


class Messages(StrEnum):
    """In which order messages are served; see the module."""

    INDEPENDENT = "independent"
    FIFO_PAIR = "fifo-pair"
    FIFO_DEVICE = "fifo-device"


class Blocked(NamedTuple):
    """A message that was ready before it started.

    Attributes
    ----------
    row
        The op whose product it carries.
    ready, start
        Ticks: when its send was posted, and when it started.
    behind
        The op whose message it waited for, or -1 if its receiver had not come to the receive.
    """

    row: int
    ready: int
    start: int
    behind: int


@dataclass(frozen=True, eq=False)
class Queued:
    """A timeline with messages in order, and those that waited for their turn, by start."""

    timeline: Timeline
    blocked: tuple[Blocked, ...]


def evaluate(schedule: Schedule, problem: Problem, messages: Messages) -> Queued:
    """When everything runs if messages are served in the order of their posting.

    Parameters
    ----------
    messages
        ``fifo-pair`` or ``fifo-device``.

    Raises
    ------
    Inapplicable
        If the problem's mode is not ``link``, or links are shared by several pairs.
    Incomplete, Deadlock, Inexact, UsageError
        As `explorer.evaluation.longest_path.evaluate`.
    """
    problem.require_fits(schedule.placement)
    if problem.communication is not Communication.LINK:
        raise Inapplicable(f"messages are served in order in mode link, not in mode {problem.communication}")
    if problem.syncs_compete:
        raise Inapplicable("messages in order are known where gradient all-reduces hold no links")
    if paths(problem, schedule.placement).resources:
        raise Inapplicable("messages in order are known for links of their own; this system's pairs share some")
    schedule.require_complete()
    run = _Run(schedule, problem, messages)
    for device, rows, _ in turns(schedule):
        run.occupy(device, rows)
    columns = (run.start, run.end, run.free, run.sent, run.released, run.arrival)
    start, end, free, sent, released, arrival = (np.array(column, np.int64) for column in columns)
    syncs = synchronise(schedule, problem, end)
    updates = step(schedule, problem, free, syncs)
    timeline = Timeline(schedule, start, end, free, sent, released, arrival, syncs, updates)
    if timeline.makespan > HORIZON:
        raise Inexact(f"the makespan passes 2^42 ticks of {problem.time.tick} {problem.time.unit}; use a coarser tick")
    return Queued(timeline, tuple(sorted(run.blocked, key=lambda blocked: blocked.start)))


class _Run:
    """The timeline so far."""

    def __init__(self, schedule: Schedule, problem: Problem, messages: Messages) -> None:
        self.schedule, self.problem, self.messages = schedule, problem, messages
        self.route_of = schedule.placement.route_of
        table = flow(schedule.placement)
        self.needs, self.target, self.message = (part.tolist() for part in table)
        transfers = problem.transfer_times()
        self.delay, self.hold = transfers.delay.tolist(), transfers.hold.tolist()
        self.profile_of, self.link = problem.profile_of.tolist(), problem.network.link.tolist()
        self.length = _lengths(schedule, problem).tolist()
        self.start, self.end, self.free = ([0] * len(schedule) for _ in range(3))
        self.sent, self.released, self.arrival = ([-1] * len(schedule) for _ in range(3))
        self.clock = [0] * schedule.devices
        self.there: dict[tuple[int, int], int] = {}  # (product * stages + stage, microbatch) to when it is there
        self.last: dict[tuple[int, int], int] = {}  # channel to the row of its last message
        self.blocked: list[Blocked] = []

    def occupy(self, device: int, rows: range) -> None:
        """Run an occupancy as early as device and inputs allow, then post what it sends."""
        if not rows:
            return
        stages = self.schedule.placement.stages
        ops = [self.schedule.op(row) for row in rows]
        needed = [
            (self.needs[self.route_of[op.microbatch]][op.kind][op.stage], op.microbatch)
            for op in ops
            if op.kind != Kind.W  # its I ran here, before it
        ]
        start = max([self.clock[device], *(self.there[place] for place in needed if place[0] >= 0)])
        end = start + self.problem.launch + self._together(rows)
        self.clock[device] = end
        for row, op in zip(rows, ops, strict=True):
            self.start[row], self.end[row] = start, end
            product = PRODUCT[op.kind]
            if product == len(self.target[0]):
                continue
            receiver = self.target[self.route_of[op.microbatch]][product][op.stage]
            arrival = end if receiver in (-1, device) else self._send(row, device, receiver)
            self.there[product * stages + op.stage, op.microbatch] = arrival
        for row in rows:
            self.free[row] = self.clock[device]

    def _together(self, rows: range) -> int:
        total: int = sum(self.length[row] for row in rows)
        if len(rows) == 1:
            return total
        scaled = total * self.problem.overlap
        if scaled.denominator != 1:
            raise Inexact(
                f"the pair {self.schedule.op(rows[0])} and {self.schedule.op(rows[1])} takes {self.problem.overlap} of "
                "its parts' sum, which is no whole number of ticks"
            )
        return int(scaled)

    def _send(self, row: int, device: int, receiver: int) -> int:
        """Post a message at both ends; when it arrives."""
        self.clock[device] += self.problem.posting
        ready = self.clock[device]
        channels = _channels(self.messages, device, receiver)
        before = [self.last[channel] for channel in channels if channel in self.last]
        last = max(before, key=lambda other: self.arrival[other], default=-1)
        start = max(ready, self.clock[receiver])
        behind = -1
        if last >= 0 and self.arrival[last] > start:
            start, behind = self.arrival[last], last
        if start > ready:
            self.blocked.append(Blocked(row, ready, start, behind))
        op = self.schedule.op(row)
        chunk = self.message[self.route_of[op.microbatch]][PRODUCT[op.kind]][op.stage]
        cost = (self.profile_of[op.microbatch], chunk, self.link[device][receiver])
        self.sent[row] = start
        self.released[row] = start + self.hold[cost[0]][cost[1]][cost[2]]
        arrival: int = start + self.delay[cost[0]][cost[1]][cost[2]]
        self.arrival[row] = arrival
        for channel in channels:
            self.last[channel] = row
        return arrival


def _channels(messages: Messages, device: int, receiver: int) -> tuple[tuple[int, int], ...]:
    """What serves a message, each one at a time."""
    if messages is Messages.FIFO_PAIR:
        return ((min(device, receiver), max(device, receiver)),)
    return ((device, device), (receiver, receiver))


def _lengths(schedule: Schedule, problem: Problem) -> IntArray:
    lengths: IntArray = problem.durations[problem.profile_of[schedule.microbatch], schedule.chunk, schedule.kind]
    return lengths


def told(queued: Queued, problem: Problem, most: int = 3) -> tuple[str, ...]:
    """Where messages waited for their turn, in sentences: how many, and the longest waits."""
    if not queued.blocked:
        return ("no message waits for its turn",)
    schedule, value = queued.timeline.schedule, problem.time.value
    waits = sorted(queued.blocked, key=lambda blocked: blocked.ready - blocked.start)
    total = value(sum(blocked.start - blocked.ready for blocked in waits))
    sentences = [f"{len(waits)} messages wait for their turn, {float(total):.6g} in all (head-of-line blocking)"]
    for row, ready, start, behind in waits[:most]:
        cause = f"behind that of {schedule.op(behind)}" if behind >= 0 else "until its receiver comes to receive it"
        times = f"from {float(value(ready)):.6g} to {float(value(start)):.6g}"
        sentences.append(f"the message of {schedule.op(row)} on device {schedule.device[row]} waits {times} {cause}")
    return tuple(sentences)
