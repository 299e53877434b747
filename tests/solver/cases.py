"""Problems for the solver's tests: uniform ones, and random ones small enough to try all orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np

from explorer.core.placement import Hop, Placement, along, linear, loop, mirrored, vee, wave
from explorer.core.problem import Communication, MemoryLimit, Network, Problem, Stash
from explorer.core.units import TimeBase
from explorer.evaluation.memory import peaks
from solvers.optimum import one_by_one


def uniform(
    placement: Placement,
    costs: Sequence[int] = (1, 1, 1, 2),
    mode: Communication = Communication.NONE,
    *,
    latency: int = 0,
    occupancy: int = 0,
    sync: int = 0,
    launch: int = 0,
    posting: int = 0,
    limit: int | None = None,
    held: int = 1,
    freed_at_input: int = 0,
    shared: tuple[tuple[str, frozenset[tuple[int, int]]], ...] = (),
    optimizer: tuple[int, ...] = (),
) -> Problem:
    """Every op of a kind, every activation and every transfer alike."""
    chunks, devices = placement.chunks, placement.devices
    return Problem(
        time=TimeBase(Fraction(1)),
        durations=np.tile(np.array(costs, np.int64), (1, chunks, 1)),
        profile_of=np.zeros(placement.microbatches, np.int64),
        network=Network(
            ("wire",),
            np.zeros((devices, devices), np.int64),
            np.array([latency]),
            np.full((1, chunks, 1), occupancy, np.int64),
            shared,
        ),
        communication=mode,
        stash=Stash(
            Fraction(1),
            np.full((1, chunks), held, np.int64),
            np.full((1, chunks), freed_at_input, np.int64),
            np.zeros(chunks, np.int64),
        ),
        sync=np.full(chunks, sync, np.int64),
        memory_limit=None if limit is None else MemoryLimit((limit,) * devices, False, str(limit)),
        launch=launch,
        posting=posting,
        optimizer=optimizer,
    )


def rotated(devices: int) -> Placement:
    """Two replicas, the second one's stage s on device s + D/2, one microbatch a device, in turn down each."""
    routes = [tuple(Hop(s, (s + shift) % devices) for s in range(devices)) for shift in (0, devices // 2)]
    return Placement(tuple(routes), tuple(m % 2 for m in range(devices)))


SHAPES: dict[str, tuple[tuple[Placement, bool], ...]] = {
    "linear": ((linear(2, 2), True), (linear(3, 2), False), (linear(2, 3), False), (linear(1, 2), True)),
    "loop": ((loop(2, 1, 2), True), (loop(2, 2, 2), False), (loop(1, 2, 2), False)),
    "v": ((vee(2, 1), True), (vee(2, 2), False), (vee(3, 1), True)),
    "wave": ((wave(1, 1, 2), True), (wave(2, 1, 2), False), (wave(1, 2, 2), False)),
    "mirrored": (
        (mirrored(2, 2), True),
        (mirrored(4, 2), False),
        (mirrored(2, 3, route_of=(0, 1, 1)), False),
    ),
    "irregular": ((along([0, 1, 0, 1], 1), True), (along([0, 1, 1, 0, 1], 1), False), (along([0, 1, 1], 2), False)),
}
"""By kind of placement, sizes of which all orders can be tried, and whether the backward is split there."""


def random_case(
    seed: int, shapes: Sequence[tuple[Placement, bool]] = (), mode: Communication | None = None
) -> tuple[Placement, Problem, bool]:
    """A tiny placement, a random problem on it, and whether the backward is split.

    Parameters
    ----------
    shapes
        Placements to choose from; some of each kind by default.
    mode
        What transfers do; any by default.
    """
    random = Random(seed)
    placement, split = random.choice(
        shapes
        or [
            (linear(2, 2), True),
            (linear(3, 2), False),
            (linear(2, 3), False),
            (mirrored(2, 2), True),
            (vee(2, 1), True),
            (vee(2, 2), False),
            (along([0, 1, 0, 1], 1), True),
            (along([0, 1, 1, 0, 1], 1), False),
        ]
    )
    chunks, devices, profiles = placement.chunks, placement.devices, random.randint(1, 2)

    def table(low: int, high: int, *shape: int) -> np.ndarray:
        return np.array([random.randint(low, high) for _ in range(int(np.prod(shape)))], np.int64).reshape(shape)

    held = table(1, 3, profiles, chunks)
    limit = MemoryLimit(tuple(random.randint(2, 7) for _ in range(devices)), False, "some")
    problem = Problem(
        time=TimeBase(Fraction(1)),
        durations=table(1, 5, profiles, chunks, 4),
        profile_of=table(0, profiles - 1, placement.microbatches),
        network=Network(
            ("wire",), np.zeros((devices, devices), np.int64), table(0, 2, 1), table(0, 4, profiles, chunks, 1)
        ),
        communication=random.choice(list(Communication)) if mode is None else mode,
        stash=Stash(Fraction(1), held, np.minimum(held, table(0, 2, profiles, chunks)), np.zeros(chunks, np.int64)),
        sync=table(0, 4, chunks),
        memory_limit=random.choice([None, limit]),
        launch=random.choice([0, 0, 1]),
        posting=random.choice([0, 0, 1]),
        optimizer=random.choice([(), tuple(table(0, 9, devices).tolist())]),
    )
    return placement, problem, split


def comparable_case(seed: int, kind: str, mode: Communication) -> tuple[Placement, Problem, bool]:
    """A random case of a kind of placement and a mode; its limit, if any, is near what one microbatch needs there."""
    placement, problem, split = random_case(seed, SHAPES[kind], mode)
    if problem.memory_limit is None:
        return placement, problem, split
    random = Random(-seed - 1)
    needed = peaks(one_by_one(placement, split), problem, problem.stash).tolist()
    caps = tuple(max(1, need + random.choice((-1, 0, 0, 1, 1, 2, 3))) for need in needed)
    return placement, replace(problem, memory_limit=MemoryLimit(caps, False, "some")), split
