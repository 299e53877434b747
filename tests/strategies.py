"""Random small placements, deadlock-free schedules and problems for them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
from hypothesis import strategies as st

from explorer.core.op import Entry, Kind, Op, Overlapped
from explorer.core.placement import Hop, Placement, linear, loop, vee, wave
from explorer.core.problem import Communication, MemoryLimit, Network, Problem, Stash
from explorer.core.schedule import Schedule
from explorer.core.units import TimeBase

Draw = Any


def mirrored(devices: int, microbatches: int) -> Placement:
    """Half of the microbatches go down, half up through the same chunks, which so have replicas."""
    routes = [[Hop(s, d) for s, d in enumerate(line)] for line in (range(devices), reversed(range(devices)))]
    return Placement(tuple(map(tuple, routes)), tuple(m % 2 for m in range(microbatches)))


@st.composite
def uneven(draw: Draw, max_devices: int = 4, max_microbatches: int = 4, max_atoms: int = 4) -> Placement:
    """Routes of different length over random devices: each cuts the same model into pieces of its own."""
    atoms = draw(st.integers(1, max_atoms))
    devices = draw(st.integers(1, max_devices))
    chunks: dict[tuple[int, int], int] = {}
    routes = []
    for _ in range(draw(st.integers(1, 3))):
        cuts = [0, *sorted(draw(st.sets(st.integers(1, atoms)))), atoms]
        pieces = [piece for piece in pairwise(cuts) if piece[0] < piece[1]]
        hops = [Hop(chunks.setdefault(piece, len(chunks)), draw(st.integers(0, devices - 1))) for piece in pieces]
        routes.append(tuple(hops))
    route_of = draw(st.lists(st.integers(0, len(routes) - 1), min_size=1, max_size=max_microbatches))
    shares = tuple(Fraction(last - first, atoms) for first, last in chunks)
    return Placement(tuple(routes), tuple(route_of), shares)


@st.composite
def placements(draw: Draw, max_devices: int = 4, max_microbatches: int = 4) -> Placement:
    """Linear, looped, V-shaped, wave, mirrored and uneven placements; at most 8 stages."""
    microbatches = draw(st.integers(1, max_microbatches))
    devices = draw(st.integers(1, max_devices))
    match draw(st.sampled_from(["linear", "loop", "vee", "wave", "mirrored", "uneven"])):
        case "linear":
            return linear(devices, microbatches)
        case "loop":
            return loop(devices, microbatches, draw(st.integers(1, 2)))
        case "vee":
            return vee(devices, microbatches)
        case "wave":
            return wave(min(devices, 2), microbatches, 2)
        case "mirrored":
            return mirrored(devices, microbatches)
    return draw(uneven(max_devices, max_microbatches))


@st.composite
def schedules(
    draw: Draw, placement: Placement, backward: Sequence[str] = ("fused", "split", "mixed"), pairs: bool = True
) -> Schedule:
    """A complete, deadlock-free schedule: a random list scheduling, so every such order can come up.

    Parameters
    ----------
    backward
        Which forms of backward may come up.
    pairs
        Whether two ops may run as one occupancy.
    """
    form = draw(st.sampled_from(list(backward)))
    odds = draw(st.sampled_from([0, 0, 0.3, 0.9])) if pairs else 0
    return list_schedule(placement, form, odds, draw(st.randoms(use_true_random=False)))


def list_schedule(placement: Placement, form: str, odds: float, random: Random) -> Schedule:
    """Take one of the ops whose inputs are there, or two of one device, until none is left."""
    routes = [placement.route(m) for m in range(placement.microbatches)]
    backward: dict[tuple[int, int], Kind] = {}
    for m, route in enumerate(routes):
        for stage in range(len(route)):
            split = form == "split" or (form == "mixed" and random.random() < 0.5)
            backward[m, stage] = Kind.I if split else Kind.B
    orders: list[list[Entry]] = [[] for _ in range(placement.devices)]
    ready = [Op(0, Kind.F, m) for m in range(len(routes))]
    while ready:
        op = ready.pop(random.randrange(len(ready)))
        device = routes[op.microbatch][op.stage].device
        partners = [other for other in ready if routes[other.microbatch][other.stage].device == device]
        taken = [op]
        if odds and partners and random.random() < odds:
            taken.append(random.choice(partners))
            ready.remove(taken[1])
            orders[device].append(Overlapped(*taken))
        else:
            orders[device].append(op)
        for stage, kind, m in taken:
            last = len(routes[m]) - 1
            if kind is Kind.F:
                ready.append(Op(stage + 1, Kind.F, m) if stage < last else Op(stage, backward[m, stage], m))
            elif kind is not Kind.W and stage:
                ready.append(Op(stage - 1, backward[m, stage - 1], m))
            if kind is Kind.I:
                ready.append(Op(stage, Kind.W, m))
    return Schedule.from_orders(placement, orders)


def _table(draw: Draw, shape: tuple[int, ...], most: int) -> np.ndarray:
    size = int(np.prod(shape))
    return np.array(draw(st.lists(st.integers(0, most), min_size=size, max_size=size)), np.int64).reshape(shape)


@st.composite
def stashes(draw: Draw, profiles: int, chunks: int) -> Stash:
    """Activations, the part that I frees, and static memory."""
    held = _table(draw, (profiles, chunks), 6)
    at_input = np.minimum(held, _table(draw, (profiles, chunks), 6))
    return Stash(Fraction(1), held, at_input, _table(draw, (chunks,), 9))


@st.composite
def networks(draw: Draw, placement: Placement, profiles: int, shared: bool = False) -> Network:
    """One or two kinds of link; with ``shared``, some that several directed pairs share."""
    devices, kinds = placement.devices, draw(st.integers(1, 2))
    groups = []
    if shared:
        pairs = st.frozensets(st.tuples(*[st.integers(0, devices - 1)] * 2), min_size=1, max_size=devices * devices)
        groups = [(f"shared {n}", group) for n, group in enumerate(draw(st.lists(pairs, min_size=1, max_size=3)))]
    servers = tuple(draw(st.lists(st.integers(1, 3), min_size=len(groups), max_size=len(groups))))
    servers = servers if draw(st.booleans()) else ()
    return Network(
        tuple(f"kind {n}" for n in range(kinds)),
        _table(draw, (devices, devices), kinds - 1),
        _table(draw, (kinds,), 4) + (max(servers, default=1) > 1),
        _table(draw, (profiles, placement.chunks, kinds), 5),
        tuple(groups),
        servers,
    )


@st.composite
def problems(
    draw: Draw,
    placement: Placement,
    modes: Sequence[Communication] = tuple(Communication),
    shared: bool = False,
    sync: bool = True,
    overheads: bool = True,
    profiles: int = 2,
    limited: bool = False,
    competing: bool = False,
) -> Problem:
    """Small whole costs, zeros among them, so that ties are common.

    Parameters
    ----------
    modes
        Which modes may come up.
    shared
        Whether several directed pairs share resources.
    sync, overheads, limited
        Whether there are costs of gradient synchronisation, of launch and posting, and a random limit on memory.
    profiles
        How many classes of microbatches there may be.
    competing
        Whether gradient all-reduces hold some of what is shared.
    """
    classes = draw(st.integers(1, profiles))
    microbatches = placement.microbatches
    overlap = draw(st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(3, 4)]))
    limit = None
    if limited:
        caps = tuple(draw(st.lists(st.integers(0, 60), min_size=placement.devices, max_size=placement.devices)))
        limit = MemoryLimit(caps, draw(st.booleans()))
    network = draw(networks(placement, classes, shared))
    passed = st.frozensets(st.integers(0, max(0, len(network.shared) - 1)), max_size=len(network.shared)).map(
        lambda some: tuple(sorted(some))
    )
    holds = st.lists(passed, min_size=placement.chunks, max_size=placement.chunks).map(tuple)
    return Problem(
        time=TimeBase(Fraction(1)),
        durations=_table(draw, (classes, placement.chunks, 4), 6) * overlap.denominator,
        profile_of=_table(draw, (microbatches,), classes - 1),
        network=network,
        communication=draw(st.sampled_from(list(modes))),
        stash=draw(stashes(classes, placement.chunks)),
        sync=_table(draw, (placement.chunks,), 7 if sync else 0),
        bytes=draw(stashes(classes, placement.chunks)),
        memory_limit=limit,
        launch=draw(st.integers(0, 2)) if overheads else 0,
        posting=draw(st.integers(0, 2)) if overheads else 0,
        overlap=overlap,
        copies=draw(st.sampled_from([1, 1, 1, 3])) if sync else 1,
        optimizer=tuple(_table(draw, (placement.devices,), 9).tolist()) if draw(st.booleans()) else (),
        sync_path=draw(holds) if competing else (),
    )


@st.composite
def instances(draw: Draw, **options: Any) -> tuple[Schedule, Problem]:
    """A schedule and a problem for it; ``options`` as for `problems`, and ``pairs`` as for `schedules`."""
    pairs = options.pop("pairs", True)
    placement = draw(placements())
    return draw(schedules(placement, pairs=pairs)), draw(problems(placement, **options))


def small_problem(placement: Placement, communication: Communication = Communication.LINK) -> Problem:
    """One fixed problem: F = 2, I = 3, W = 1, B = 4, one kind of link of latency 1 and occupancy 2, no overheads."""
    chunks, devices = placement.chunks, placement.devices
    stash = Stash(
        Fraction(1), np.full((1, chunks), 3, np.int64), np.ones((1, chunks), np.int64), np.full(chunks, 10, np.int64)
    )
    return Problem(
        time=TimeBase(Fraction(1)),
        durations=np.tile(np.array([2, 3, 1, 4], np.int64), (1, chunks, 1)),
        profile_of=np.zeros(placement.microbatches, np.int64),
        network=Network(
            ("wire",), np.zeros((devices, devices), np.int64), np.array([1]), np.full((1, chunks, 1), 2, np.int64)
        ),
        communication=communication,
        stash=stash,
        sync=np.full(chunks, 5, np.int64),
        bytes=stash,
    )
