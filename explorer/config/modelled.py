"""From a model and a system to a `Problem`, for any placement: seconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil

import numpy as np

from explorer.config.limits import UNLIMITED, check_shares, memory_limit
from explorer.config.model import Model
from explorer.config.roofline import BlockCosts, block_costs, embedding_costs, head_costs
from explorer.config.system import System
from explorer.config.topology import Layout, pairs_in_use, shared
from explorer.core.errors import Inapplicable, Inexact, UsageError
from explorer.core.op import Kind
from explorer.core.placement import IntArray, Placement
from explorer.core.problem import Communication, Network, Problem, Stash
from explorer.core.units import HORIZON, TimeBase

RESOLUTION = Fraction(1, 10**9)
"""Modelled durations are rounded to this many seconds, once; see `resolution` for training steps of hours."""


@dataclass(frozen=True)
class ModelledCosts:
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

    def __post_init__(self) -> None:
        check_shares(self.freed_at_input, self.overlap)
        if self.embeddings and not self.model.vocabulary:
            raise UsageError("the model has no embedding and no head: give its file a key 'vocabulary'")

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
        slots = self.layout.place(self.system, placement.devices)
        batch = ceil(Fraction(self.model.global_batch, placement.microbatches * self.layout.copies))
        block = block_costs(self.model, self.system, batch)
        blocks = deal(self.model.blocks, placement)
        chunks = self._chunks(placement, blocks, block, batch)
        clock = _Clock(resolution(chunks, placement.microbatches))
        overlap = self.overlap
        durations = np.array(
            [[[clock.ticks(chunk.seconds[kind], overlap) for kind in Kind] for chunk in chunks]], np.int64
        )
        in_bytes = self._bytes(placement, chunks)
        whole = Fraction(placement.devices, self.model.blocks)
        stash = _stash(blocks, self.freed_at_input, whole)
        return Problem(
            time=clock.base,
            durations=durations,
            profile_of=np.zeros(placement.microbatches, np.int64),
            network=self._network(placement, slots, block, clock),
            communication=self.communication or Communication.LINK,
            stash=stash,
            sync=self._syncs(placement, slots, chunks, clock),
            bytes=in_bytes,
            device_memory=int(self.system.memory.size),
            memory_limit=memory_limit(self.memory_limit, placement.devices, stash, in_bytes),
            launch=clock.ticks(self.system.overheads.launch),
            posting=clock.ticks(self.system.overheads.posting),
            overlap=self.overlap,
            copies=self.layout.copies,
            rounding=clock.error,
            title=f"{self.title}, {batch} {'sequence' if batch == 1 else 'sequences'} a microbatch",
            notes=self._notes(placement, blocks, batch),
        )

    def _network(self, placement: Placement, slots: tuple[int, ...], block: BlockCosts, clock: _Clock) -> Network:
        system, pairs = self.system, pairs_in_use(placement)
        links = [system.link_at(index) for index in range(len(system.link_names))]
        kinds = np.zeros((placement.devices, placement.devices), np.int64)
        for source, to in pairs:
            kinds[source, to] = system.link(slots[source], slots[to])
        occupancy = [clock.ticks(link.occupancy(block.message)) for link in links]
        return Network(
            system.link_names,
            kinds,
            np.array([clock.ticks(link.startup) for link in links], np.int64),
            np.tile(np.array(occupancy, np.int64), (1, placement.chunks, 1)),
            shared(system, slots, pairs),
        )

    def _chunks(self, placement: Placement, blocks: list[int], block: BlockCosts, batch: int) -> list[BlockCosts]:
        """What each chunk costs."""
        chunks = [block.times(count) for count in blocks]
        if self.embeddings:
            embedding = embedding_costs(self.model, self.system, batch)
            head = head_costs(self.model, self.system, batch)
            for first in {route[0].chunk for route in placement.routes}:
                chunks[first] = chunks[first].plus(embedding)
            for last in {route[-1].chunk for route in placement.routes}:
                chunks[last] = chunks[last].plus(head)
        return chunks

    def _bytes(self, placement: Placement, chunks: list[BlockCosts]) -> Stash:
        resident = sum(
            (chunk.static + chunk.weights) * len(hosts) for chunk, hosts in zip(chunks, placement.hosts, strict=True)
        )
        stashed = sum(chunk.activation for chunk in chunks) * placement.microbatches
        if resident + stashed > UNLIMITED:
            raise Inexact("the model's activations and weights pass 2^62 bytes; give a smaller model or batch")
        return replace(
            _stash([chunk.activation for chunk in chunks], self.freed_at_input, Fraction(1)),
            static=np.array([chunk.static for chunk in chunks], np.int64),
            weights=np.array([chunk.weights for chunk in chunks], np.int64),
        )

    def _syncs(self, placement: Placement, slots: tuple[int, ...], chunks: list[BlockCosts], clock: _Clock) -> IntArray:
        """Ring all-reduces over the slowest link among a chunk's hosts: 2 (n-1)/n bytes/bandwidth + 2 (n-1) latency.

        Data-parallel copies are hosts too, on nodes of their own: the ring then goes between nodes.
        """
        if not self.gradient_sync:
            return np.zeros(placement.chunks, np.int64)
        copies, system = self.layout.copies, self.system
        node, apart = system.devices_per_node, max(slots) // system.devices_per_node + 1

        def seconds(chunk: int) -> Fraction:
            hosts = [
                slots[host] + copy * apart * node for copy in range(min(copies, 2)) for host in placement.hosts[chunk]
            ]
            count = len(placement.hosts[chunk]) * copies
            ring = zip(hosts, (*hosts[1:], hosts[0]), strict=True)
            kinds = {system.link(source, to) for source, to in ring if source != to}
            size = Fraction(chunks[chunk].gradient, count)
            links = map(system.link_at, kinds)
            return max((2 * (count - 1) * (link.occupancy(size) + link.startup) for link in links), default=Fraction(0))

        return np.array([clock.ticks(seconds(chunk)) for chunk in range(placement.chunks)], np.int64)

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
