"""What a placement's ops cost under a problem: occupancies of devices, and the transfers that they cause.

An occupancy is one op, or an overlapped pair, on its device. All in it is a fixed number of ticks from its start:

    start .. start + duration         launch overhead and computing
    .. start + busy                   posting costs, and in mode ``blocking`` the sends themselves
    start + send.offset               a send is ready to leave, its own posting being done
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from explorer.core.dataflow import Product, flow, need, product
from explorer.core.errors import Inexact
from explorer.core.op import Entry, Kind, Op, Overlapped
from explorer.core.placement import Placement
from explorer.core.problem import Problem, Stash, Transfers
from explorer.core.schedule import Schedule


@dataclass(frozen=True)
class Send:
    """The transfer of one op's product to another device.

    Parameters
    ----------
    op
        Whose product it is.
    source, target
        Devices.
    offset
        Ticks from the start of the op's occupancy until the transfer is ready.
    delay, hold
        Ticks from the start of the transfer until it arrives, and until the next may use its links.
    """

    op: Op
    source: int
    target: int
    offset: int
    delay: int
    hold: int


@dataclass(frozen=True)
class Occupancy:
    """What a device runs without interruption: ``ops`` are one, or the two of an overlapped pair.

    Parameters
    ----------
    device
        Where it runs.
    ops
        In row order.
    duration
        Ticks from its start to the end of its ops.
    busy
        Ticks from its start until the device may go on.
    sends
        In row order.
    """

    device: int
    ops: tuple[Op, ...]
    duration: int
    busy: int
    sends: tuple[Send, ...]

    def __str__(self) -> str:
        return str(self.ops[0]) if len(self.ops) == 1 else str(Overlapped(*self.ops))


class Costs:
    """A problem's costs, looked up by op.

    Parameters
    ----------
    problem, placement
        Of equal sizes.

    Raises
    ------
    UsageError
        If their sizes differ.
    """

    def __init__(self, problem: Problem, placement: Placement) -> None:
        problem.require_fits(placement)
        self.problem = problem
        self.placement = placement
        self._flow = flow(placement)
        self._transfers: Transfers = problem.transfer_times()

    def profile(self, op: Op) -> int:
        """The profile of the op's microbatch."""
        return int(self.problem.profile_of[op.microbatch])

    def chunk(self, op: Op) -> int:
        """The chunk that the op runs."""
        return self.placement.route(op.microbatch)[op.stage].chunk

    def device(self, op: Op) -> int:
        """Where the op runs."""
        return self.placement.route(op.microbatch)[op.stage].device

    def duration(self, op: Op) -> int:
        """Ticks of the op alone, without launch overhead."""
        return int(self.problem.durations[self.profile(op), self.chunk(op), op.kind])

    def held(self, stash: Stash, op: Op) -> int:
        """What the forward of the op's stage and microbatch adds to its device."""
        return int(stash.held[self.profile(op), self.chunk(op)])

    def freed(self, stash: Stash, op: Op) -> int:
        """What the op frees at its end."""
        at_input = int(stash.freed_at_input[self.profile(op), self.chunk(op)])
        return {Kind.F: 0, Kind.I: at_input, Kind.W: self.held(stash, op) - at_input, Kind.B: self.held(stash, op)}[
            op.kind
        ]

    def target(self, op: Op) -> int | None:
        """The device that the op's product is sent to; None where it stays, or nothing needs it."""
        made = product(op.kind)
        if made is None:
            return None
        target = int(self._flow.target[self.placement.route_of[op.microbatch], made, op.stage])
        return None if target in (-1, self.device(op)) else target

    def transfer(self, op: Op) -> tuple[int, int, int]:
        """Delay, hold and busy of the op's transfer to its `target`."""
        made, target = product(op.kind), self.target(op)
        assert made is not None and target is not None
        message = int(self._flow.message[self.placement.route_of[op.microbatch], made, op.stage])
        cost = self.profile(op), message, int(self.problem.network.link[self.device(op), target])
        table = self._transfers
        return int(table.delay[cost]), int(table.hold[cost]), int(table.busy[cost])

    def occupancy(self, entry: Entry) -> Occupancy:
        """What the entry costs.

        Raises
        ------
        Inexact
            If an overlapped pair takes no whole number of ticks.
        """
        ops: tuple[Op, ...] = (entry.first, entry.second) if isinstance(entry, Overlapped) else (entry,)
        total = sum(self.duration(op) for op in ops)
        if len(ops) > 1:
            overlapped = total * self.problem.overlap
            if overlapped.denominator > 1:
                raise Inexact(f"{entry} takes {self.problem.overlap} of {total} ticks, which is no whole number")
            total = int(overlapped)
        busy = duration = self.problem.launch + total
        sends = []
        for op in ops:
            target = self.target(op)
            if target is not None:
                delay, hold, sending = self.transfer(op)
                busy += self.problem.posting
                sends.append(Send(op, self.device(op), target, busy, delay, hold))
                busy += sending
        return Occupancy(self.device(ops[0]), ops, duration, busy, tuple(sends))


def input_of(op: Op, placement: Placement) -> tuple[Product, int, int] | None:
    """The product that an op waits for, as (product, stage, microbatch); None where it needs only the data set."""
    wanted = need(op.kind, op.stage, len(placement.route(op.microbatch)))
    return None if wanted is None else (wanted.product, wanted.stage, op.microbatch)


def output_of(op: Op) -> tuple[Product, int, int] | None:
    """The product that an op makes, as (product, stage, microbatch); None for W."""
    made = product(op.kind)
    return None if made is None else (made, op.stage, op.microbatch)


def every_op(schedule: Schedule) -> list[Op]:
    """The op of each row."""
    return [op for device in range(schedule.devices) for op in schedule.ops(device)]


def all_ops(placement: Placement, split: bool) -> Iterator[Op]:
    """Every op that the placement asks for, microbatch by microbatch, in an order that respects all dependencies."""
    backward = (Kind.I, Kind.W) if split else (Kind.B,)
    for microbatch in range(placement.microbatches):
        stages = range(len(placement.route(microbatch)))
        for stage in stages:
            yield Op(stage, Kind.F, microbatch)
        for stage in reversed(stages):
            for kind in backward:
                yield Op(stage, kind, microbatch)


def owed_syncs(problem: Problem, placement: Placement) -> tuple[int, ...]:
    """The chunks whose replicas must all-reduce their gradients, ascending."""
    return tuple(
        c for c, hosts in enumerate(placement.hosts) if len(hosts) * problem.copies > 1 and problem.sync[c] > 0
    )
