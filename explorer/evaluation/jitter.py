"""How a makespan spreads when nothing takes exactly the time it should: Monte Carlo over a fixed order.

Every draw is evaluated exactly, contention and synchronisation included: each microbatch becomes a profile of its own,
so that every op and every boundary's message has a time of its own. Random numbers come from one seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.core.errors import UsageError
from explorer.core.placement import Placement
from explorer.core.problem import Communication, Problem, Stash
from explorer.core.schedule import Schedule
from explorer.core.units import HORIZON, TimeBase
from explorer.evaluation.longest_path import COMPILE_FROM, evaluate

FINENESS = 10**6
"""Ticks that the longest op has at least, so that rounding its disturbed time does not show."""
MOST_DRAWS = 1_000_000

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Jitter:
    """What disturbs a run; all zero (``straggler`` one) for nothing.

    Parameters
    ----------
    ops, transfers
        Standard deviation of the logarithm of each op's, and each message's and all-reduce's, time; the mean stays. Of
        a message in mode ``link`` it is the occupancy that varies, in others all of its time.
    devices
        The same of a factor on everything that a device computes, one a device and draw.
    straggler
        By what one device, another in every draw, is slower.
    draws
        How many.
    seed
        Of the random numbers.

    Raises
    ------
    UsageError
        If a spread is negative, the straggler is faster than the others, or there is no draw.
    """

    ops: float = 0.0
    transfers: float = 0.0
    devices: float = 0.0
    straggler: float = 1.0
    draws: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("ops", "transfers", "devices"):
            if not 0 <= getattr(self, name) <= 3:
                raise UsageError(f"the spread of {name} must be between 0 and 3, got {getattr(self, name)}")
        if not 1 <= self.straggler <= 1000:
            raise UsageError(f"the straggler's factor must be between 1 and 1000, got {self.straggler}")
        if not 1 <= self.draws <= MOST_DRAWS:
            raise UsageError(f"draws must be between 1 and {MOST_DRAWS}, got {self.draws}")
        if self.seed < 0:
            raise UsageError(f"the seed cannot be negative, got {self.seed}")


@dataclass(frozen=True)
class Spread:
    """A distribution of makespans, in the problem's unit of time.

    Parameters
    ----------
    undisturbed
        Without jitter.
    mean, deviation
        Over the draws.
    median, high, highest
        The 50th and 95th percentile, and the longest draw.
    """

    undisturbed: float
    mean: float
    deviation: float
    median: float
    high: float
    highest: float


def read(text: str) -> Jitter:
    """Jitter as the command line gives it: ``ops=0.1,transfers=0.3,devices=0.05,straggler=1.5,draws=1000,seed=0``.

    Raises
    ------
    UsageError
        If a name is unknown or a value is no number.
    """
    known = {field.name: type(getattr(Jitter, field.name)) for field in fields(Jitter)}
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in known:
            raise UsageError(f"jitter has {', '.join(known)}, each as NAME=VALUE; got {part.strip()!r}")
        try:
            given[name] = known[name](value)
        except ValueError:
            raise UsageError(f"jitter's {name} must be a number, got {value!r}") from None
    return Jitter(**given)


def makespans(schedule: Schedule, problem: Problem, jitter: Jitter) -> Floats:
    """(draws,) Makespans of a schedule's order under disturbed times, in the problem's unit.

    Raises
    ------
    ExplorerError
        As `explorer.evaluation.longest_path.evaluate`.
    """
    fine = _finer(problem)
    tick = float(fine.time.tick)
    compile = len(schedule) * jitter.draws >= COMPILE_FROM
    disturbed = _disturbed(schedule.placement, fine, jitter)
    return np.array([evaluate(schedule, drawn, compile=compile).makespan * tick for drawn in disturbed])


def spread(schedule: Schedule, problem: Problem, jitter: Jitter) -> Spread:
    """How the makespan of a schedule's order spreads."""
    found = makespans(schedule, problem, jitter)
    median, high = np.percentile(found, (50, 95))
    undisturbed = float(problem.time.value(evaluate(schedule, problem).makespan))
    return Spread(undisturbed, float(found.mean()), float(found.std()), float(median), float(high), float(found.max()))


def _finer(problem: Problem) -> Problem:
    """The same costs in ticks so short that disturbed times can be rounded to them, and a profile a microbatch."""
    longest = max(int(problem.durations.max(initial=0)), int(problem.network.occupancy.max(initial=0)), 1)
    scale = max(1, min(FINENESS // longest, HORIZON // (longest * problem.durations.size)))
    of, network = problem.profile_of, problem.network
    if problem.communication is not Communication.LINK:  # only the sum counts there
        whole = network.occupancy + network.latency
        network = replace(network, latency=np.zeros_like(network.latency), occupancy=whole)
    stash = Stash(problem.stash.unit, problem.stash.held[of], problem.stash.freed_at_input[of], problem.stash.static)
    return replace(
        problem,
        time=TimeBase(problem.time.tick / scale, problem.time.unit, rounds=True),
        durations=problem.durations[of] * scale,
        profile_of=np.arange(len(of), dtype=np.int64),
        network=replace(network, latency=network.latency * scale, occupancy=network.occupancy[of] * scale),
        stash=stash,
        bytes=None,
        memory_limit=None,
        sync=problem.sync * scale,
        optimizer=tuple(ticks * scale for ticks in problem.optimizer),
        launch=problem.launch * scale,
        posting=problem.posting * scale,
    )


def _disturbed(placement: Placement, problem: Problem, jitter: Jitter) -> Iterator[Problem]:
    """A problem a draw."""
    random = np.random.default_rng(jitter.seed)
    step = problem.overlap.denominator
    host = _hosts(placement)
    for _ in range(jitter.draws):
        device = _lognormal(random, jitter.devices, (placement.devices,))
        device[random.integers(placement.devices)] *= jitter.straggler
        ops = _lognormal(random, jitter.ops, problem.durations.shape) * device[host][:, :, None]
        messages = _lognormal(random, jitter.transfers, problem.network.occupancy.shape)
        yield replace(
            problem,
            durations=np.rint(problem.durations * ops / step).astype(np.int64) * step,
            network=replace(problem.network, occupancy=np.rint(problem.network.occupancy * messages).astype(np.int64)),
            optimizer=tuple(
                round(ticks * slow) for ticks, slow in zip(problem.optimizer, device.tolist(), strict=False)
            ),
            sync=np.rint(problem.sync * _lognormal(random, jitter.transfers, problem.sync.shape)).astype(np.int64),
        )


def _lognormal(random: np.random.Generator, deviation: float, shape: tuple[int, ...]) -> Floats:
    """Factors whose logarithm has this standard deviation, and whose mean is 1."""
    return random.lognormal(-(deviation**2) / 2, deviation, shape)


def _hosts(placement: Placement) -> NDArray[np.int64]:
    """(microbatches, chunks) The device on which a microbatch visits a chunk; 0 where it does not."""
    columns = placement.columns
    hosts = np.zeros((len(columns.device), placement.chunks), np.int64)
    for route, length in enumerate(columns.length):
        hosts[route, columns.chunk[route, :length]] = columns.device[route, :length]
    return hosts[columns.route_of]
