"""The question as a person asks it: the best schedule on a kind of placement, held against the named ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain

import schedules
from explorer.core.errors import Inapplicable, UsageError, nearest
from explorer.core.placement import Placement, along, linear, loop, mirrored, vee, wave
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.case import case_of
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import fits, peaks, static
from schedules.registry import Recipe
from solvers.bounds import Bound
from solvers.incumbent import Watch, measured
from solvers.losses import Loss, losses
from solvers.outcome import Found, Infeasible, Proved
from solvers.scope import Objective
from solvers.search import Answer, Named, search

PLACEMENTS: dict[str, Callable[[int, int, int], Placement]] = {
    "linear": lambda devices, microbatches, size: linear(devices, microbatches),
    "loop": lambda devices, microbatches, size: loop(devices, microbatches, size or 2),
    "v": lambda devices, microbatches, size: vee(devices, microbatches),
    "wave": lambda devices, microbatches, size: wave(devices, microbatches, size or 1),
    "mirrored": lambda devices, microbatches, size: mirrored(devices, microbatches, size or 1),
}
"""By name, from devices, microbatches and how many chunks a device, waves or pairs (0 for the default)."""

FREE = "free"
FREE_AT_MOST = 120
"""Placements that are tried at most."""

OPS_AT_MOST = 2_000_000
"""Ops that a search accepts."""

BYTES_AN_OP = 700
"""What a search holds for an op, roughly."""


@dataclass(frozen=True)
class Settings:
    """How to search.

    Parameters
    ----------
    split
        Whether the backward is split into I and W; it then is never slower, unless launching ops takes time.
    objective
        What is made as small as possible.
    time_limit, workers, seed
        See `solvers.search.search`.
    """

    split: bool = True
    objective: Objective = Objective.MAKESPAN
    time_limit: float = math.inf
    workers: int = 1
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Compared:
    """A named schedule beside the best one.

    Parameters
    ----------
    name
        The schedule, with its options where they are not the defaults.
    makespan, longest_device_span
        In the unit of time.
    ratio
        Its objective over that of the best one; None if there is none.
    fits_memory
        Whether it keeps the limit.
    same_placement
        Whether it runs on the placement that was searched.
    losses
        By `Loss`, in the unit of time.
    peak_activations
        The greatest of a device, in device units.
    peak_memory
        The greatest of a device with its static memory, in bytes; None if costs are abstract.
    """

    name: str
    makespan: Fraction
    longest_device_span: Fraction
    ratio: Fraction | None
    fits_memory: bool
    same_placement: bool
    losses: Mapping[Loss, Fraction]
    peak_activations: Fraction
    peak_memory: int | None = None


@dataclass(frozen=True, eq=False)
class Optimum:
    """What was asked, and what was found.

    Parameters
    ----------
    problem, placement
        Of the search.
    settings
        How it was made.
    answer
        What it found.
    compared
        The named schedules, the fastest first.
    """

    problem: Problem
    placement: Placement
    settings: Settings
    answer: Answer
    compared: tuple[Compared, ...] = field(default=())

    @property
    def timeline(self) -> Timeline | None:
        """Of the best schedule."""
        outcome = self.answer.outcome
        return None if isinstance(outcome, Infeasible) else outcome.timeline

    @property
    def ticks(self) -> int | None:
        """The best objective."""
        return None if self.timeline is None else measured(self.timeline, self.settings.objective)

    @property
    def gap(self) -> Fraction:
        """How far the bound is below the best objective, as a fraction of the latter."""
        bound, ticks = self.answer.bound, self.ticks
        return Fraction(ticks - bound.ticks, ticks) if bound and ticks else Fraction(0)


def placements(name: str, devices: int, microbatches: int, size: int = 0) -> tuple[Placement, ...]:
    """The placements of a kind: one, or for ``free`` all that give every device as many chunks.

    Parameters
    ----------
    size
        Chunks a device, waves or pairs; 0 for the default.

    Raises
    ------
    UsageError
        If there is no such kind, or sizes are not positive.
    Inapplicable
        If it does not exist for these sizes, or has more ops than a search accepts.
    """
    if name not in (*PLACEMENTS, FREE):
        raise UsageError(f"no placement is called {name!r}; {nearest(name, (*PLACEMENTS, FREE))}")
    if devices < 1 or microbatches < 1:
        raise UsageError(f"a search needs at least 1 device and 1 microbatch, got {devices} and {microbatches}")
    ops = 3 * devices * microbatches * max(1, size)
    if ops > OPS_AT_MOST:
        raise Inapplicable(
            f"{ops} ops or more would take about {ops * BYTES_AN_OP / 1e9:.1f} GB to search, which goes up to "
            f"{OPS_AT_MOST} ops; choose fewer devices or microbatches"
        )
    if name == FREE:
        return _free(devices, microbatches, size or 2)
    return (PLACEMENTS[name](devices, microbatches, size),)


def _free(devices: int, microbatches: int, chunks: int) -> tuple[Placement, ...]:
    """Every way to give stages to devices, but for the devices' names: they come in the order of their first stage."""
    count = math.factorial(devices * chunks) // math.factorial(chunks) ** devices // math.factorial(devices)
    if count > FREE_AT_MOST:
        raise Inapplicable(
            f"{devices} devices with {chunks} chunks each can be placed in {count} ways; up to {FREE_AT_MOST} are tried"
        )

    def grown(line: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(line) == devices * chunks:
            yield line
            return
        for device in range(min(devices, max(line, default=-1) + 2)):
            if line.count(device) < chunks:
                yield from grown((*line, device))

    return tuple(along(line, microbatches) for line in grown(()))


def optimise(
    recipe: Recipe,
    candidates: Sequence[Placement],
    settings: Settings,
    *,
    options: Mapping[str, object] | None = None,
    hint: Schedule | None = None,
    watch: Watch = lambda progress: None,
) -> Optimum:
    """Search placements, and compare the named schedules.

    Parameters
    ----------
    recipe
        What things cost on any placement.
    candidates
        Placements of the same sizes; with several, each gets its part of the time, and the bound is that of all.
    options
        For the named schedules that have them.
    hint
        A known schedule of the placement to start from.
    watch
        Is told of progress.

    Raises
    ------
    UsageError
        If the hint is of another placement, or does not fit the memory limit.
    Inapplicable
        If there are several placements whose devices differ.
    """
    known = Remembered(named_schedules(recipe, candidates[0], options or {}, settings.objective))
    hints: list[Named] = []
    if hint is not None:
        _require_hint(hint, candidates[0], recipe(candidates[0]))
        hints.append(("the hint", hint))
    placement, answer = _best(recipe, candidates, settings, lambda: chain(hints, known), watch)
    problem = recipe(placement)
    best = None
    if not isinstance(answer.outcome, Infeasible):
        best = problem.time.value(answer.outcome.ticks)
    rows, stopped = comparisons(known, recipe, placement, settings.objective, best)
    by_span = settings.objective is Objective.SPAN
    rows.sort(key=lambda row: row.longest_device_span if by_span else row.makespan)
    answer = replace(answer, interrupted=answer.interrupted or stopped)
    return Optimum(problem, placement, settings, answer, tuple(rows))


class Remembered:
    """Schedules that are made when they are first asked for, and kept.

    So they are made within the search, which Ctrl-C may end while they are: nothing that has been found is lost.

    Parameters
    ----------
    source
        Makes them.
    """

    def __init__(self, source: Iterator[Named]) -> None:
        self._source = source
        self._made: list[Named] = []

    def __iter__(self) -> Iterator[Named]:
        """Those that are there, then the others; an interruption ends them for good."""
        yield from self._made
        for one in self._source:
            self._made.append(one)
            yield one


def comparisons(
    known: Iterable[Named], recipe: Recipe, placement: Placement, objective: Objective, best: Fraction | None
) -> tuple[list[Compared], bool]:
    """Named schedules beside a best objective, see `compared`; and whether Ctrl-C has left some out."""
    rows: list[Compared] = []
    try:
        for name, schedule in known:
            rows.append(compared(name, schedule, recipe, placement, objective, best))
    except KeyboardInterrupt:
        return rows, True
    return rows, False


def _best(
    recipe: Recipe,
    candidates: Sequence[Placement],
    settings: Settings,
    seeds: Callable[[], Iterable[Named]],
    watch: Watch,
) -> tuple[Placement, Answer]:
    """The best of the placements' answers; its bound is the least of all."""
    started = time.monotonic()
    answers: list[tuple[Placement, Answer]] = []
    interrupted = False
    try:
        for place, placement in enumerate(candidates):
            problem = recipe(placement)
            if len(candidates) > 1:
                _require_equal_devices(problem)
            left = settings.time_limit - (time.monotonic() - started)
            answer = search(
                problem, placement, split=settings.split, known=seeds(), objective=settings.objective,
                time_limit=max(0.0, left / (len(candidates) - place)), workers=settings.workers, seed=settings.seed,
                watch=watch,
            )  # fmt: skip
            answers.append((placement, answer))
            if interrupted := answer.interrupted:
                break
    except KeyboardInterrupt:  # between two searches; what one of them has found stands
        if not answers:
            raise
        interrupted = True
    feasible = [(p, a, a.outcome) for p, a in answers if not isinstance(a.outcome, Infeasible)]
    if len(candidates) == 1 or not feasible:
        placement, answer = answers[0]
        return placement, replace(answer, interrupted=interrupted)
    placement, best, outcome = min(feasible, key=lambda one: one[2].ticks)
    bounds = [a.bound for _, a, _ in feasible if a.bound is not None]
    least = min(bounds, key=lambda bound: bound.ticks)
    if len(answers) < len(candidates):
        least = Bound(0, "not all placements were searched")
    reason = f"the least of {len(candidates)} placements: {least.reason}"
    bound = Bound(min(least.ticks, outcome.ticks), reason)
    proved = bound.ticks == outcome.ticks
    final = (
        Proved(outcome.ticks, outcome.timeline) if proved else Found(outcome.ticks, bound.ticks, outcome.timeline)
    )  # fmt: skip
    seconds = time.monotonic() - started
    return placement, replace(best, outcome=final, bound=bound, seconds=seconds, interrupted=interrupted)


def _require_equal_devices(problem: Problem) -> None:
    limit, network = problem.memory_limit, problem.network
    links = {int(k) for i, row in enumerate(network.link) for j, k in enumerate(row) if i != j}
    if len(links) > 1 or network.shared or (limit is not None and len(set(limit.per_device)) > 1):
        raise Inapplicable("a free placement needs devices with equal links and equal memory limits")


def named_schedules(
    recipe: Recipe,
    placement: Placement,
    options: Mapping[str, object],
    objective: Objective = Objective.MAKESPAN,
) -> Iterator[tuple[str, Schedule]]:
    """Every named schedule that flushes and exists for these sizes, with the chunks a device of the placement too.

    One that plans for an objective is told which.
    """
    devices, microbatches = placement.devices, placement.microbatches
    chunks = placement.chunks // devices
    for named in schedules.every():
        given = {key: value for key, value in options.items() if key in named.options}
        if "objective" in named.options and objective is Objective.SPAN:
            given = {"objective": "span", **given}
        variants = [given]
        for key, value in (("chunks", chunks), ("waves", chunks // 2)):
            if key in named.options and value > (key == "chunks") and {**named.options, **given}[key] != value:
                variants.append({**given, key: value})
        for variant in variants:
            try:
                schedule = named(devices, microbatches, recipe=recipe, **variant)
                case = case_of(recipe(schedule.placement), schedule.placement, variant)
            except Inapplicable:
                continue
            if named.asynchrony(case) is None:
                yield named.name + "".join(f":{key}={value}" for key, value in variant.items()), schedule


def compared(
    name: str, schedule: Schedule, recipe: Recipe, placement: Placement, objective: Objective, best: Fraction | None
) -> Compared:
    """A named schedule under the costs of its own placement, beside a best objective in the unit of time."""
    problem = recipe(schedule.placement)
    timeline = evaluate(schedule, problem)
    value = problem.time.value
    makespan, span = value(timeline.makespan), value(int(timeline.spans.max()))
    own = makespan if objective is Objective.MAKESPAN else span
    in_bytes = problem.bytes
    return Compared(
        name=name,
        makespan=makespan,
        longest_device_span=span,
        ratio=own / best if best else None,
        fits_memory=fits(schedule, problem),
        same_placement=schedule.placement.routes == placement.routes,
        losses={loss: ticks * problem.time.tick for loss, ticks in losses(timeline, problem).items()},
        peak_activations=problem.stash.unit * int(peaks(schedule, problem, problem.stash).max()),
        peak_memory=None
        if in_bytes is None
        else int((peaks(schedule, problem, in_bytes) + static(schedule, in_bytes)).max()),
    )


def _require_hint(hint: Schedule, placement: Placement, problem: Problem) -> None:
    if hint.placement.routes != placement.routes or sorted(hint.placement.route_of) != sorted(placement.route_of):
        raise UsageError("the hint is a schedule of another placement, or of other sizes")
    if not fits(hint, problem):
        raise UsageError("the hint does not fit the memory limit")
