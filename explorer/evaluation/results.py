"""What an evaluation and a comparison amount to: values that reports and files are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from explorer.core.placement import Placement
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import fits, peaks, static
from explorer.evaluation.metrics import (
    Part,
    Step,
    bubble_ratio,
    critical_path,
    device_figures,
    split,
)
from explorer.evaluation.steady import SteadyState
from schedules.formula import Case, Formula
from schedules.steady import Asynchrony

LEVELS = ("formula", "table", "execution")
"""The three levels of abstraction, from the coarsest."""


@dataclass(frozen=True)
class Level:
    """What one level of abstraction says; None where it says nothing.

    Parameters
    ----------
    makespan
        In the problem's unit of time.
    bubble_ratio
        1 - work / (devices x makespan).
    peak_activations
        One a device, in device units.
    remark
        The formula's assumptions, or what the level leaves out.
    """

    makespan: Fraction | None
    bubble_ratio: Fraction | None
    peak_activations: tuple[Fraction, ...] | None
    remark: str = ""


@dataclass(frozen=True, eq=False)
class DeviceReport:
    """One device; times in the problem's unit, memory in bytes (None where costs are abstract).

    ``resident_share`` is that of the model's weights where these are known, else of its stages.
    """

    device: int
    busy: Fraction
    idle: Fraction
    exposed_communication: Fraction
    overhead: Fraction
    peak_activations: Fraction
    resident_share: Fraction
    peak_memory: int | None
    static_memory: int | None


@dataclass(frozen=True)
class LowerBound:
    """No order of these ops on this placement is faster than this, and why."""

    ticks: int
    reason: str


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A schedule under a problem, at three levels.

    Parameters
    ----------
    name
        The schedule's name, or the file it came from.
    parameters
        Devices, microbatches and the schedule's own options.
    engine
        What computed the timeline.
    confirmed_by
        The other engine that was found to agree to the tick, if any ran.
    levels
        By name, see `LEVELS`.
    fits_memory
        Whether every device stays within the memory limit, and within its own memory where that is known; None where
        nothing limits memory.
    case
        A device's share of the work of one microbatch: what formulas depend on.
    bound
        A lower bound on the makespan over all orders of these ops on this placement.
    asynchrony, steady
        Of schedules without a flush: weight versions and staleness, and the period of their steady state.
    cautions
        What a reader should be warned of.
    """

    name: str
    parameters: Mapping[str, object]
    schedule: Schedule
    problem: Problem
    timeline: Timeline
    engine: str
    confirmed_by: str | None
    levels: Mapping[str, Level]
    devices: tuple[DeviceReport, ...]
    path: tuple[Step, ...]
    path_split: Mapping[Part, Fraction]
    fits_memory: bool | None
    case: Case
    bound: LowerBound | None = None
    asynchrony: Asynchrony | None = None
    steady: SteadyState | None = None
    cautions: tuple[str, ...] = ()

    @property
    def throughput(self) -> Fraction | None:
        """Microbatches per unit of time: in the steady state where there is no flush; None where nothing takes time."""
        if self.steady is not None:
            return 1 / self.steady.period if self.steady.period else None
        return self.schedule.microbatches / self.makespan if self.makespan else None

    @property
    def makespan(self) -> Fraction:
        """In the problem's unit of time."""
        return self.problem.time.value(self.timeline.makespan)

    @property
    def longest_device_span(self) -> Fraction:
        """The longest time between a device's first start and last end."""
        return self.problem.time.value(int(self.timeline.spans.max()))

    @property
    def gap(self) -> Fraction | None:
        """How far the makespan is over the lower bound, as a fraction of the makespan."""
        if self.bound is None or not self.timeline.makespan:
            return None
        return Fraction(self.timeline.makespan - self.bound.ticks, self.timeline.makespan)


def idealised(problem: Problem) -> Problem:
    """The same costs without transfers, synchronisation, optimiser or overheads: the second level."""
    return replace(
        problem,
        communication=Communication.NONE,
        launch=0,
        posting=0,
        sync=np.zeros_like(problem.sync),
        optimizer=(),
    )


def assess(
    name: str,
    parameters: Mapping[str, object],
    timeline: Timeline,
    problem: Problem,
    case: Case,
    formula: Formula,
    *,
    engine: str,
    confirmed_by: str | None = None,
    bound: LowerBound | None = None,
    asynchrony: Asynchrony | None = None,
    steady: SteadyState | None = None,
    cautions: Sequence[str] = (),
) -> Evaluation:
    """Draw up everything that is reported of an evaluated schedule.

    Parameters
    ----------
    timeline
        As the engine computed it under ``problem``.
    case
        What formulas depend on.
    formula
        The first level; its makespan is in the problem's unit.
    """
    schedule, time = timeline.schedule, problem.time
    units = tuple(problem.stash.unit * int(peak) for peak in peaks(schedule, problem, problem.stash))
    ideal = idealised(problem)
    table = evaluate(schedule, ideal)
    path = critical_path(timeline, problem)
    versions = asynchrony.weight_versions if asynchrony else ()
    devices = _devices(timeline, problem, units, versions)
    unlimited = problem.memory_limit is None and problem.device_memory is None
    return Evaluation(
        name=name,
        parameters=parameters,
        schedule=schedule,
        problem=problem,
        timeline=timeline,
        engine=engine,
        confirmed_by=confirmed_by,
        levels={
            "formula": Level(formula.makespan, formula.bubble_ratio, formula.peak_activations, formula.assumptions),
            "table": Level(
                time.value(table.makespan),
                bubble_ratio(table, ideal),
                units,
                "no transfers, no synchronisation",
            ),
            "execution": Level(time.value(timeline.makespan), bubble_ratio(timeline, problem), units),
        },
        devices=devices,
        path=path,
        path_split={part: time.value(ticks) for part, ticks in split(path, problem).items()},
        fits_memory=None if unlimited else not overflowing(devices, problem) and fits(schedule, problem, versions),
        case=case,
        bound=bound,
        asynchrony=asynchrony,
        steady=steady,
        cautions=tuple(cautions),
    )


def overflowing(devices: Sequence[DeviceReport], problem: Problem) -> list[DeviceReport]:
    """The devices that need more memory than they have, where both are known."""
    has = problem.device_memory
    return [d for d in devices if has is not None and d.peak_memory is not None and d.peak_memory > has]


def _devices(
    timeline: Timeline, problem: Problem, units: Sequence[Fraction], versions: Sequence[int]
) -> tuple[DeviceReport, ...]:
    schedule, value = timeline.schedule, problem.time.value
    placement, figures = schedule.placement, device_figures(timeline, problem)
    stored = static(schedule, problem.bytes, versions) if problem.bytes else None
    stashed = peaks(schedule, problem, problem.bytes) if problem.bytes else None
    shares = _shares(placement, problem)
    return tuple(
        DeviceReport(
            device=device,
            busy=value(figures.busy[device]),
            idle=value(figures.idle[device]),
            exposed_communication=value(figures.exposed_communication[device]),
            overhead=value(figures.overhead[device]),
            peak_activations=units[device],
            resident_share=sum((shares[chunk] for chunk in placement.resident[device]), Fraction(0)),
            peak_memory=None if stored is None or stashed is None else int(stored[device] + stashed[device]),
            static_memory=None if stored is None else int(stored[device]),
        )
        for device in range(schedule.devices)
    )


def _shares(placement: Placement, problem: Problem) -> tuple[Fraction, ...]:
    """Each chunk's share of the model: of its weights where these are known, else as the placement has it."""
    weights = None if problem.bytes is None else problem.bytes.weights
    if weights is None:
        return placement.shares
    whole = sum(int(weights[hop.chunk]) for hop in placement.routes[0])
    return tuple(Fraction(int(own), whole) for own in weights) if whole else placement.shares


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several schedules under the same costs.

    Parameters
    ----------
    rows
        Evaluations of schedules that flush: first those that fit the memory, then the others; the fastest execution
        first.
    asynchronous
        Evaluations of schedules that do not, highest throughput first. Their makespans are not comparable.
    inapplicable
        For each schedule that does not exist for this problem, why.
    """

    rows: tuple[Evaluation, ...]
    asynchronous: tuple[Evaluation, ...] = ()
    inapplicable: Mapping[str, str] = field(default_factory=dict)

    @property
    def fitting(self) -> tuple[Evaluation, ...]:
        """The rows that do not exceed any memory."""
        return tuple(row for row in self.rows if row.fits_memory is not False)

    def ranks(self, level: str) -> dict[str, int]:
        """Each schedule's place by makespan at a level, 1 the fastest; equal makespans share a place.

        A schedule about which the level says nothing has none.
        """
        spans = {row.name: row.levels[level].makespan for row in self.rows}
        known = {name: span for name, span in spans.items() if span is not None}
        return {name: 1 + sum(other < span for other in known.values()) for name, span in known.items()}

    def ranking(self, level: str) -> list[str]:
        """Names at a level, fastest first; equal ones in the order of the rows."""
        ranks = self.ranks(level)
        return sorted(ranks, key=lambda name: ranks[name])

    def moves(self, coarse: str, fine: str) -> dict[str, tuple[int, int]]:
        """The schedules whose place changes from one level to a finer one, among those that both levels rank.

        Returns
        -------
        dict
            From name to (place at the coarse level, place at the fine one).
        """
        shared = [n for n in self.ranks(coarse) if n in self.ranks(fine)]
        places = {}
        for level in (coarse, fine):
            spans = {row.name: row.levels[level].makespan for row in self.rows if row.name in shared}
            places[level] = {n: 1 + sum(o < s for o in spans.values()) for n, s in spans.items()}  # type: ignore[operator]
        return {
            name: (places[coarse][name], places[fine][name])
            for name in shared
            if places[coarse][name] != places[fine][name]
        }
