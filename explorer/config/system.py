"""Systems: what devices compute and how they are linked."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from explorer.config.decode import measured
from explorer.config.topology import KINDS, Link, Links, Sharing
from explorer.core.errors import UsageError


@dataclass(frozen=True)
class Compute:
    """Matrix units of one device.

    Parameters
    ----------
    matrix
        Peak, in FLOP/s.
    efficiency
        The part of the peak that a whole block reaches.
    products
        The part that matrix products alone reach, for costs layer by layer; as ``efficiency`` by default.
    half_work
        Operations of a product that reaches half of that part: w of them reach w / (w + half_work) of it, for costs
        layer by layer; 0, where size does not matter, by default.
    latency
        Seconds added to every op.
    """

    matrix: Fraction = measured("throughput")
    efficiency: Fraction = Fraction(1)
    products: Fraction | None = None
    half_work: Fraction = Fraction(0)
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
class Overheads:
    """Seconds that every op, and every send, takes on its device besides.

    Parameters
    ----------
    launch, posting
        Of an op, and of a send.
    layer
        What the host needs to launch a layer's F, I or W, for costs layer by layer: these take no less.
    """

    launch: Fraction = measured("time", "0 s")
    posting: Fraction = measured("time", "0 s")
    layer: Fraction = measured("time", "0 s")


@dataclass(frozen=True)
class System:
    """A cluster of equal devices.

    Parameters
    ----------
    description
        One line.
    compute, memory, overheads
        Of one device.
    links
        One of each kind; two devices use that of the smallest group that holds both.
    devices_per_node
        Slots d // devices_per_node are one node.
    devices_per_switch
        The same for PCIe switches (or the like) inside a node; 0 where there are none.
    nodes_per_rack
        The same for racks; 0 where there are none.
    nodes
        How many there are; 0 for as many as are asked for.
    shared
        What transfers pass through one at a time.

    Raises
    ------
    UsageError
        If a rate is not positive, an efficiency is not within (0, 1], or a group of devices has no link.
    """

    description: str
    compute: Compute
    memory: Memory
    links: Links
    devices_per_node: int = 1
    devices_per_switch: int = 0
    nodes_per_rack: int = 0
    nodes: int = 0
    shared: tuple[Sharing, ...] = ()
    overheads: Overheads = field(default_factory=Overheads)

    def __post_init__(self) -> None:
        self._require_groups()
        for name, part in (("compute", self.compute), ("memory", self.memory)):
            if not 0 < part.efficiency <= 1:
                raise UsageError(f"{name}.efficiency must be over 0 and at most 1, got {float(part.efficiency):g}")
        if self.compute.products is not None and not 0 < self.compute.products <= 1:
            raise UsageError(f"compute.products must be over 0 and at most 1, got {float(self.compute.products):g}")
        rates = {
            "compute.matrix": self.compute.matrix,
            "memory.size": self.memory.size,
            "memory.bandwidth": self.memory.bandwidth,
        }
        for name, rate in rates.items():
            if rate <= 0:
                raise UsageError(f"{name} must be positive")
        if min(self.compute.latency, self.memory.latency, self.compute.half_work, *vars(self.overheads).values()) < 0:
            raise UsageError("latencies, overheads and half_work cannot be negative")

    def _require_groups(self) -> None:
        if self.devices_per_node < 1:
            raise UsageError(f"devices_per_node must be at least 1, got {self.devices_per_node}")
        if min(self.devices_per_switch, self.nodes_per_rack, self.nodes) < 0:
            raise UsageError("devices_per_switch, nodes_per_rack and nodes cannot be negative")
        if self.devices_per_switch and self.devices_per_node % self.devices_per_switch:
            raise UsageError(f"devices_per_switch must divide devices_per_node, got {self.devices_per_switch}")
        for needed, kind, link in (
            (self.devices_per_node > 1, "node", self.links.node),
            (self.devices_per_switch > 1, "switch", self.links.switch),
            (self.nodes_per_rack > 0, "rack", self.links.rack),
        ):
            if needed and link is None:
                group = {"node": "nodes of several devices", "switch": "switches of several devices", "rack": "racks"}
                raise UsageError(f"{group[kind]} need a table [links.{kind}]")
        for sharing in self.shared:
            missing = [kind for kind in sharing.links if getattr(self.links, kind) is None]
            if missing:
                raise UsageError(f"the shared {sharing.name!r} is of links.{missing[0]}, which there is no table for")
        if not self.link_names:
            raise UsageError("a system needs a table [links.network] or [links.node]")

    @property
    def link_names(self) -> tuple[str, ...]:
        """The kinds of link that there are."""
        return tuple(kind for kind in KINDS if getattr(self.links, kind) is not None)

    def link(self, source: int, destination: int) -> int:
        """The kind of link between two slots, as an index into `link_names`.

        Raises
        ------
        UsageError
            If no link joins them.
        """
        kind = self._kind(source, destination)
        if getattr(self.links, kind) is None:
            raise UsageError(
                f"slots {source} and {destination} are in different nodes of {self.devices_per_node}, which nothing "
                "joins: the system needs a table [links.network]"
            )
        return self.link_names.index(kind)

    def _kind(self, source: int, destination: int) -> str:
        def together(size: int) -> bool:
            return size > 0 and source // size == destination // size

        if together(self.devices_per_switch) and self.links.switch is not None:
            return "switch"
        if together(self.devices_per_node) and self.links.node is not None:
            return "node"
        if self.nodes_per_rack and not together(self.devices_per_node * self.nodes_per_rack):
            return "rack"
        return "network"

    def link_at(self, index: int) -> Link:
        """The link of a kind."""
        found: Link = getattr(self.links, self.link_names[index])
        return found
