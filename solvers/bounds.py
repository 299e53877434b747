"""Lower bounds of the makespan over all orders, by reasoning alone; each says what it reasons from.

They hold in every communication mode: a transfer counts with its delay, never with a wait for its link. Where ops may
overlap in pairs, an op counts with its share of the least that a pair could take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil

from explorer.core.op import Kind, Op
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from solvers.work import Costs, owed_syncs

Variant = tuple[Kind, ...]
"""What a backward consists of: ``(B,)``, or ``(I, W)``."""


@dataclass(frozen=True)
class Bound:
    """No order is done before ``ticks``, and why."""

    ticks: int
    reason: str


def best_bound(problem: Problem, placement: Placement, split: bool | None, *, pairs: bool = False) -> Bound:
    """The greatest of the `simple_bounds`."""
    return max(simple_bounds(problem, placement, split, pairs=pairs), key=lambda bound: bound.ticks)


def schedule_bound(problem: Problem, schedule: Schedule) -> Bound:
    """The greatest simple bound over all orders of what this schedule runs.

    Where it has overlapped pairs, or splits only some backwards, other orders may pair and split as they like.
    """
    kinds = set(schedule.kind.tolist())
    split = None if {Kind.I, Kind.B} <= kinds else Kind.I in kinds
    return best_bound(problem, schedule.placement, split, pairs=schedule.overlaps)


def simple_bounds(
    problem: Problem, placement: Placement, split: bool | None, *, pairs: bool = False
) -> tuple[Bound, ...]:
    """The critical path of one microbatch; each device's work with its head and tail; each device's synchronisations.

    Whichever device is done last with its gradients still takes its optimiser step: the shortest one at least.

    Parameters
    ----------
    problem, placement
        Of equal sizes.
    split
        Whether every backward is split into I and W, or none; None if each may be either.
    pairs
        Whether ops may overlap in pairs.
    """
    case = _Case(Costs(problem, placement), split, pairs)
    owed = owed_syncs(problem, placement)
    last = min(problem.steps[device] for device, chunks in enumerate(placement.resident) if chunks)
    longest = max(path.length for path in case.paths) + last
    bounds = [Bound(longest, "critical path of one microbatch")]
    for device, chunks in enumerate(placement.resident):
        if case.on(device):
            head, tail = case.head(device), case.tail(device)
            work = case.work(case.on(device), sends=True)
            step = problem.steps[device]
            around = ", with what must precede and follow it" if head or tail or step else ""
            bounds.append(Bound(head + work + max(tail + last, step), f"work of device {device}{around}"))
        syncs = [chunk for chunk in chunks if chunk in owed]
        if syncs:
            ticks = min(map(case.gradients, syncs)) + sum(int(problem.sync[chunk]) for chunk in syncs)
            bounds.append(Bound(ticks + problem.steps[device], f"gradient synchronisations of device {device}"))
    return tuple(bounds)


def span_bound(problem: Problem, placement: Placement, split: bool | None, *, pairs: bool = False) -> Bound:
    """The greatest work of a device: no longest device span is shorter."""
    case = _Case(Costs(problem, placement), split, pairs)
    work = [case.work(case.on(device), sends=True) for device in range(placement.devices)]
    return Bound(max(work), f"work of device {work.index(max(work))}")


@dataclass(frozen=True)
class _Path:
    """One microbatch alone, of those that share its route and profile.

    Parameters
    ----------
    microbatch, count
        One of them, and how many there are.
    forward, backward
        For each stage, the earliest start of F and of I or B.
    done
        For each stage, the earliest time at which it and those that its gradient goes on to are done.
    length
        When all is done.
    """

    microbatch: int
    count: int
    forward: Sequence[int]
    backward: Sequence[int]
    done: Sequence[int]

    @property
    def length(self) -> int:
        return self.done[-1]


Place = tuple[_Path, int]
"""A stage of a kind of microbatch."""


@dataclass(frozen=True)
class _Case:
    """What is asked: the costs, and what a backward may consist of and whether ops may overlap in pairs."""

    costs: Costs
    split: bool | None
    pairs: bool

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What each backward may consist of."""
        whole, parts = (Kind.B,), (Kind.I, Kind.W)
        return {True: (parts,), False: (whole,), None: (whole, parts)}[self.split]

    @property
    def share(self) -> Fraction:
        """The least part of its duration that an op may add to its device's work."""
        return min(Fraction(1), self.costs.problem.overlap) if self.pairs else Fraction(1)

    def least(self, op: Op) -> int:
        """The least occupancy that the op is part of."""
        return self.costs.problem.launch + ceil(self.share * self.costs.duration(op))

    def sending(self, op: Op) -> int:
        """How long the op's own send keeps its device."""
        if self.costs.target(op) is None:
            return 0
        return self.costs.problem.posting + self.costs.transfer(op)[2]

    def passing(self, op: Op) -> int:
        """From the end of the op until its product is where it is needed, at least."""
        if self.costs.target(op) is None:
            return 0
        return self.costs.problem.posting + self.costs.transfer(op)[0]

    def sync(self, op: Op) -> int:
        """What must follow the end of a W or B of this op's chunk."""
        chunk = self.costs.chunk(op)
        hosts = len(self.costs.placement.hosts[chunk]) * self.costs.problem.copies
        return int(self.costs.problem.sync[chunk]) if hosts > 1 else 0

    @cached_property
    def paths(self) -> tuple[_Path, ...]:
        """One for each kind of microbatch: those of one route and profile are alike."""
        kinds = list(zip(self.costs.placement.route_of, self.costs.problem.profile_of.tolist(), strict=True))
        one = {kind: microbatch for microbatch, kind in enumerate(kinds)}
        return tuple(self._path(one[kind], count) for kind, count in Counter(kinds).items())

    def _path(self, microbatch: int, count: int) -> _Path:
        stages = range(len(self.costs.placement.route(microbatch)))
        now, forward = 0, []
        for stage in stages:
            op = Op(stage, Kind.F, microbatch)
            forward.append(now)
            now += self.least(op) + self.passing(op)
        backward, done = [0] * len(stages), [0] * len(stages)
        for stage in reversed(stages):
            backward[stage] = now
            first = [Op(stage, variant[0], microbatch) for variant in self.variants]
            now += min(self.least(op) + self.passing(op) for op in first)
        for stage in stages:
            own = min(self._backward(stage, microbatch, variant) for variant in self.variants)
            done[stage] = max(backward[stage] + own, done[stage - 1] if stage else 0)
        return _Path(microbatch, count, forward, backward, done)

    def _gradients(self, stage: int, microbatch: int, variant: Variant) -> int:
        """From the start of a stage's backward until its last op ends."""
        ops = [Op(stage, kind, microbatch) for kind in variant]
        return sum(self.least(op) + self.sending(op) for op in ops[:-1]) + self.least(ops[-1])

    def _backward(self, stage: int, microbatch: int, variant: Variant) -> int:
        """From the start of a stage's backward until its device is done with it, and its gradients with their sync."""
        last = Op(stage, variant[-1], microbatch)
        return self._gradients(stage, microbatch, variant) + max(self.sending(last), self.sync(last))

    def on(self, device: int, chunk: int | None = None) -> list[Place]:
        """What runs on a device, of one chunk or of all."""
        return [
            (path, stage)
            for path in self.paths
            for stage, hop in enumerate(self.costs.placement.route(path.microbatch))
            if hop.device == device and chunk in (None, hop.chunk)
        ]

    def work(self, places: Iterable[Place], *, sends: bool) -> int:
        """The least time that a device spends on these; ``sends`` says whether what it sends counts."""
        once = Fraction(self.costs.problem.launch, 2 if self.pairs else 1)

        def spent(path: _Path, stage: int, kinds: Variant) -> Fraction:
            ops = [Op(stage, kind, path.microbatch) for kind in kinds]
            busy = sum(self.sending(op) for op in ops) if sends else 0
            return len(ops) * once + self.share * sum(self.costs.duration(op) for op in ops) + busy

        total = Fraction(0)
        for path, stage in places:
            backward = min(spent(path, stage, variant) for variant in self.variants)
            total += path.count * (spent(path, stage, (Kind.F,)) + backward)
        return ceil(total)

    def head(self, device: int) -> int:
        """The least time until anything can start on the device: that is a forward."""
        return min(path.forward[stage] for path, stage in self.on(device))

    def tail(self, device: int) -> int:
        """The least time that must pass after the device's last occupancy has let it go: that ends a backward."""
        return min(
            max(0, self._tail(path, stage, variant))
            for path, stage in self.on(device)
            for variant in self.variants
            if not self._goes_on_here(path, stage)
        )

    def _tail(self, path: _Path, stage: int, variant: Variant) -> int:
        """From the end of an op's last send.

        In a pair, that of the op that sends last is the one that counts; the synchronisation may then have begun before
        both sends, and is left out.
        """
        last = Op(stage, variant[-1], path.microbatch)
        after_end = 0 if self.pairs else self.sync(last)
        if last.kind is Kind.B and stage > 0:
            after_end = max(after_end, self.passing(last) + path.done[stage - 1] - path.backward[stage - 1])
        return after_end - self.sending(last)

    def _goes_on_here(self, path: _Path, stage: int) -> bool:
        """Whether the stage's gradient is needed by a later op of the same device, so that nothing here can be last."""
        route = self.costs.placement.route(path.microbatch)
        return any(hop.device == route[stage].device for hop in route[:stage]) and self.split is False

    def gradients(self, chunk: int) -> int:
        """The least time at which a chunk's gradients are there on all its hosts.

        Each host runs all its ops of the chunk, and each microbatch alone takes its time to get there and back.
        """
        ready = 0
        for host in self.costs.placement.hosts[chunk]:
            places = self.on(host, chunk)
            if places:
                head = min(path.forward[stage] for path, stage in places)
                ready = max(ready, head + self.work(places, sends=False))
            for path, stage in places:
                own = min(self._gradients(stage, path.microbatch, variant) for variant in self.variants)
                ready = max(ready, path.backward[stage] + own)
        return ready
