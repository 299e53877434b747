"""How devices hang together: links measured or given, what they share, and where a pipeline's devices sit.

A *slot* is a place for a device in the system, counted from 0 through the nodes, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from explorer.config.decode import measured
from explorer.core.errors import Malformed, UsageError, nearest
from explorer.core.placement import Placement
from explorer.core.problem import Resource

if TYPE_CHECKING:
    from explorer.config.system import System

KINDS = ("network", "node", "switch", "rack")
"""Links between nodes, inside a node, inside a PCIe switch (or the like) of a node, and between racks."""
DUPLEX = ("full", "half")
MOST_COPIES = 10**6


@dataclass(frozen=True)
class Sample:
    """How long a message of a size took from end to end, in B and s."""

    size: Fraction = measured("size")
    time: Fraction = measured("time")


@dataclass(frozen=True)
class Link:
    """A link between two devices, each direction on its own.

    Parameters
    ----------
    latency, bandwidth
        Seconds, and B/s as reached by one transfer.
    times
        In place of both: measured times of messages, by ascending size. Between two of them time is interpolated;
        beyond the last, the last two give the bandwidth.
    nccl_tests
        In place of both: a file with the output of a test of NCCL (``sendrecv_perf``), beside the system's file.
    """

    latency: Fraction | None = field(default=None, metadata={"dimension": "time"})
    bandwidth: Fraction | None = field(default=None, metadata={"dimension": "bandwidth"})
    times: tuple[Sample, ...] = ()
    nccl_tests: str = ""

    def __post_init__(self) -> None:
        given = [self.latency is not None or self.bandwidth is not None, bool(self.times), bool(self.nccl_tests)]
        if sum(given) != 1:
            raise UsageError("a link needs either latency and bandwidth, or times, or nccl_tests")
        if given[0]:
            if self.latency is None or self.bandwidth is None:
                raise UsageError("a link needs both latency and bandwidth")
            if self.latency < 0:
                raise UsageError("latencies and overheads cannot be negative")
            if self.bandwidth <= 0:
                raise UsageError("a link's bandwidth must be positive")
        if self.times:
            if len(self.times) < 2:
                raise UsageError("a link's times need at least two sizes")
            for one, following in pairwise(self.times):
                if following.size <= one.size or following.time < one.time:
                    raise UsageError("a link's times must be by ascending size, and none shorter than that before it")
            if self.times[0].size < 0 or self.times[0].time < 0:
                raise UsageError("sizes and times of a link cannot be negative")

    @property
    def startup(self) -> Fraction:
        """Seconds that do not depend on the size: a transfer arrives so long after it has left the link."""
        if self.latency is not None:
            return self.latency
        return self.times[0].time

    def occupancy(self, size: Fraction | int) -> Fraction:
        """Seconds for which a message of ``size`` bytes keeps the link from the next."""
        if self.bandwidth is not None:
            return size / self.bandwidth
        below = self.times[0]
        if size <= below.size:
            return Fraction(0)
        one, following = next(
            (pair for pair in pairwise(self.times) if size <= pair[1].size), (self.times[-2], self.times[-1])
        )
        slope = (following.time - one.time) / (following.size - one.size)
        return one.time + (size - one.size) * slope - below.time


@dataclass(frozen=True)
class Links:
    """One link of each kind that there is; see `KINDS`."""

    network: Link | None = None
    node: Link | None = None
    switch: Link | None = None
    rack: Link | None = None


@dataclass(frozen=True)
class Sharing:
    """Something that transfers pass through a few at a time: a port, a NIC, a switch's or a rack's uplink.

    Every group of ``devices`` consecutive slots has one. A transfer passes through its group's when it leaves the
    group, and through that of the group which it enters.

    Parameters
    ----------
    name
        What it is called.
    devices
        How many devices share one.
    links
        The kinds of link whose transfers pass through it; all by default.
    duplex
        ``full`` (each direction on its own) or ``half``.
    parallel
        How many of it a group has: so many transfers pass at a time, each through whichever is free first.
    """

    name: str
    devices: int = 1
    links: tuple[str, ...] = ()
    duplex: str = "full"
    parallel: int = 1

    def __post_init__(self) -> None:
        if self.devices < 1 or self.parallel < 1:
            raise UsageError(f"devices and parallel of the shared {self.name!r} must be at least 1")
        if self.duplex not in DUPLEX:
            raise UsageError(f"duplex of the shared {self.name!r} must be full or half, got {self.duplex!r}")
        for kind in self.links:
            if kind not in KINDS:
                raise UsageError(f"no kind of link is called {kind!r}; {nearest(kind, KINDS)}")


@dataclass(frozen=True)
class Layout:
    """Where a pipeline's devices sit.

    Parameters
    ----------
    per_node
        How many of them a node holds, evenly spread over its slots (the slots between may run the rest of
        tensor-parallel groups); as many as it has slots by default.
    slots
        The slot of each device, in place of that.
    copies
        Data-parallel copies of the whole pipeline, each on nodes of its own.

    Raises
    ------
    UsageError
        If a number is not positive, a slot is given twice, or both ways are used.
    """

    per_node: int | None = None
    slots: tuple[int, ...] = ()
    copies: int = 1

    def __post_init__(self) -> None:
        if self.per_node is not None and self.slots:
            raise UsageError("give either devices per node or a map of devices, not both")
        if self.per_node is not None and self.per_node < 1:
            raise UsageError(f"devices per node must be at least 1, got {self.per_node}")
        if not 1 <= self.copies <= MOST_COPIES:
            raise UsageError(f"data-parallel copies must be between 1 and {MOST_COPIES}, got {self.copies}")
        if self.slots and (min(self.slots) < 0 or len(set(self.slots)) < len(self.slots)):
            raise UsageError("a map of devices gives every device a slot of its own, from 0")

    def place(self, system: System, devices: int) -> tuple[int, ...]:
        """The slot of each of a pipeline's devices.

        Raises
        ------
        UsageError
            If the system does not have them.
        """
        has = system.devices_per_node
        if self.slots:
            if len(self.slots) != devices:
                raise UsageError(f"the map of devices names {len(self.slots)} slots for {devices} devices")
            slots = self.slots
        else:
            per_node = self.per_node or has
            if per_node > has:
                raise UsageError(f"a node of this system has {has} devices, not {per_node}")
            slots = tuple(device // per_node * has + device % per_node * (has // per_node) for device in range(devices))
        nodes = self.copies * (max(slots) // has + 1)
        if system.nodes and nodes > system.nodes:
            copies = f"{self.copies} copies of " if self.copies > 1 else ""
            raise UsageError(
                f"{copies}{devices} devices need {nodes} nodes of {has}, and the system has {system.nodes}: "
                f"{system.nodes * has} devices in all"
            )
        return slots


def crowding(system: System, kind: int, ranks: int) -> Fraction:
    """How much longer a transfer holds a kind of link when as many neighbouring slots send over it at once.

    Parameters
    ----------
    kind
        An index into the system's `link_names`.
    ranks
        Consecutive slots that do the same thing at the same time, as the ranks of a tensor-parallel group.
    """
    name = system.link_names[kind]
    at_once = (
        Fraction(min(sharing.devices, ranks), sharing.parallel)
        for sharing in system.shared
        if not sharing.links or name in sharing.links
    )
    return max([Fraction(1), *at_once])


def pairs_in_use(placement: Placement) -> list[tuple[int, int]]:
    """The directed pairs of devices between which activations and gradients go, ascending."""
    found = set()
    for route in placement.routes:
        for one, following in pairwise(route):
            if one.device != following.device:
                found |= {(one.device, following.device), (following.device, one.device)}
    return sorted(found)


def shared(system: System, slots: Sequence[int], pairs: Iterable[tuple[int, int]]) -> tuple[Resource, ...]:
    """What the pairs share; left out is what no more pairs use than it serves at a time."""
    return shared_with_rings(system, slots, pairs, ())[0]


def shared_with_rings(
    system: System, slots: Sequence[int], pairs: Iterable[tuple[int, int]], rings: Sequence[Sequence[int]]
) -> tuple[tuple[Resource, ...], tuple[tuple[int, ...], ...]]:
    """What pairs and rings share, and for each ring the positions of those that it passes through.

    Parameters
    ----------
    rings
        The slots of each, in order: its last one sends to the first. A ring passes through what transfers between
        neighbours pass through, and counts as one more pair there. A pair's own link is among what is shared where a
        ring takes it too.
    """
    groups: dict[str, set[tuple[int, int]]] = {}
    servers: dict[str, int] = {}
    passing: dict[str, set[int]] = {}
    edges = [
        {(source, to) for source, to in zip(ring, (*ring[1:], *ring[:1]), strict=True) if source != to}
        for ring in rings
    ]
    for source, to in pairs:
        for name, count in _passed(system, slots[source], slots[to]):
            groups.setdefault(name, set()).add((source, to))
            servers[name] = count
        takers = {number for number, edge in enumerate(edges) if (slots[source], slots[to]) in edge}
        if takers:
            own = f"link {source} -> {to}"
            groups[own], servers[own], passing[own] = {(source, to)}, 1, takers
    for number, edge in enumerate(edges):
        for name, count in sorted({passed for ends in edge for passed in _passed(system, *ends)}):
            groups.setdefault(name, set())
            servers[name] = count
            passing.setdefault(name, set()).add(number)
    kept = [name for name in groups if len(groups[name]) + len(passing.get(name, ())) > servers[name]]
    return (
        tuple(Resource(name, frozenset(groups[name]), servers[name]) for name in kept),
        tuple(
            tuple(position for position, name in enumerate(kept) if number in passing.get(name, ()))
            for number in range(len(rings))
        ),
    )


def _passed(system: System, source: int, to: int) -> Iterator[tuple[str, int]]:
    """What a transfer from one slot to another passes through, and how many each serves."""
    kind = system.link_names[system.link(source, to)]
    for sharing in system.shared:
        leaves, enters = source // sharing.devices, to // sharing.devices
        if leaves == enters or (sharing.links and kind not in sharing.links):
            continue
        for group, way in ((leaves, " out"), (enters, " in")):
            yield f"{sharing.name} {group}{way if sharing.duplex == 'full' else ''}", sharing.parallel


def nccl_samples(text: str, where: str) -> tuple[Sample, ...]:
    """Sizes and out-of-place times of a test of NCCL, from its output (github.com/NVIDIA/nccl-tests).

    Lines that begin with ``#`` are comments; the others hold size (B), count, type, redop, root and time (us).

    Raises
    ------
    Malformed
        Naming the line that has no size and time, or if there are fewer than two.
    """
    samples: list[Sample] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            size, time = int(words[0]), Fraction(words[5]) / 10**6
        except (ValueError, IndexError, ZeroDivisionError):
            raise Malformed(
                "expected size, count, type, redop, root and time, as nccl-tests print them", f"{where}:{number}"
            ) from None
        if size > 0:
            # Small messages take the same time but for noise: no larger one counts as quicker than a smaller.
            longest = max([time, *(sample.time for sample in samples[-1:])])
            samples.append(Sample(Fraction(size), longest))
    if len(samples) < 2:
        raise Malformed("a link needs the times of at least two sizes", where)
    return tuple(samples)
