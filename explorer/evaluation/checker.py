"""An independent checker: derives every rule from the model's definition again and shares none with the evaluator.

`verify_order` looks at a schedule alone, `verify` at its times too, and `slack` at what could have started earlier.
A timeline without violations and without slack is the least fixed point of its order. All run in linear time,
but for the sorting of transfers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from heapq import nlargest
from itertools import pairwise, zip_longest
from typing import NamedTuple

import numpy as np

from explorer.core.errors import UsageError
from explorer.core.op import Kind
from explorer.core.problem import Communication, Problem, Stash
from explorer.core.timeline import Sync, Timeline
from explorer.evaluation.order_checker import Reading, Rule, Slot, Violation, verify_order

__all__ = ["Rule", "Violation", "slack", "verify", "verify_order"]


def verify(timeline: Timeline, problem: Problem) -> list[Violation]:
    """Everything that is wrong with a timeline; whether it is as early as can be is `slack`'s question.

    Parameters
    ----------
    timeline
        Its schedule may be wrong itself: then only `verify_order`'s findings are returned, as times have no meaning.
    problem
        Costs, mode and limits that the timeline claims to obey.

    Raises
    ------
    UsageError
        If the problem has other sizes than the schedule's placement, or limits bytes without giving any.
    """
    problem.require_fits(timeline.schedule.placement)
    if wrong := verify_order(timeline.schedule) or list(_misshapen(timeline)):
        return wrong
    run = _Run(timeline, problem)
    return [
        *_occupancy(run), *_dependencies(run), *_transfers(run), *_links(run), *_synchronised(run), *_updated(run),
        *_memory(run),
    ]  # fmt: skip


def slack(timeline: Timeline, problem: Problem) -> list[Violation]:
    """Every op, transfer, gradient synchronisation and optimiser step that could have started earlier in this order.

    Only meaningful for a timeline in which `verify` finds nothing.
    """
    run = _Run(timeline, problem)
    return [*_late_ops(run), *_late_transfers(run), *_late_syncs(run), *_late_updates(run)]


_COLUMNS = ("start", "end", "free", "sent", "released", "arrival")


def _misshapen(timeline: Timeline) -> Iterator[Violation]:
    ops = len(timeline.schedule)
    for name in _COLUMNS:
        if (length := len(getattr(timeline, name))) != ops:
            yield Violation(Rule.SHAPE, name, f"has {length} rows for {ops} ops")


class _Send(NamedTuple):
    """A transfer that an op causes, and what it costs in the problem's mode."""

    source: int
    target: int
    delay: int
    hold: int
    busy: int


class _Run:
    """A timeline as lists, with what its problem demands of each row."""

    def __init__(self, timeline: Timeline, problem: Problem) -> None:
        self.reading = reading = Reading(timeline.schedule)
        self.timeline, self.problem = timeline, problem
        self.start, self.end, self.free, self.sent, self.released, self.arrival = (
            np.asarray(getattr(timeline, name)).tolist() for name in _COLUMNS
        )
        self.hosts: dict[int, set[int]] = defaultdict(set)
        self.chunks: dict[int, set[int]] = defaultdict(set)
        for route in timeline.schedule.placement.routes:
            for chunk, device in route:
                self.hosts[chunk].add(device)
                self.chunks[device].add(chunk)
        self.profile = np.asarray(problem.profile_of).tolist()
        self.durations = problem.durations.tolist()
        self.network = (
            problem.network.link.tolist(),
            problem.network.latency.tolist(),
            problem.network.occupancy.tolist(),
        )
        self.sources = [reading.source(row) for row in range(len(reading.ops))]
        self.sends = [self._send(row) for row in range(len(reading.ops))]
        self.posted: dict[int, int] = {}  # when the device has posted each send
        self.reducible = self.awaited_syncs()
        self.synced = {sync.chunk: sync for sync in timeline.syncs if sync.chunk in self.reducible}
        self.freed: dict[Slot, int] = {}  # when the device has posted, and where blocking done, all of a slot's sends
        for slot in (slot for line in reading.slots for slot in line):
            clock = self.end[slot[0]]
            for row in slot:
                if send := self.sends[row]:
                    self.posted[row] = clock = clock + problem.posting
                    clock += send.busy
            self.freed[slot] = clock

    def chunk(self, row: int) -> int:
        op = self.reading.ops[row]
        return self.reading.routes[op.microbatch][op.stage].chunk

    def duration(self, row: int) -> int:
        op = self.reading.ops[row]
        return int(self.durations[self.profile[op.microbatch]][self.chunk(row)][op.kind])

    def send(self, row: int) -> _Send:
        """The transfer of a row that causes one."""
        send = self.sends[row]
        assert send is not None
        return send

    def _send(self, row: int) -> _Send | None:
        """What an F sends to the next stage, and a backward to the stage before, if that lives on another device."""
        stage, kind, microbatch = self.reading.ops[row]
        route = self.reading.routes[microbatch]
        other = {Kind.F: stage + 1, Kind.W: -1}.get(Kind(kind), stage - 1)
        if not 0 <= other < len(route) or route[other].device == route[stage].device:
            return None
        source, target = route[stage].device, route[other].device
        boundary = route[min(stage, other)].chunk
        links, latencies, occupancies = self.network
        link = links[source][target]
        occupancy = occupancies[self.profile[microbatch]][boundary][link]
        whole = latencies[link] + occupancy
        mode = self.problem.communication
        return _Send(
            source, target,
            delay=0 if mode is Communication.NONE else whole,
            hold=occupancy if mode is Communication.LINK else 0,
            busy=whole if mode is Communication.BLOCKING else 0,
        )  # fmt: skip

    def there(self, row: int) -> int:
        """When what a row waits for has come to its device; 0 if it waits for nothing."""
        source = self.sources[row]
        if source is None:
            return 0
        if self.reading.ops[row].kind != Kind.W and self.sends[source] is not None:
            return int(self.arrival[source])
        return int(self.end[source])

    def before(self) -> Iterator[tuple[Slot, int]]:
        """Every slot, with the time at which its device is free for it."""
        for line in self.reading.slots:
            clock = 0
            for slot in line:
                yield slot, clock
                clock = self.freed[slot]

    def queues(self) -> Iterator[tuple[str, int, list[int]]]:
        """Every resource that transfers occupy, with how many it serves and all in the order in which they joined."""
        if self.problem.communication is not Communication.LINK:
            return
        paths: dict[tuple[int, int], list[str]] = defaultdict(list)
        servers: dict[str, int] = {}
        for (name, pairs), count in zip_longest(self.problem.network.shared, self.problem.network.servers):
            servers[name] = count or 1
            for pair in pairs:
                paths[pair].append(name)
        users: dict[str, list[int]] = defaultdict(list)
        for row in self.posted:
            send = self.send(row)
            for name in (f"link {send.source} -> {send.target}", *paths[send.source, send.target]):
                users[name].append(row)
        if self.problem.sync_path:
            for chunk in sorted(self.synced):
                for position in dict.fromkeys(self.problem.sync_path[chunk]):
                    users[self.problem.network.shared[position][0]].append(len(self.sends) + chunk)
        for name, rows in users.items():
            yield name, servers.get(name, 1), self._in_turn(rows)

    def joined(self, user: int) -> int:
        """When a transfer (a row) or an all-reduce (behind all rows, by chunk) joins its queues."""
        return self.posted[user] if user < len(self.sends) else self.reducible[user - len(self.sends)]

    def begins(self, user: int) -> int:
        """When it starts."""
        return int(self.sent[user]) if user < len(self.sends) else self.synced[user - len(self.sends)].start

    def ends(self, user: int) -> int:
        """When it gives its resources back."""
        return int(self.released[user]) if user < len(self.sends) else self.synced[user - len(self.sends)].end

    def pair(self, user: int) -> tuple[int, int]:
        """Whose turns it takes at a resource with several servers; an all-reduce takes those of nobody else."""
        if user >= len(self.sends):
            return user, user
        send = self.send(user)
        return send.source, send.target

    def said(self, user: int) -> str:
        """What it is, in words."""
        if user < len(self.sends):
            return f"that of {self.reading.ops[user]}"
        return f"the all-reduce of chunk {user - len(self.sends)}"

    def turns(self) -> Iterator[tuple[int, str, int, int]]:
        """For every user of every resource: its row, the resource, when it may start there, and who ends then.

        All-reduces are numbered behind all rows, by chunk. Of those that joined before, fewer than as many pairs as the
        resource serves may have any that is not done. A pair's own link carries its transfers one by one.
        """
        for name, servers, rows in self.queues():
            ends: dict[tuple[int, int], int] = {}  # by pair, the row that ends last
            for row in rows:
                pair = self.pair(row)
                others = [last for other, last in ends.items() if other != pair or servers == 1]
                if len(others) >= servers:
                    last = nlargest(servers, others, key=self.ends)[-1]
                    yield row, name, self.ends(last), last
                if pair not in ends or self.ends(ends[pair]) <= self.ends(row):
                    ends[pair] = row

    def _in_turn(self, rows: list[int]) -> list[int]:
        """By readiness, ties by (sender, position), which rows ascend in.

        One without any delay may make another one ready in the same tick: then a tie stands as it was served. Behind
        all transfers that join with them come all-reduces, by chunk.
        """
        syncs = [row for row in rows if row >= len(self.sends)]
        if all(self.send(row).delay for row in rows if row not in syncs):
            return sorted(rows, key=lambda row: (self.joined(row), row))
        return sorted(
            rows,
            key=lambda row: (
                self.joined(row), row in syncs, *((0, 0) if row in syncs else (self.begins(row), self.ends(row))), row
            ),
        )  # fmt: skip

    def awaited_syncs(self) -> dict[int, int]:
        """The chunks whose replicas must synchronise, each with the time at which all their gradients are there."""
        ready: dict[int, int] = defaultdict(int)
        for row, op in enumerate(self.reading.ops):
            if op.kind in (Kind.W, Kind.B):
                ready[self.chunk(row)] = max(ready[self.chunk(row)], self.end[row])
        replicated = (chunk for chunk, on in self.hosts.items() if len(on) > 1 or self.problem.copies > 1)
        return {chunk: ready[chunk] for chunk in replicated if self.problem.sync[chunk] > 0}

    def sync_queues(self) -> Iterator[list[Sync]]:
        """For every device, its synchronisations in the order of readiness, ties by chunk."""
        ready = self.awaited_syncs()
        for device in range(self.reading.schedule.devices):
            own = [sync for sync in self.timeline.syncs if device in sync.devices and sync.chunk in ready]
            yield sorted(own, key=lambda sync: (ready[sync.chunk], sync.chunk))

    def gradients_done(self, device: int) -> int:
        """When a device has left its last op and its last gradient synchronisation behind."""
        left = [self.freed[slot] for slot in self.reading.slots[device]]
        return max([0, *left, *(sync.end for sync in self.timeline.syncs if device in sync.devices)])


def _occupancy(run: _Run) -> Iterator[Violation]:
    """A device runs its slots one by one in order, each for as long as its ops, launch and sends take."""
    for slot, clock in run.before():
        where = run.reading.where(slot[0])
        start, end = run.start[slot[0]], run.end[slot[0]]
        if start < clock:
            yield Violation(Rule.OCCUPANCY, where, f"starts at {start}, but its device is busy until {clock}")
        length = sum(run.duration(row) for row in slot) * (run.problem.overlap if len(slot) > 1 else 1)
        if end - start != length + run.problem.launch:
            yield Violation(Rule.DURATION, where, f"runs for {end - start}, it must for {length + run.problem.launch}")
        if any((run.start[row], run.end[row], run.free[row]) != (start, end, run.free[slot[0]]) for row in slot):
            yield Violation(Rule.PAIR, where, "the two ops of an overlapped pair must have the same times")
        if run.free[slot[0]] != run.freed[slot]:
            yield Violation(
                Rule.OCCUPANCY,
                where,
                f"frees its device at {run.free[slot[0]]}, its sends are done at {run.freed[slot]}",
            )


def _dependencies(run: _Run) -> Iterator[Violation]:
    for row, start in enumerate(run.start):
        if run.sources[row] is not None and start < (there := run.there(row)):
            yield Violation(
                Rule.DEPENDENCY, run.reading.where(row), f"starts at {start}, its input is there at {there}"
            )


def _transfers(run: _Run) -> Iterator[Violation]:
    """A transfer starts once it is posted (blocking: at once), and takes what its mode says; other ops cause none."""
    for row, send in enumerate(run.sends):
        where, times = run.reading.where(row), (run.sent[row], run.released[row], run.arrival[row])
        if send is None:
            if times != (-1, -1, -1):
                yield Violation(Rule.TRANSFER, where, f"causes no transfer, but has the times {times}")
            continue
        sent, posted = run.sent[row], run.posted[row]
        if sent < posted or (sent > posted and run.problem.communication is Communication.BLOCKING):
            yield Violation(Rule.TRANSFER, where, f"its transfer starts at {sent}, it is posted at {posted}")
        expected = (sent, sent + send.hold, sent + send.delay)
        if times != expected:
            yield Violation(
                Rule.TRANSFER, where, f"(sent, released, arrival) of its transfer are {times}, they must be {expected}"
            )


def _links(run: _Run) -> Iterator[Violation]:
    """Every link, and everything that links share, carries as many transfers as it can, in order of readiness."""
    for row, name, free, last in run.turns():
        if run.begins(row) < free:
            yield Violation(
                Rule.LINK,
                run.reading.where(row) if row < len(run.sends) else f"chunk {row - len(run.sends)}",
                f"its {'transfer' if row < len(run.sends) else 'all-reduce'} starts at {run.begins(row)}, but {name} "
                f"serves {run.said(last)} until {free} first",
            )


def _synchronised(run: _Run) -> Iterator[Violation]:
    ready = run.awaited_syncs()
    counts = Counter(sync.chunk for sync in run.timeline.syncs)
    for chunk in sorted(ready.keys() | counts.keys()):
        if counts[chunk] != (chunk in ready):
            must = "must once" if chunk in ready else "need not: it has no replicas, or costs nothing"
            yield Violation(Rule.SYNC, f"chunk {chunk}", f"synchronises {counts[chunk]} times, it {must}")
    for sync in run.timeline.syncs:
        where = f"chunk {sync.chunk}"
        hosts = tuple(sorted(run.hosts[sync.chunk]))
        if sync.devices != hosts:
            yield Violation(Rule.SYNC, where, f"synchronises devices {sync.devices}, its replicas are on {hosts}")
        if sync.start < (there := ready.get(sync.chunk, 0)):
            yield Violation(Rule.SYNC, where, f"starts at {sync.start}, its last backward ends at {there}")
        if sync.chunk in ready and sync.end - sync.start != run.problem.sync[sync.chunk]:
            yield Violation(
                Rule.SYNC, where, f"runs for {sync.end - sync.start}, it must for {run.problem.sync[sync.chunk]}"
            )
    for queue in run.sync_queues():
        for first, second in pairwise(queue):
            if second.start < first.end:
                yield Violation(
                    Rule.SYNC,
                    f"chunk {second.chunk}",
                    f"starts at {second.start}, before that of chunk {first.chunk} ends",
                )


def _updated(run: _Run) -> Iterator[Violation]:
    """Every device whose optimiser takes time steps once, behind all else that it does, for as long as that takes."""
    ticks = run.problem.optimizer
    counts = Counter(update.device for update in run.timeline.updates)
    for device in sorted({*counts, *range(len(ticks))}):
        must = int(0 <= device < len(ticks) and ticks[device] > 0)
        if counts[device] != must:
            yield Violation(Rule.OPTIMIZER, f"device {device}", f"steps {counts[device]} times, it must {must} times")
    for update in run.timeline.updates:
        if not 0 <= update.device < len(ticks):
            continue
        where, done = f"device {update.device}", run.gradients_done(update.device)
        if update.start < done:
            yield Violation(Rule.OPTIMIZER, where, f"steps at {update.start}, its gradients are done at {done}")
        if update.end - update.start != ticks[update.device]:
            length = update.end - update.start
            yield Violation(Rule.OPTIMIZER, where, f"steps for {length}, it must for {ticks[update.device]}")


def _memory(run: _Run) -> Iterator[Violation]:
    """A device's stash (in bytes: and its chunks) obeys its limit; F adds at its start, backwards free at their end."""
    limit = run.problem.memory_limit
    if limit is None:
        return
    stash = run.problem.bytes if limit.in_bytes else run.problem.stash
    if stash is None:
        raise UsageError("the memory limit is in bytes, but the problem gives no bytes")
    for device, (slots, allowed) in enumerate(zip(run.reading.slots, limit.per_device, strict=True)):
        level = sum(int(stash.static[chunk]) for chunk in run.chunks[device]) if limit.in_bytes else 0
        if level > allowed:
            message = f"its chunks alone take {level}, the limit is {allowed}"
            yield Violation(Rule.MEMORY, f"device {device}", message)
            continue
        for slot in slots:
            changes = [_change(run, stash, row) for row in slot]
            level += sum(change for change in changes if change > 0)
            if level > allowed:
                yield Violation(
                    Rule.MEMORY, run.reading.where(slot[0]), f"its device holds {level}, the limit is {allowed}"
                )
                break
            level += sum(change for change in changes if change < 0)


def _change(run: _Run, stash: Stash, row: int) -> int:
    """What an op adds to the stash at its start (F), or takes from it at its end."""
    op, chunk = run.reading.ops[row], run.chunk(row)
    held = int(stash.held[run.profile[op.microbatch], chunk])
    at_input = int(stash.freed_at_input[run.profile[op.microbatch], chunk])
    return {Kind.F: held, Kind.B: -held, Kind.I: -at_input, Kind.W: at_input - held}[Kind(op.kind)]


def _late_ops(run: _Run) -> Iterator[Violation]:
    for slot, clock in run.before():
        earliest = max(clock, *(run.there(row) for row in slot))
        if run.start[slot[0]] > earliest:
            yield Violation(
                Rule.SLACK, run.reading.where(slot[0]), f"starts at {run.start[slot[0]]}, it could at {earliest}"
            )


def _late_transfers(run: _Run) -> Iterator[Violation]:
    earliest = dict(run.posted)
    for row, _, free, _ in run.turns():
        if row < len(run.sends):
            earliest[row] = max(earliest[row], free)
    for row, time in earliest.items():
        if run.sent[row] > time:
            yield Violation(
                Rule.SLACK, run.reading.where(row), f"its transfer starts at {run.sent[row]}, it could at {time}"
            )


def _late_syncs(run: _Run) -> Iterator[Violation]:
    earliest = run.awaited_syncs()
    for queue in run.sync_queues():
        for first, second in pairwise(queue):
            earliest[second.chunk] = max(earliest[second.chunk], first.end)
    for row, _, free, _ in run.turns():
        if row >= len(run.sends):
            earliest[row - len(run.sends)] = max(earliest[row - len(run.sends)], free)
    for sync in run.timeline.syncs:
        if sync.start > earliest.get(sync.chunk, sync.start):
            yield Violation(
                Rule.SLACK, f"chunk {sync.chunk}", f"synchronises at {sync.start}, it could at {earliest[sync.chunk]}"
            )


def _late_updates(run: _Run) -> Iterator[Violation]:
    for update in run.timeline.updates:
        if update.start > (done := run.gradients_done(update.device)):
            yield Violation(Rule.SLACK, f"device {update.device}", f"steps at {update.start}, it could at {done}")
