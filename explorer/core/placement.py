"""Where the pieces of the model live, and the way each microbatch takes through them.

A route is a sequence of hops, one a stage; a hop says which chunk of the model runs there and on which device. The same
chunk on two devices is a weight replica. Looped, V-shaped, wave and mirrored placements are nothing but routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.core.errors import Inapplicable, UsageError

IntArray = NDArray[np.int64]


MOST_DEVICES = 2**16
"""Far more than any pipeline has; tables of all pairs of devices must stay within memory."""


class Hop(NamedTuple):
    """One stage of a route: this chunk, on this device."""

    chunk: int
    device: int


Route = tuple[Hop, ...]


@dataclass(frozen=True)
class Placement:
    """Routes through the devices, and which microbatch takes which.

    Parameters
    ----------
    routes
        Each a sequence of hops, stage 0 first; a route visits a chunk once.
    route_of
        For each microbatch, the index of its route.
    shares
        For each chunk, the fraction of the model that it holds; along every route they sum to 1. Equal by default.

    Raises
    ------
    UsageError
        If a route is empty or repeats a chunk, an index is out of range, or shares do not sum to 1.
    """

    routes: tuple[Route, ...]
    route_of: tuple[int, ...]
    shares: tuple[Fraction, ...] = ()

    def __post_init__(self) -> None:
        if not self.routes or not self.route_of:
            raise UsageError("a placement needs at least one route and one microbatch")
        object.__setattr__(self, "routes", tuple(tuple(Hop(*hop) for hop in route) for route in self.routes))
        object.__setattr__(self, "route_of", tuple(self.route_of))
        for number, route in enumerate(self.routes):
            if not route:
                raise UsageError(f"route {number} has no stage")
            if len({hop.chunk for hop in route}) < len(route):
                raise UsageError(f"route {number} visits a chunk twice")
            if min(min(hop) for hop in route) < 0:
                raise UsageError(f"route {number} has a negative chunk or device")
        hops = [hop for route in self.routes for hop in route]
        chunks = {hop.chunk for hop in hops}
        if max(chunks, default=0) >= len(chunks) > 0:
            raise UsageError(f"chunks must be 0, 1, 2, ...; {max(chunks)} is the highest of {len(chunks)}")
        if max((hop.device for hop in hops), default=0) >= MOST_DEVICES:
            raise UsageError(f"there can be at most {MOST_DEVICES} devices")
        if not 0 <= min(self.route_of) <= max(self.route_of) < len(self.routes):
            raise UsageError(f"route_of names a route outside 0..{len(self.routes) - 1}")
        if not self.shares:
            length = len(self.routes[0])
            if any(len(route) != length for route in self.routes):
                raise UsageError("routes of different length need explicit shares")
            object.__setattr__(self, "shares", (Fraction(1, length),) * self.chunks)
        if len(self.shares) != self.chunks:
            raise UsageError(f"{len(self.shares)} shares for {self.chunks} chunks")
        if min(self.shares) <= 0:
            raise UsageError("a chunk's share of the model must be positive")
        for number, route in enumerate(self.routes):
            total = sum(self.shares[hop.chunk] for hop in route)
            if total != 1:
                raise UsageError(f"the chunks of route {number} hold {total} of the model, not all of it")

    @property
    def microbatches(self) -> int:
        """How many microbatches there are."""
        return len(self.route_of)

    @cached_property
    def devices(self) -> int:
        """How many devices there are."""
        return 1 + max(hop.device for route in self.routes for hop in route)

    @cached_property
    def chunks(self) -> int:
        """How many distinct chunks the model is cut into."""
        return 1 + max(hop.chunk for route in self.routes for hop in route)

    @cached_property
    def stages(self) -> int:
        """The length of the longest route."""
        return max(map(len, self.routes))

    def route(self, microbatch: int) -> Route:
        """The route of a microbatch."""
        return self.routes[self.route_of[microbatch]]

    @cached_property
    def hosts(self) -> tuple[tuple[int, ...], ...]:
        """For each chunk, the devices that hold it, ascending; more than one means replicas."""
        found: list[set[int]] = [set() for _ in range(self.chunks)]
        for route in self.routes:
            for hop in route:
                found[hop.chunk].add(hop.device)
        return tuple(tuple(sorted(devices)) for devices in found)

    @cached_property
    def resident(self) -> tuple[tuple[int, ...], ...]:
        """For each device, the chunks whose weights it holds, ascending."""
        return tuple(
            tuple(chunk for chunk, devices in enumerate(self.hosts) if device in devices)
            for device in range(self.devices)
        )

    @cached_property
    def columns(self) -> Columns:
        """The placement as arrays."""
        device = np.full((len(self.routes), self.stages), -1, np.int64)
        chunk = np.full_like(device, -1)
        for number, route in enumerate(self.routes):
            device[number, : len(route)] = [hop.device for hop in route]
            chunk[number, : len(route)] = [hop.chunk for hop in route]
        length = np.array([len(route) for route in self.routes], np.int64)
        return Columns(device, chunk, length, np.array(self.route_of, np.int64))


class Columns(NamedTuple):
    """A placement as arrays: ``device`` and ``chunk`` are (routes, stages), -1 past a route's end."""

    device: IntArray
    chunk: IntArray
    length: IntArray
    route_of: IntArray


def _counted(devices: int, microbatches: int) -> None:
    if devices < 1 or microbatches < 1:
        raise Inapplicable(f"a pipeline needs at least 1 device and 1 microbatch, got {devices} and {microbatches}")


def along(devices_by_stage: Sequence[int], microbatches: int, shares: Iterable[Fraction] = ()) -> Placement:
    """One route for every microbatch: chunk s on ``devices_by_stage[s]``."""
    route = tuple(Hop(chunk, device) for chunk, device in enumerate(devices_by_stage))
    return Placement((route,), (0,) * microbatches, tuple(shares))


def linear(devices: int, microbatches: int) -> Placement:
    """Stage s on device s."""
    return loop(devices, microbatches, chunks=1)


def loop(devices: int, microbatches: int, chunks: int) -> Placement:
    """``chunks`` a device, dealt round and round: stage s on device s mod D (Megatron-LM's interleaving)."""
    _counted(devices, microbatches)
    if chunks < 1:
        raise Inapplicable(f"a device needs at least 1 chunk, got {chunks}")
    return along([stage % devices for stage in range(devices * chunks)], microbatches)


def vee(devices: int, microbatches: int) -> Placement:
    """Two chunks a device, down and back up: stage s on device s, then on 2D-1-s."""
    return wave(devices, microbatches, waves=1)


def wave(devices: int, microbatches: int, waves: int) -> Placement:
    """``waves`` times down and back up, 2 ``waves`` chunks a device; a turn stays on its device (Hanayo)."""
    _counted(devices, microbatches)
    if waves < 1:
        raise Inapplicable(f"a wave placement needs at least 1 wave, got {waves}")
    down = list(range(devices))
    return along((down + down[::-1]) * waves, microbatches)


def mirrored(
    devices: int,
    microbatches: int,
    pairs: int = 1,
    *,
    route_of: Sequence[int] = (),
    shares: Iterable[Fraction] = (),
) -> Placement:
    """Pairs of pipelines in opposite directions, each a whole replica of the model (Chimera, DualPipe).

    Route 2i goes down, stage s on device (iD/pairs + s) mod D; route 2i+1 takes the same devices back up.

    Parameters
    ----------
    pairs
        How many pairs; each starts D/pairs devices after the one before it.
    route_of
        For each microbatch its route; by default the routes get equal runs of consecutive microbatches.
    shares
        For each chunk the fraction of the model that it holds; equal by default.

    Raises
    ------
    Inapplicable
        If the pairs cannot be spread evenly over the devices, or microbatches over the routes.
    """
    _counted(devices, microbatches)
    if pairs < 1 or devices % pairs:
        raise Inapplicable(f"pairs of pipelines must divide the {devices} devices, got {pairs}")
    if not route_of:
        if microbatches % (2 * pairs):
            raise Inapplicable(f"{2 * pairs} pipelines need microbatches divisible by {2 * pairs}, got {microbatches}")
        route_of = [m * 2 * pairs // microbatches for m in range(microbatches)]
    routes: list[Route] = []
    for first in range(0, devices, devices // pairs):
        down = [(first + stage) % devices for stage in range(devices)]
        routes += [tuple(map(Hop, range(devices), way)) for way in (down, down[::-1])]
    return Placement(tuple(routes), tuple(route_of), tuple(shares))
