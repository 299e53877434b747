"""What things cost: durations, links, memory and limits, all integers, for one placement's chunks.

A *profile* is a class of microbatches that cost the same (all of them, unless sequence lengths differ). Arrays carry
their axes in this order: profile, chunk, kind (`Kind`) or link.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.core.errors import UsageError
from explorer.core.op import KINDS
from explorer.core.placement import IntArray, Placement
from explorer.core.units import TimeBase


class Communication(StrEnum):
    """What a transfer between devices does to time.

    ============  =====================================================================================
    ``none``      takes no time
    ``latency``   delays its consumer by latency + occupancy; any number at once
    ``link``      the same, and occupies the links on its path; first ready, first served
    ``blocking``  keeps the sender's device busy for latency + occupancy right after the producing op
    ============  =====================================================================================
    """

    NONE = "none"
    LATENCY = "latency"
    LINK = "link"
    BLOCKING = "blocking"


class Resource(NamedTuple):
    """Something that directed pairs of devices share, and how many of their transfers it serves at a time."""

    name: str
    pairs: frozenset[tuple[int, int]]
    servers: int


@dataclass(frozen=True, eq=False)
class Network:
    """The links between devices.

    Parameters
    ----------
    names
        The kinds of link; L of them.
    link
        (devices, devices) the kind of link from device i to device j; the diagonal is not read.
    latency
        (L,) ticks between the end of a transfer's occupancy and its arrival.
    occupancy
        (profiles, chunks, L) ticks for which the activation that chunk c sends on (and the gradient that comes back
        for it) occupies a link.
    shared
        What several directed pairs share besides (a node's NIC, an uplink): for each its name and the (source,
        destination) pairs that pass through it, one transfer at a time.
    servers
        How many transfers each of them serves at a time instead; empty for one each.
    """

    names: tuple[str, ...]
    link: IntArray
    latency: IntArray
    occupancy: IntArray
    shared: tuple[tuple[str, frozenset[tuple[int, int]]], ...] = ()
    servers: tuple[int, ...] = ()

    @property
    def resources(self) -> tuple[Resource, ...]:
        """What is shared, with its servers."""
        servers = self.servers or (1,) * len(self.shared)
        return tuple(Resource(name, pairs, n) for (name, pairs), n in zip(self.shared, servers, strict=True))


@dataclass(frozen=True, eq=False)
class Stash:
    """Memory in one measure: device units of activation, or bytes.

    Parameters
    ----------
    unit
        The value of 1 in the arrays: device units of activation for abstract measures, bytes otherwise.
    held
        (profiles, chunks) what F adds at its start.
    freed_at_input
        (profiles, chunks) the part of it that I frees at its end; W frees the rest, B frees all.
    static
        (chunks,) weights, gradients and optimiser state of a resident chunk; zeros where not modelled.
    weights
        (chunks,) the weights alone: what each further version of them adds; None where not modelled.
    """

    unit: Fraction
    held: IntArray
    freed_at_input: IntArray
    static: IntArray
    weights: IntArray | None = None


@dataclass(frozen=True)
class MemoryLimit:
    """A cap on every device's peak.

    Parameters
    ----------
    per_device
        In the stash's integer units, one a device.
    in_bytes
        Whether it limits static memory + stash in bytes, or the stash in device units of activation.
    text
        As the user gave it.
    """

    per_device: tuple[int, ...]
    in_bytes: bool
    text: str = ""


@dataclass(frozen=True, eq=False)
class Problem:
    """All costs of running any schedule on one placement.

    Parameters
    ----------
    time
        The length of a tick.
    durations
        (profiles, chunks, 4) ticks of one op.
    profile_of
        (microbatches,) each microbatch's profile.
    network, communication
        The links, and what a transfer does to time.
    stash
        Activations in device units: one microbatch's activation on one device is 1.
    bytes
        The same in bytes, where a model gives them.
    device_memory
        Bytes of memory that a device has, where known: static memory and stash beyond it do not fit.
    memory_limit
        What peaks must stay under.
    sync
        (chunks,) ticks of the gradient all-reduce of a chunk; read for chunks with more than one host, copies included.
    sync_path
        (chunks,) for each chunk, the positions in ``network.shared`` of what its all-reduce holds while it runs, in
        mode ``link``; empty where all-reduces do not compete with transfers.
    launch, posting
        Ticks that every op, and every send, adds on its device.
    overlap
        What an overlapped pair takes, as a fraction of the sum of its ops' durations.
    copies
        Data-parallel copies of the whole pipeline: where there are several, every chunk's gradients are all-reduced.
    optimizer
        Ticks of each device's optimiser step, which ends its part of the run; empty where it takes no time.
    rounding
        The largest error, in ``time.unit``, made when durations were rounded to ticks.
    title
        What these costs are of, in a few words.
    notes
        What a reader must know of where these costs come from.
    """

    time: TimeBase
    durations: IntArray
    profile_of: IntArray
    network: Network
    communication: Communication
    stash: Stash
    sync: IntArray
    bytes: Stash | None = None
    device_memory: int | None = None
    memory_limit: MemoryLimit | None = None
    launch: int = 0
    posting: int = 0
    overlap: Fraction = Fraction(1)
    copies: int = 1
    optimizer: tuple[int, ...] = ()
    sync_path: tuple[tuple[int, ...], ...] = ()
    rounding: Fraction = Fraction(0)
    title: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        profiles, chunks, kinds = self.durations.shape
        devices = len(self.network.link)
        shapes = {
            "durations": (kinds, len(KINDS)),
            "network.link": (self.network.link.shape, (devices, devices)),
            "network.occupancy": (self.network.occupancy.shape, (profiles, chunks, len(self.network.names))),
            "stash.held": (self.stash.held.shape, (profiles, chunks)),
            "sync": (self.sync.shape, (chunks,)),
            "sync_path": (len(self.sync_path), len(self.sync_path) and chunks),
            "optimizer": (len(self.optimizer), len(self.optimizer) and devices),
            "network.servers": (len(self.network.servers), len(self.network.servers) and len(self.network.shared)),
        }
        for name, (got, expected) in shapes.items():
            if got != expected:
                raise UsageError(f"{name} of a problem has shape {got}, expected {expected}")
        resources = len(self.network.shared)
        if not all(0 <= one < resources for passed in self.sync_path for one in passed):
            raise UsageError(f"sync_path of a problem must hold positions of its {resources} shared resources")
        several = self.communication is Communication.LINK and max(self.network.servers, default=1) > 1
        if several and (self.network.occupancy + self.network.latency).min(initial=1) <= 0:
            raise UsageError("what serves several transfers at a time needs transfers that take time")

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return len(self.network.link)

    @property
    def syncs_compete(self) -> bool:
        """Whether gradient all-reduces and transfers wait for one another."""
        return any(self.sync_path) and self.communication is Communication.LINK

    @property
    def steps(self) -> tuple[int, ...]:
        """(devices,) Ticks of each device's optimiser step; 0 where it takes no time."""
        return self.optimizer or (0,) * self.devices

    def require_fits(self, placement: Placement) -> None:
        """Check that this problem's sizes are those of a placement.

        Raises
        ------
        UsageError
            Naming the size that differs.
        """
        for what, ours, theirs in (
            ("devices", self.devices, placement.devices),
            ("chunks", self.durations.shape[1], placement.chunks),
            ("microbatches", len(self.profile_of), placement.microbatches),
        ):
            if ours != theirs:
                raise UsageError(f"the problem has {ours} {what}, the placement {theirs}")

    def transfer_times(self) -> Transfers:
        """What a transfer costs in this problem's mode, each (profiles, chunks, L) ticks."""
        whole = self.network.occupancy + self.network.latency
        nothing = np.zeros_like(whole)
        match self.communication:
            case Communication.NONE:
                return Transfers(nothing, nothing, nothing)
            case Communication.LATENCY:
                return Transfers(whole, nothing, nothing)
            case Communication.LINK:
                return Transfers(whole, self.network.occupancy, nothing)
            case Communication.BLOCKING:
                return Transfers(whole, nothing, whole)


@dataclass(frozen=True, eq=False)
class Transfers:
    """A mode, spelled out: from the start of a transfer, each (profiles, chunks, L) ticks.

    Parameters
    ----------
    delay
        Until it arrives.
    hold
        For how long the next transfer on the same link must wait.
    busy
        For how long the sender's device is kept from its next op.
    """

    delay: NDArray[np.int64]
    hold: NDArray[np.int64]
    busy: NDArray[np.int64]
