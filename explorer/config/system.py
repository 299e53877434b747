"""Systems: what devices compute and how they are linked."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from explorer.config.decode import measured
from explorer.core.errors import UsageError


@dataclass(frozen=True)
class Compute:
    """Matrix units of one device.

    Parameters
    ----------
    matrix
        Peak, in FLOP/s.
    efficiency
        The part of the peak that a block's matrix products reach.
    latency
        Seconds added to every op.
    """

    matrix: Fraction = measured("throughput")
    efficiency: Fraction = Fraction(1)
    latency: Fraction = measured("time", "0 s")


@dataclass(frozen=True)
class Memory:
    """Memory of one device.

    Parameters
    ----------
    size
        In bytes.
    bandwidth
        Peak, in B/s.
    efficiency
        The part of the peak that is reached.
    latency
        Seconds added to every op that memory bounds.
    """

    size: Fraction = measured("size")
    bandwidth: Fraction = measured("bandwidth")
    efficiency: Fraction = Fraction(1)
    latency: Fraction = measured("time", "0 s")


@dataclass(frozen=True)
class Link:
    """A link between two devices, each direction on its own: seconds, and B/s as reached by one transfer."""

    latency: Fraction = measured("time")
    bandwidth: Fraction = measured("bandwidth")


@dataclass(frozen=True)
class Links:
    """Between devices of one node, and between nodes."""

    network: Link
    node: Link | None = None


@dataclass(frozen=True)
class Overheads:
    """Seconds that every op, and every send, takes on its device besides."""

    launch: Fraction = measured("time", "0 s")
    posting: Fraction = measured("time", "0 s")


@dataclass(frozen=True)
class System:
    """A cluster of equal devices.

    Parameters
    ----------
    description
        One line.
    devices_per_node
        Pipeline device d sits in node d // devices_per_node.

    Raises
    ------
    UsageError
        If a rate is not positive, an efficiency is not within (0, 1], or nodes of several devices have no inner link.
    """

    description: str
    compute: Compute
    memory: Memory
    links: Links
    devices_per_node: int = 1
    overheads: Overheads = field(default_factory=Overheads)

    def __post_init__(self) -> None:
        if self.devices_per_node < 1:
            raise UsageError(f"devices_per_node must be at least 1, got {self.devices_per_node}")
        if self.devices_per_node > 1 and self.links.node is None:
            raise UsageError("nodes of several devices need a table [links.node]")
        for name, part in (("compute", self.compute), ("memory", self.memory)):
            if not 0 < part.efficiency <= 1:
                raise UsageError(f"{name}.efficiency must be over 0 and at most 1, got {float(part.efficiency):g}")
        rates = {
            "compute.matrix": self.compute.matrix,
            "memory.size": self.memory.size,
            "memory.bandwidth": self.memory.bandwidth,
            "links.network.bandwidth": self.links.network.bandwidth,
        }
        if self.links.node is not None:
            rates["links.node.bandwidth"] = self.links.node.bandwidth
        for name, rate in rates.items():
            if rate <= 0:
                raise UsageError(f"{name} must be positive")
        delays = [self.compute.latency, self.memory.latency, self.links.network.latency]
        delays += [self.overheads.launch, self.overheads.posting]
        if min(delays + ([self.links.node.latency] if self.links.node else [])) < 0:
            raise UsageError("latencies and overheads cannot be negative")

    @property
    def link_names(self) -> tuple[str, ...]:
        """The kinds of link: between nodes, and inside one if there is a link of its own."""
        return ("network",) if self.links.node is None else ("network", "node")

    def link(self, source: int, destination: int) -> int:
        """The kind of link between two pipeline devices, as an index into `link_names`."""
        same = source // self.devices_per_node == destination // self.devices_per_node
        return 1 if same and self.links.node is not None else 0

    def link_at(self, index: int) -> Link:
        """The link of a kind."""
        return self.links.node if index == 1 and self.links.node is not None else self.links.network
