"""From abstract costs to a `Problem`, for any placement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from explorer.config.limits import check_shares, memory_limit
from explorer.core.errors import UsageError
from explorer.core.op import Kind
from explorer.core.placement import IntArray, Placement
from explorer.core.problem import Communication, Network, Problem, Stash
from explorer.core.units import TimeBase, as_number


@dataclass(frozen=True)
class AbstractCosts:
    """Costs in one unit of time, the same whatever the schedule.

    Times are those of one microbatch's share of work on one device: a chunk that holds the share x of the model costs
    D x times as much on D devices, so that every schedule does the same work per microbatch. Activations scale alike.

    Parameters
    ----------
    forward, backward, input_grad, weight_grad
        A full backward is 2 forwards by default, shared evenly between its halves; what is given decides the rest.
    unit
        ``"1"`` or ``"s"``, of all times.
    comm_time
        Of one transfer between devices: latency in the modes ``none`` and ``latency``, occupancy in ``link`` and
        ``blocking``.
    sync_time
        To all-reduce the gradients of one device's share of the model among its replicas.
    optimizer_step
        Of the optimiser's step on one device's share of the model, once its gradients are there and all-reduced. A
        device that holds more of the model takes longer, however many copies there are.
    communication
        ``latency`` if there is a transfer time, else ``none``, by default.
    per_stage
        Take times and activations as those of a stage, as they stand.
    stage_factors, memory_factors
        Relative time and activation along the model, in equal pieces from its first layer to its last: with as many
        pieces as stages each stage's own, otherwise a chunk takes the mean of those that it covers.
    microbatch_factors
        Relative length of each microbatch: of its ops, its activations and its transfers.
    freed_at_input
        The share of an activation that I frees; W frees the rest.
    overlap
        Time of an overlapped pair, as a fraction of its ops' sum.
    gradient_sync
        Whether replicas synchronise their gradients.
    memory_limit
        Activations a device may hold, in device units: ``"4"``, or one a device: ``"4,3,2,1"``.
    launch, posting
        Time that every op, and every send, adds on its device.
    copies
        Data-parallel copies of the whole pipeline, whose gradients are all-reduced in ``sync_time`` too.
    """

    forward: Fraction = Fraction(1)
    backward: Fraction | None = None
    input_grad: Fraction | None = None
    weight_grad: Fraction | None = None
    unit: str = "1"
    comm_time: Fraction = Fraction(0)
    sync_time: Fraction = Fraction(0)
    optimizer_step: Fraction = Fraction(0)
    communication: Communication | None = None
    per_stage: bool = False
    stage_factors: tuple[Fraction, ...] = ()
    memory_factors: tuple[Fraction, ...] = ()
    microbatch_factors: tuple[Fraction, ...] = ()
    freed_at_input: Fraction = Fraction(0)
    overlap: Fraction = Fraction(1)
    gradient_sync: bool = True
    memory_limit: str | None = None
    launch: Fraction = Fraction(0)
    posting: Fraction = Fraction(0)
    copies: int = 1

    def __post_init__(self) -> None:
        for name in (
            "forward", "backward", "input_grad", "weight_grad", "comm_time", "sync_time", "optimizer_step", "launch",
            "posting",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"{name.replace('_', ' ')} cannot be negative, got {as_number(value)}")
        for name in ("stage_factors", "memory_factors", "microbatch_factors"):
            if any(factor <= 0 for factor in getattr(self, name)):
                raise UsageError(f"{name.replace('_', ' ')} must be positive")
        check_shares(self.freed_at_input, self.overlap)
        if self.copies < 1:
            raise UsageError(f"data-parallel copies must be at least 1, got {self.copies}")
        self.kinds()

    def kinds(self) -> dict[Kind, Fraction]:
        """Time of each kind of op, of one device's share.

        Raises
        ------
        UsageError
            If what is given contradicts itself.
        """
        whole, first, second = self.backward, self.input_grad, self.weight_grad
        if first is not None and second is not None:
            if whole is not None and whole != first + second:
                raise UsageError(
                    f"a backward of {as_number(whole)} is not the sum of an input gradient of {as_number(first)} and a "
                    f"weight gradient of {as_number(second)}; leave one of them out"
                )
            whole = first + second
        if whole is None:
            whole = 2 * self.forward
        if first is None:
            first = whole / 2 if second is None else whole - second
        second = whole - first if second is None else second
        if first < 0 or second < 0:
            raise UsageError(
                f"one half of the backward takes longer than the whole backward of {as_number(whole)}; give both halves"
            )
        return {Kind.F: self.forward, Kind.I: first, Kind.W: second, Kind.B: whole}

    def problem(self, placement: Placement) -> Problem:
        """The costs on a placement's chunks and devices.

        Raises
        ------
        UsageError
            If there are not as many factors as microbatches, or the memory limit is none.
        Inexact
            If the costs have no common tick within the horizon.
        """
        lengths, profile_of = _distinct(self._lengths(placement))
        shares = self._shares(placement)
        speed, size = along_model(self.stage_factors, placement), along_model(self.memory_factors, placement)
        kinds = self.kinds()
        works, work_of = _distinct(x * f for x, f in zip(shares, speed, strict=True))
        durations = [[[n * w * kinds[k] for k in Kind] for w in works] for n in lengths]
        transfers = [n * self.comm_time for n in lengths]
        syncs = [x * self.sync_time if self.gradient_sync else Fraction(0) for x in shares]
        parts = [value for profile in durations for chunk in profile for value in chunk]
        parts += [value * self.overlap for value in parts] if self.overlap != 1 else []
        steps = [self.optimizer_step * sum(shares[chunk] for chunk in chunks) for chunks in placement.resident]
        time = TimeBase.exact([*parts, *transfers, *syncs, *steps, self.launch, self.posting], self.unit)
        stash = _stash(lengths, [x * f for x, f in zip(shares, size, strict=True)], self.freed_at_input)
        communication = self.communication or (Communication.LATENCY if self.comm_time else Communication.NONE)
        return Problem(
            time=time,
            durations=np.array(
                [[[time.ticks(v) for v in chunk] for chunk in profile] for profile in durations], np.int64
            )[:, work_of],
            profile_of=profile_of,
            network=_network(placement, communication, [time.ticks(value) for value in transfers]),
            communication=communication,
            stash=stash,
            sync=np.array([time.ticks(value) for value in syncs], np.int64),
            memory_limit=memory_limit(self.memory_limit, placement.devices, stash, None),
            launch=time.ticks(self.launch),
            posting=time.ticks(self.posting),
            overlap=self.overlap,
            copies=self.copies,
            optimizer=tuple(map(time.ticks, steps)),
            title="abstract costs",
            notes=self._notes(placement),
        )

    def _shares(self, placement: Placement) -> list[Fraction]:
        """How many devices' shares of the model each chunk is."""
        return [Fraction(1) if self.per_stage else placement.devices * share for share in placement.shares]

    def _lengths(self, placement: Placement) -> tuple[Fraction, ...]:
        given, count = self.microbatch_factors, placement.microbatches
        if given and len(given) != count:
            raise UsageError(f"{len(given)} microbatch factors for {count} microbatches; give one for each")
        return given or (Fraction(1),) * count

    def _notes(self, placement: Placement) -> tuple[str, ...]:
        replicas = self.copies > 1 or any(len(hosts) > 1 for hosts in placement.hosts)
        if replicas and self.gradient_sync and not self.sync_time:
            return ("the replicas' gradient synchronisation takes no time here; --sync-time gives it one",)
        return ()


def along_model(factors: Sequence[Fraction], placement: Placement) -> list[Fraction]:
    """For each chunk, the mean of the factors of the pieces of the model that it covers; 1 without factors.

    Parameters
    ----------
    factors
        One for each of as many equal pieces of the model, from the first layer to the last.
    """
    means = [Fraction(1)] * placement.chunks
    for route in placement.routes if factors else ():
        end = Fraction(0)
        for hop in route:
            start, end = end, end + placement.shares[hop.chunk] * len(factors)
            pieces = range(int(start), ceil(end))
            parts = [min(end, Fraction(piece + 1)) - max(start, Fraction(piece)) for piece in pieces]
            covered = sum((factors[p] * part for p, part in zip(pieces, parts, strict=True)), Fraction(0))
            means[hop.chunk] = covered / (end - start)
    return means


def _distinct(values: Iterable[Fraction]) -> tuple[list[Fraction], IntArray]:
    """The distinct values, ascending, and the index among them of each value."""
    values = tuple(values)
    known = sorted(set(values))
    place = {value: index for index, value in enumerate(known)}
    return known, np.array([place[value] for value in values], np.int64)


def _stash(lengths: list[Fraction], sizes: list[Fraction], freed_at_input: Fraction) -> Stash:
    """Activations of every length of microbatch and size of chunk, in the largest unit in which all are whole."""
    known, size_of = _distinct(sizes)
    held = [[length * size for size in known] for length in lengths]
    freed = [[value * freed_at_input for value in profile] for profile in held]
    whole = TimeBase.exact(value for table in (held, freed) for profile in table for value in profile)

    def counts(table: list[list[Fraction]]) -> IntArray:
        return np.array([[whole.ticks(value) for value in profile] for profile in table], np.int64)[:, size_of]

    return Stash(whole.tick, counts(held), counts(freed), np.zeros(len(sizes), np.int64))


def _network(placement: Placement, communication: Communication, transfers: list[int]) -> Network:
    """One kind of link between all devices; see `AbstractCosts` for what a transfer time stands for."""
    occupies = communication in (Communication.LINK, Communication.BLOCKING)
    profiles, chunks = len(transfers), placement.chunks
    if not occupies and len(set(transfers)) == 1:
        return _uniform(placement, transfers[0], np.zeros((profiles, chunks, 1), np.int64))
    occupancy = np.repeat(np.array(transfers, np.int64), chunks).reshape(profiles, chunks, 1)
    return _uniform(placement, 0, occupancy)


def _uniform(placement: Placement, latency: int, occupancy: IntArray) -> Network:
    link = np.zeros((placement.devices, placement.devices), np.int64)
    return Network(("link",), link, np.array([latency], np.int64), occupancy)
