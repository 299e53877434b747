"""Makespan against memory: the frontier of a placement, every point proved or bounded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain

from explorer.config.limits import memory_limit
from explorer.core.errors import UsageError
from explorer.core.placement import Placement
from explorer.core.problem import MemoryLimit, Problem
from explorer.core.schedule import Schedule
from explorer.core.units import as_number
from explorer.evaluation.memory import peaks
from schedules.registry import Recipe
from solvers.bounds import Bound
from solvers.incumbent import Refuted, Watch
from solvers.optimise import Compared, Remembered, Settings, comparisons, named_schedules
from solvers.optimum import one_by_one
from solvers.outcome import Found, Infeasible, Proved
from solvers.search import Answer, Named, search


@dataclass(frozen=True, eq=False)
class Point:
    """The best under one limit.

    Parameters
    ----------
    limit
        What each device may hold.
    answer
        What the search found, and the greatest bound that it or a looser limit gives.
    """

    limit: MemoryLimit
    answer: Answer


@dataclass(frozen=True, eq=False)
class Frontier:
    """Makespan against memory.

    Parameters
    ----------
    problem, placement, settings
        Without a limit.
    points
        From the tightest limit to the loosest.
    least
        The smallest feasible limit, in device units of activation.
    infeasible
        Why less is not.
    compared
        The named schedules.
    """

    problem: Problem
    placement: Placement
    settings: Settings
    points: tuple[Point, ...]
    least: Fraction
    infeasible: str
    compared: tuple[Compared, ...]


def frontier(
    recipe: Recipe,
    placement: Placement,
    settings: Settings,
    *,
    limits: Sequence[str] = (),
    most: int = 12,
    options: Mapping[str, object] | None = None,
    watch: Callable[[str], Watch] = lambda text: lambda progress: None,
) -> Frontier:
    """Search under one limit after the other, from the tightest; each starts from the best of the one before.

    Parameters
    ----------
    recipe
        What things cost, without a memory limit.
    settings
        The time limit is that of all points together.
    limits
        Such as ``4`` or ``40GiB``; whole activations from the smallest feasible limit on by default.
    most
        How many points at most, where no limits are given.
    watch
        Makes what is told of the progress under a limit.

    Raises
    ------
    UsageError
        If a limit is none, or the recipe has one of its own.
    """
    problem = recipe(placement)
    if problem.memory_limit is not None:
        raise UsageError("a frontier goes through memory limits itself; give --limits instead of --mem-limit")
    first = one_by_one(placement, settings.split)
    least = problem.stash.unit * int(peaks(first, problem, problem.stash).max())
    steps = [_limit(text, problem) for text in limits] or _whole(problem, placement, least, most)
    steps.sort(key=lambda limit: limit.per_device)
    known = Remembered(named_schedules(recipe, placement, options or {}, settings.objective))
    points = _search(problem, placement, settings, steps, known, watch)
    rows, stopped = comparisons(known, recipe, placement, settings.objective, None)
    if stopped:
        points[-1] = replace(points[-1], answer=replace(points[-1].answer, interrupted=True))
    return Frontier(problem, placement, settings, tuple(_bounded(points)), least, _why(first, problem), tuple(rows))


def _why(first: Schedule, problem: Problem) -> str:
    """Why less memory is too little, given the schedule `one_by_one`; see `solvers.optimum.too_little_memory`."""
    held = peaks(first, problem, problem.stash)
    least = as_number(problem.stash.unit * int(held.max()))
    return (
        f"device {held.argmax()} holds all of a microbatch's activations there, {least}, before it can free any; the "
        f"smallest feasible limit is {least}"
    )


def _search(
    problem: Problem, placement: Placement, settings: Settings, steps: list[MemoryLimit], known: Iterable[Named],
    watch: Callable[[str], Watch],
) -> list[Point]:  # fmt: skip
    started = time.monotonic()
    points: list[Point] = []
    for place, limit in enumerate(steps):
        left = settings.time_limit - (time.monotonic() - started)
        seeds: list[Named] = []
        last = points[-1].answer.outcome if points else None
        if isinstance(last, Proved | Found):
            seeds.append((f"the best within {points[-1].limit.text}", last.timeline.schedule))
        answer = search(
            replace(problem, memory_limit=limit), placement, split=settings.split, known=chain(seeds, known),
            objective=settings.objective, time_limit=max(0.0, left / (len(steps) - place)), workers=settings.workers,
            seed=settings.seed, watch=watch(limit.text),
        )  # fmt: skip
        points.append(Point(limit, answer))
        if answer.interrupted:
            break
    return points


def _bounded(points: list[Point]) -> list[Point]:
    """Every bound holds under tighter limits too."""
    result: list[Point] = []
    loosest: Bound | None = None
    text = ""
    for point in reversed(points):
        answer, outcome = point.answer, point.answer.outcome
        if isinstance(outcome, Infeasible) or answer.bound is None:
            result.append(point)
            continue
        if loosest is not None and loosest.ticks > answer.bound.ticks:
            bound = Bound(loosest.ticks, f"bound within {text}: {loosest.reason}")
            if outcome.ticks < bound.ticks:
                raise Refuted(f"a schedule of {outcome.ticks} ticks refutes the {bound.reason}", outcome.timeline)
            final: Proved | Found = Found(outcome.ticks, bound.ticks, outcome.timeline)
            if bound.ticks == outcome.ticks:
                final = Proved(outcome.ticks, outcome.timeline)
            answer = replace(answer, bound=bound, outcome=final)
        else:
            loosest, text = answer.bound, point.limit.text
        result.append(Point(point.limit, answer))
    return result[::-1]


def _limit(text: str, problem: Problem) -> MemoryLimit:
    if "," in text:
        raise UsageError(f"a limit of a frontier is one for all devices, got {text!r}")
    limit = memory_limit(text, problem.devices, problem.stash, problem.bytes)
    assert limit is not None, "a text gives a limit"
    return limit


def _units(problem: Problem, activations: Fraction) -> MemoryLimit:
    """A limit in device units."""
    whole = math.floor(activations / problem.stash.unit)
    return MemoryLimit((whole,) * problem.devices, False, str(as_number(activations)))


def _whole(problem: Problem, placement: Placement, least: Fraction, most: int) -> list[MemoryLimit]:
    """Limits from the least on: whole activations up to all microbatches; fewer, further apart, if there are many."""
    longest = int(problem.stash.held.max()) * problem.stash.unit * placement.stages / placement.devices
    last = max(least, min(placement.microbatches, 2 * placement.devices) * longest)
    values = [least, *(Fraction(n) for n in range(math.floor(least) + 1, math.ceil(last) + 1))]
    if len(values) > most:
        ratio = (len(values) - 1) / max(1, most - 1)
        values = [values[round(place * ratio)] for place in range(most)]
    return [_units(problem, value) for value in values]
