"""From a model and a system to a `Problem`, for any placement: seconds and bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

import numpy as np

from explorer.config.limits import UNLIMITED, check_shares, memory_limit
from explorer.config.model import Model
from explorer.config.roofline import BlockCosts, block_costs, embedding_costs, head_costs
from explorer.config.system import System
from explorer.config.topology import Layout, crowding, pairs_in_use, shared_with_rings
from explorer.core.errors import Inapplicable, Inexact, UsageError
from explorer.core.op import Kind
from explorer.core.placement import Placement
from explorer.core.problem import Communication, Network, Problem, Stash
from explorer.core.units import HORIZON, TimeBase

RESOLUTION = Fraction(1, 10**9)
"""Modelled durations are rounded to this many seconds, once; see `resolution` for training steps of hours."""


@dataclass(frozen=True)
class Workload:
    """What the chunks of a placement cost, for one microbatch.

    Parameters
    ----------
    chunks
        Times and bytes of each.
    blocks
        Blocks of each, in which activations are counted.
    message
        Bytes that go from one to the next.
    batch
        Sequences a microbatch.
    notes
        What the reader should know.
    """

    chunks: list[BlockCosts]
    blocks: list[int]
    message: int
    batch: int
    notes: tuple[str, ...]


class SystemCosts(ABC):
    """Costs on a system: how seconds and bytes become a `Problem`; a subclass says what chunks cost."""

    system: System
    communication: Communication | None
    gradient_sync: bool
    optimizer: bool
    freed_at_input: Fraction | None
    """None for what each chunk says itself, in bytes; activations are counted as held until W then."""
    overlap: Fraction
    memory_limit: str | None
    title: str
    layout: Layout
    sync_on_links: bool

    @abstractmethod
    def workload(self, placement: Placement) -> Workload:
        """What the chunks cost."""

    @abstractmethod
    def sync_seconds(self, placement: Placement, slots: tuple[int, ...], chunks: list[BlockCosts]) -> list[Fraction]:
        """How long the all-reduce of each chunk's gradients takes."""

    @abstractmethod
    def ring(self, placement: Placement, slots: tuple[int, ...], chunk: int) -> list[int]:
        """The slots that the ring of a chunk's all-reduce goes through, in order, as far as they are not alike."""

    @property
    def side_by_side(self) -> int:
        """Consecutive slots that send a stage's messages at the same time."""
        return 1

    def optimizer_times(self, placement: Placement, chunks: list[BlockCosts]) -> list[Fraction]:
        """Seconds of each device's optimiser step, which memory bounds: it computes next to nothing."""
        memory = self.system.memory
        rate = memory.bandwidth * memory.efficiency
        return [sum(chunks[chunk].stepped for chunk in resident) / rate for resident in placement.resident]

    def check_sync_on_links(self) -> None:
        """Refuse all-reduces that hold links where nothing does."""
        if self.sync_on_links and self.communication not in (None, Communication.LINK):
            raise UsageError(
                f"gradient all-reduces hold links in mode link, not in mode {self.communication}; leave "
                "--sync-on-links out"
            )

    def slots(self, placement: Placement) -> tuple[int, ...]:
        """Where in the system the pipeline's devices sit."""
        return self.layout.place(self.system, placement.devices)

    def problem(self, placement: Placement) -> Problem:
        """The costs on a placement's chunks and devices.

        Raises
        ------
        Inapplicable
            If there are fewer blocks than a route has stages.
        UsageError
            If the system has too few devices, or does not join those that exchange data.
        Inexact
            If times or sizes are beyond what 64-bit integers hold.
        """
        slots = self.slots(placement)
        work = self.workload(placement)
        chunks = work.chunks
        clock = _Clock(resolution(chunks, placement.microbatches))
        overlap = self.overlap
        durations = np.array(
            [[[clock.ticks(chunk.seconds[kind], overlap) for kind in Kind] for chunk in chunks]], np.int64
        )
        in_bytes = self._bytes(placement, chunks)
        whole = Fraction(placement.devices * len(placement.routes), self._blocks_of_routes(placement, work))
        stash = _stash(work.blocks, self.freed_at_input or Fraction(0), whole)
        syncs = self.sync_seconds(placement, slots, chunks) if self.gradient_sync else [Fraction(0)] * len(chunks)
        steps = self.optimizer_times(placement, chunks) if self.optimizer else []
        network, sync_path = self._network(placement, slots, work.message, clock)
        return Problem(
            time=clock.base,
            durations=durations,
            profile_of=np.zeros(placement.microbatches, np.int64),
            network=network,
            communication=self.communication or Communication.LINK,
            stash=stash,
            sync=np.array([clock.ticks(seconds) for seconds in syncs], np.int64),
            bytes=in_bytes,
            device_memory=int(self.system.memory.size),
            memory_limit=memory_limit(self.memory_limit, placement.devices, stash, in_bytes),
            launch=clock.ticks(self.system.overheads.launch),
            posting=clock.ticks(self.system.overheads.posting),
            overlap=self.overlap,
            copies=self.layout.copies,
            optimizer=tuple(map(clock.ticks, steps)),
            sync_path=sync_path,
            rounding=clock.error,
            title=f"{self.title}, {work.batch} {'sequence' if work.batch == 1 else 'sequences'} a microbatch",
            notes=(*work.notes, *self._sync_notes(sync_path)),
        )

    def _sync_notes(self, sync_path: tuple[tuple[int, ...], ...]) -> tuple[str, ...]:
        if not (self.sync_on_links and self.gradient_sync):
            return ()
        if any(sync_path):
            return (
                "gradient all-reduces hold the links that their rings pass: they and transfers wait for one another",
            )
        return ("gradient all-reduces hold nothing that a transfer or another one passes",)

    def _blocks_of_routes(self, placement: Placement, work: Workload) -> int:
        return sum(work.blocks[hop.chunk] for route in placement.routes for hop in route)

    def _network(
        self, placement: Placement, slots: tuple[int, ...], message: int, clock: _Clock
    ) -> tuple[Network, tuple[tuple[int, ...], ...]]:
        """The links, and what of that which they share each chunk's all-reduce holds."""
        system, pairs = self.system, pairs_in_use(placement)
        links = [system.link_at(index) for index in range(len(system.link_names))]
        kinds = np.zeros((placement.devices, placement.devices), np.int64)
        for source, to in pairs:
            kinds[source, to] = system.link(slots[source], slots[to])
        crowds = [crowding(system, kind, self.side_by_side) for kind in range(len(links))]
        occupancy = [clock.ticks(link.occupancy(message) * crowd) for link, crowd in zip(links, crowds, strict=True)]
        competes = self.sync_on_links and self.gradient_sync
        rings = [self.ring(placement, slots, chunk) for chunk in range(placement.chunks)] if competes else []
        resources, sync_path = shared_with_rings(system, slots, pairs, rings)
        network = Network(
            system.link_names,
            kinds,
            np.array([clock.ticks(link.startup) for link in links], np.int64),
            np.tile(np.array(occupancy, np.int64), (1, placement.chunks, 1)),
            tuple((name, users) for name, users, _ in resources),
            tuple(servers for *_, servers in resources),
        )
        return network, sync_path

    def _bytes(self, placement: Placement, chunks: list[BlockCosts]) -> Stash:
        resident = sum(
            (chunk.static + chunk.weights) * len(hosts) for chunk, hosts in zip(chunks, placement.hosts, strict=True)
        )
        stashed = sum(chunk.activation for chunk in chunks) * placement.microbatches
        if resident + stashed > UNLIMITED:
            raise Inexact("the model's activations and weights pass 2^62 bytes; give a smaller model or batch")
        held = _stash([chunk.activation for chunk in chunks], self.freed_at_input or Fraction(0), Fraction(1))
        if self.freed_at_input is None:
            held = replace(held, freed_at_input=np.array([[chunk.freed for chunk in chunks]], np.int64))
        return replace(
            held,
            static=np.array([chunk.static for chunk in chunks], np.int64),
            weights=np.array([chunk.weights for chunk in chunks], np.int64),
        )


@dataclass(frozen=True)
class ModelledCosts(SystemCosts):
    """Costs of a model on a system, by `explorer.config.roofline`.

    Parameters
    ----------
    model, system
        What runs, and where.
    communication
        ``link`` by default.
    embeddings
        Whether first stages hold the embedding too, and last stages the vocabulary head.
    gradient_sync
        Whether replicas all-reduce their gradients.
    optimizer
        Whether the optimiser's step counts.
    freed_at_input
        The share of an activation that I frees.
    overlap
        Time of an overlapped pair, as a fraction of its ops' sum.
    memory_limit
        See `explorer.config.limits`.
    title
        What the model and the system are called.
    layout
        Where the devices sit in the system, and how many data-parallel copies there are.
    sync_on_links
        Whether each all-reduce holds what its ring passes through, so that it and transfers wait for one another.
    """

    model: Model
    system: System
    communication: Communication | None = None
    embeddings: bool = False
    gradient_sync: bool = True
    freed_at_input: Fraction = Fraction(0)
    overlap: Fraction = Fraction(1)
    memory_limit: str | None = None
    layout: Layout = field(default_factory=Layout)
    title: str = "modelled costs"
    optimizer: bool = False
    sync_on_links: bool = False

    def __post_init__(self) -> None:
        self.check_sync_on_links()
        check_shares(self.freed_at_input, self.overlap)
        if self.embeddings and not self.model.vocabulary:
            raise UsageError("the model has no embedding and no head: give its file a key 'vocabulary'")

    def workload(self, placement: Placement) -> Workload:
        """Equal blocks, dealt by the chunks' shares; the embedding and the head where they are asked for."""
        batch = ceil(Fraction(self.model.global_batch, placement.microbatches * self.layout.copies))
        block = block_costs(self.model, self.system, batch)
        blocks = deal(self.model.blocks, placement)
        chunks = [block.times(count) for count in blocks]
        if self.embeddings:
            embedding = embedding_costs(self.model, self.system, batch)
            head = head_costs(self.model, self.system, batch)
            for first in {route[0].chunk for route in placement.routes}:
                chunks[first] = chunks[first].plus(embedding)
            for last in {route[-1].chunk for route in placement.routes}:
                chunks[last] = chunks[last].plus(head)
        return Workload(chunks, blocks, block.message, batch, self._notes(placement, blocks, batch))

    def sync_seconds(self, placement: Placement, slots: tuple[int, ...], chunks: list[BlockCosts]) -> list[Fraction]:
        """Ring all-reduces over the slowest link among a chunk's hosts."""

        def seconds(chunk: int) -> Fraction:
            count = len(placement.hosts[chunk]) * self.layout.copies
            return ring_seconds(self.system, self.ring(placement, slots, chunk), count, chunks[chunk].gradient)

        return [seconds(chunk) for chunk in range(placement.chunks)]

    def ring(self, placement: Placement, slots: tuple[int, ...], chunk: int) -> list[int]:
        """A chunk's hosts.

        Data-parallel copies are hosts too, on nodes of their own: the ring then goes between nodes. All are alike, so
        two stand for any number.
        """
        node = self.system.devices_per_node
        apart = (max(slots) // node + 1) * node
        copies = range(min(self.layout.copies, 2))
        return [slots[host] + copy * apart for copy in copies for host in placement.hosts[chunk]]

    def _notes(self, placement: Placement, blocks: list[int], batch: int) -> tuple[str, ...]:
        notes = []
        whole = self.model.blocks
        if any(whole * share != count for share, count in zip(placement.shares, blocks, strict=True)):
            notes.append(f"{whole} blocks do not divide evenly: stages hold {min(blocks)} to {max(blocks)}")
        copies = self.layout.copies
        sequences = batch * placement.microbatches * copies
        if sequences != self.model.global_batch:
            notes.append(
                f"{copies} times "
                * (copies > 1)
                + f"{placement.microbatches} microbatches of {batch} make a batch of {sequences} sequences, not the "
                f"model's {self.model.global_batch}: do not compare its time with that of other numbers of microbatches"
            )
        return tuple(notes)


def ring_seconds(system: System, slots: list[int], count: int, size: int, rings: int = 1) -> Fraction:
    """A ring all-reduce of ``size`` bytes among ``count``: 2 (n-1)/n bytes/bandwidth + 2 (n-1) latency.

    Over the slowest link between neighbours of the ring through ``slots``, which may be only part of its members; as
    many ``rings`` go side by side, through neighbouring slots.
    """
    kinds = {system.link(source, to) for source, to in zip(slots, (*slots[1:], slots[0]), strict=True) if source != to}
    part = Fraction(size, count)
    steps = (
        system.link_at(kind).occupancy(part) * crowding(system, kind, rings) + system.link_at(kind).startup
        for kind in kinds
    )
    return 2 * (count - 1) * max(steps, default=Fraction(0))


class _Clock:
    """Rounds seconds to ticks and remembers the largest error."""

    def __init__(self, tick: Fraction) -> None:
        self.base = TimeBase(tick, "s", rounds=True)
        self.error = Fraction(0)

    def ticks(self, seconds: Fraction, overlap: Fraction = Fraction(1)) -> int:
        """The nearest number of ticks of which an overlapped pair takes a whole number too."""
        step = overlap.denominator
        count = step * self.base.ticks(seconds / step)
        self.error = max(self.error, abs(count * self.base.tick - seconds))
        return count


def resolution(chunks: list[BlockCosts], microbatches: int) -> Fraction:
    """The shortest tick of 1, 10, 100, ... ns of which all ops, one after the other, take less than the horizon."""
    work = microbatches * sum(chunk.seconds[Kind.F] + chunk.seconds[Kind.B] for chunk in chunks)
    tick = RESOLUTION
    while work > HORIZON * tick:
        tick *= 10
    return tick


def deal(blocks: int, placement: Placement) -> list[int]:
    """Blocks of each chunk: by its share of the model, the rest to the largest remainders, first come first served.

    Raises
    ------
    Inapplicable
        If a chunk would get none, or no rounding gives every route all blocks.
    """
    dealt: dict[int, int] = {}
    for route in placement.routes:
        chunks = [hop.chunk for hop in route if hop.chunk not in dealt]
        exact = {chunk: blocks * placement.shares[chunk] for chunk in chunks}
        left = blocks - sum(dealt.get(hop.chunk, 0) for hop in route) - sum(int(value) for value in exact.values())
        by_remainder = sorted(chunks, key=lambda chunk: (int(exact[chunk]) - exact[chunk], chunk))
        for place, chunk in enumerate(by_remainder):
            dealt[chunk] = int(exact[chunk]) + (place < left)
        if sum(dealt[hop.chunk] for hop in route) != blocks:
            raise Inapplicable(
                f"{blocks} blocks cannot be dealt so that every route has all of them: routes share chunks, and a "
                "chunk's share of the blocks is not whole"
            )
    counts = [dealt[chunk] for chunk in range(placement.chunks)]
    if min(counts) < 1:
        raise Inapplicable(
            f"the model's {blocks} blocks do not fill {placement.stages} stages; use at most {blocks} stages "
            "(fewer devices, chunks or waves)"
        )
    return counts


def _stash(sizes: list[int], freed_at_input: Fraction, unit: Fraction) -> Stash:
    """Activations in ``unit``, or in a part of it in which the share that I frees is whole."""
    parts = freed_at_input.denominator
    held = np.array([sizes], np.int64)
    if unit == 1:  # bytes: whole as they are
        freed = np.array([[int(size * freed_at_input) for size in sizes]], np.int64)
        return Stash(unit, held, freed, np.zeros(len(sizes), np.int64))
    return Stash(unit / parts, held * parts, held * freed_at_input.numerator, np.zeros(len(sizes), np.int64))
