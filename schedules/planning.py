"""List scheduling of split backwards on a line of devices, with the run's own times. Not a schedule itself.

Microbatches pass in order, so a device's order is a list of kinds: the i-th F, I and W are those of microbatch i.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from explorer.core.errors import LimitTooSmall
from explorer.core.op import Kind
from explorer.core.placement import IntArray, Placement
from explorer.core.problem import Problem

NEVER = 2**62
"""Later than any time, more than any memory."""

Table = list[list[int]]
"""[device][microbatch]"""


class Costs(NamedTuple):
    """What planning reads of a problem, as plain lists.

    Attributes
    ----------
    duration
        For F, I and W a table of ticks, launch overhead included.
    delay
        For F and I a table of ticks from the end of the op to the arrival of its product at the next device; links are
        taken to be free.
    busy
        For F and I a table of ticks for which sending keeps the device from its next op.
    held, freed
        Tables of what F adds to the memory, and of the part that I frees.
    limit
        [device] the most that may be held.
    """

    duration: tuple[Table, Table, Table]
    delay: tuple[Table, Table]
    busy: tuple[Table, Table]
    held: Table
    freed: Table
    limit: list[int]

    @classmethod
    def equal(cls, devices: int, microbatches: int) -> Costs:
        """F, I and W of one tick each, no transfer times, no limit."""
        ones, nothing = ([[value] * microbatches] * devices for value in (1, 0))
        return cls((ones, ones, ones), (nothing, nothing), (nothing, nothing), ones, nothing, [NEVER] * devices)

    @classmethod
    def of(cls, placement: Placement, problem: Problem) -> Costs:
        """The costs of a problem on a line of devices.

        Raises
        ------
        LimitTooSmall
            If some device's memory limit leaves no room for one activation.
        """
        profile, link = problem.profile_of, problem.network.link
        devices, transfers = range(placement.devices), problem.transfer_times()

        def rows(array: IntArray) -> Table:
            return [array[profile, d].tolist() for d in devices]

        def sends(array: IntArray) -> tuple[Table, Table]:
            """Activations go to the next device, gradients to the one before: the message is that of its chunk."""
            array, none = array + problem.posting, [0] * len(profile)
            down = [array[profile, d, link[d, d + 1]].tolist() for d in devices[:-1]]
            up = [array[profile, d - 1, link[d, d - 1]].tolist() for d in devices[1:]]
            return [*down, none], [none, *up]

        F, I, W = (rows(problem.durations[:, :, kind] + problem.launch) for kind in (Kind.F, Kind.I, Kind.W))
        limited = problem.memory_limit
        stash = problem.bytes if limited and limited.in_bytes else problem.stash
        assert stash is not None, "a limit in bytes is only made with a stash in bytes"
        limit = [NEVER for _ in devices]
        if limited:
            static = stash.static.tolist() if limited.in_bytes else [0 for _ in devices]
            limit = [most - fixed for most, fixed in zip(limited.per_device, static, strict=True)]
        held = rows(stash.held)
        for d in devices:
            if max(held[d]) > limit[d]:
                raise LimitTooSmall(
                    f"the memory limit of device {d} leaves no room for the activation of one microbatch"
                )
        return cls((F, I, W), sends(transfers.delay), sends(transfers.busy), held, rows(stash.freed_at_input), limit)

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return len(self.held)

    @property
    def microbatches(self) -> int:
        """How many microbatches there are."""
        return len(self.held[0])

    @property
    def work(self) -> list[int]:
        """[device] Ticks of all its ops: no device's span is shorter."""
        return [sum(sum(table[d]) for table in self.duration) for d in range(self.devices)]

    @property
    def least_makespan(self) -> int:
        """No makespan is shorter: a device's work comes after the first forward has passed those before it."""
        least, head = 0, 0
        for d, work in enumerate(self.work):
            least = max(least, head + work)
            head += self.duration[Kind.F][d][0] + self.delay[Kind.F][d][0]
        return least

    def fits(self, orders: Sequence[Sequence[Kind]]) -> bool:
        """Whether orders keep every device's memory within its limit."""
        for d, order in enumerate(orders):
            memory, done = 0, [0, 0, 0]
            for kind in order:
                memory += self.change(d, kind, done[kind])
                done[kind] += 1
                if memory > self.limit[d]:
                    return False
        return True

    def change(self, d: int, kind: Kind, m: int) -> int:
        """What an op adds to a device's memory."""
        if kind is Kind.F:
            return self.held[d][m]
        return -self.freed[d][m] if kind is Kind.I else self.freed[d][m] - self.held[d][m]


class Plan(NamedTuple):
    """Orders, as kinds, with their makespan, their longest device span, and the longest idle time within a span."""

    orders: list[list[Kind]]
    makespan: int
    span: int
    idle: int


class Policy(NamedTuple):
    """How a device chooses: a gradient that is there goes first, then a forward, then a W if there is time for it.

    Attributes
    ----------
    in_flight
        [device] how many forwards may be ahead of their input gradients.
    patient
        Whether a device may wait for a gradient on its way, rather than delay it by a forward.
    late
        Whether waits are saved up for the end: with no forward left, a wait counts once for each gradient to come.
    budget
        How long a device may wait in all for what is on its way; after that it fills every gap with a W.
    """

    in_flight: tuple[int, ...]
    patient: bool
    late: bool
    budget: int


Choice = tuple[Kind | None, int]
"""What to run now; or nothing, and when to ask again."""


def follow(costs: Costs, policy: Policy) -> Plan:
    """The orders that a policy gives."""

    def choose(run: _Run, d: int, now: int) -> Choice:
        forwards, gradients, weights = run.done[d]
        gradient = run.arrival[Kind.I][d][gradients]
        if gradient <= now:
            return Kind.I, now
        forward = NEVER
        if forwards < costs.microbatches and forwards - gradients < policy.in_flight[d] and run.has_room(d):
            forward = run.arrival[Kind.F][d][forwards]
        left = policy.budget - run.idle[d]
        if forward <= now:
            late = now + costs.duration[Kind.F][d][forwards] > gradient
            if not (policy.patient and late and gradient - now <= left):
                return Kind.F, now
            forward = NEVER
        soon = min(gradient, forward)
        if weights < gradients:
            times = costs.microbatches - gradients if policy.late and forwards == costs.microbatches else 1
            if now + costs.duration[Kind.W][d][weights] <= soon or (soon - now) * times > left:
                return Kind.W, now
        return None, soon

    return _drive(costs, choose)


def replay(costs: Costs, orders: Sequence[Sequence[Kind]]) -> Plan:
    """The times of given orders."""

    def choose(run: _Run, d: int, now: int) -> Choice:
        position = len(run.orders[d])
        if position == len(orders[d]):
            return None, NEVER
        kind = orders[d][position]
        ready = now if kind is Kind.W else run.arrival[kind][d][run.done[d][kind]]
        return (kind, now) if ready <= now else (None, ready)

    return _drive(costs, choose)


def _drive(costs: Costs, choose: Callable[[_Run, int, int], Choice]) -> Plan:
    """Let devices choose, in order of time; a device is asked when it is free and when something is sent to it."""
    run, events = _Run(costs), [(0, 0)]
    left = 3 * costs.devices * costs.microbatches
    while left:
        now, d = heappop(events)
        if now < run.free[d]:
            continue
        kind, later = choose(run, d, now)
        if kind is not None:
            left -= 1
            for event in run.start(d, kind, now):
                heappush(events, event)
        elif later < NEVER:
            heappush(events, (later, d))
    spans = [free - first for free, first in zip(run.free, run.first, strict=True)]
    return Plan(run.orders, max(run.free), max(spans), max(run.idle))


class _Run:
    """A simulation under way; devices' counts and times, and the arrivals that are known."""

    def __init__(self, costs: Costs) -> None:
        devices, microbatches = costs.devices, costs.microbatches
        self.costs = costs
        self.orders: list[list[Kind]] = [[] for _ in range(devices)]
        self.done = [[0, 0, 0] for _ in range(devices)]
        self.memory, self.free, self.first, self.idle = ([0] * devices for _ in range(4))
        unknown = [[NEVER] * (microbatches + 1) for _ in range(2 * devices)]
        self.arrival = (unknown[:devices], unknown[devices:])
        self.arrival[Kind.F][0][:microbatches] = [0] * microbatches

    def has_room(self, d: int) -> bool:
        """Whether the next forward's activation fits into the memory."""
        return self.memory[d] + self.costs.held[d][self.done[d][Kind.F]] <= self.costs.limit[d]

    def start(self, d: int, kind: Kind, now: int) -> Iterator[tuple[int, int]]:
        """Run an op, and say when its device, and the one that gets its product, should be asked again."""
        costs, m = self.costs, self.done[d][kind]
        if self.orders[d]:
            self.idle[d] += now - self.free[d]
        else:
            self.first[d] = now
        self.orders[d].append(kind)
        self.done[d][kind] += 1
        self.memory[d] += costs.change(d, kind, m)
        end = now + costs.duration[kind][d][m]
        self.free[d] = end if kind is Kind.W else end + costs.busy[kind][d][m]
        yield self.free[d], d
        if kind is Kind.F and d == costs.devices - 1:
            self.arrival[Kind.I][d][m] = end
        elif kind is Kind.F or (kind is Kind.I and d > 0):
            target = d + 1 if kind is Kind.F else d - 1
            self.arrival[kind][target][m] = end + costs.delay[kind][d][m]
            yield self.arrival[kind][target][m], target
