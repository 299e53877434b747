"""A result of a search, checked again from the problem and the schedule in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import isclose, isfinite
from pathlib import Path
from typing import Any

from explorer.core.errors import ExplorerError, Inapplicable
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.core.units import as_number
from explorer.evaluation.checker import verify
from explorer.evaluation.longest_path import evaluate
from explorer.io import native
from explorer.io import problem as problems
from explorer.io.optimum import figures, read, row, said_again
from solvers.incumbent import measured
from solvers.optimise import compared, named_schedules
from solvers.relaxation import bounds
from solvers.scope import Objective


@dataclass(frozen=True)
class Finding:
    """One thing that a replay looked at.

    Parameters
    ----------
    what, said
        What was looked at, and what came out.
    holds
        Whether it is as the file says; None where that cannot be told without searching again.
    """

    what: str
    said: str
    holds: bool | None


@dataclass(frozen=True)
class Replayed:
    """All findings of a replay."""

    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        """Whether nothing contradicts the file."""
        return all(finding.holds is not False for finding in self.findings)


def replay(path: Path) -> Replayed:
    """Check a result again: all that follows from its problem and schedule, and the bound as far as it needs no search.

    Raises
    ------
    UsageError, Malformed
        If the file cannot be read, or holds no result of a search.
    """
    data = read(path)
    problem = problems.decode(data["problem"], f"{path}: problem")
    sizes = {"devices": problem.devices, "microbatches": len(problem.profile_of)}
    findings = [*_as_said(data, sizes | said_again(problem)), _version(data)]
    if data["status"] == "infeasible":
        return Replayed((Finding("status", "infeasible; search again to check it", None), *findings))
    schedule = native.decode(data["schedule"], f"{path}: schedule")
    try:
        findings[:0] = _of_schedule(data, problem, schedule)
    except (ExplorerError, ValueError) as error:
        findings.insert(0, Finding("schedule", str(error), False))
    return Replayed(tuple(findings))


def _of_schedule(data: dict[str, Any], problem: Problem, schedule: Schedule) -> Iterator[Finding]:
    problem.require_fits(schedule.placement)
    found = problems.digest(problem, schedule.placement)
    yield Finding("fingerprint of the problem", found[:16], found == data["problem_sha256"])
    timeline = evaluate(schedule, problem)
    wrong = verify(timeline, problem)
    yield Finding("checker", wrong[0].message if wrong else "finds nothing wrong", not wrong)
    yield from _as_said(data, {"split_backward": schedule.splits_backward} | figures(timeline, problem))
    yield from _bound(data, problem, timeline)
    if data.get("compared"):
        yield _compared(data, problem, timeline)


def _as_said(data: dict[str, Any], ours: dict[str, Any]) -> Iterator[Finding]:
    """What the file says, and we too; older files do not say everything."""
    for key, value in ours.items():
        if key in data:
            said = str(value) if data[key] == value else f"{value}, the file says {data[key]}"
            yield Finding(key.replace("_", " "), said, data[key] == value)


def _bound(data: dict[str, Any], problem: Problem, timeline: Timeline) -> Iterator[Finding]:
    """The bound that the file says against the schedule, and against what is known without a search."""
    said, objective, value = data["bound"], Objective(data["objective"]), problem.time.value
    placement = timeline.schedule.placement
    ticks = round(Fraction(said) / problem.time.tick) if isfinite(said) else -1
    best = measured(timeline, objective)
    shown = as_number(value(best))
    known = max(bounds(problem, placement, data["split_backward"], objective), key=lambda bound: bound.ticks)
    ours = as_number(value(known.ticks))
    if ticks < 0 or as_number(value(ticks)) != said:
        yield Finding("bound", f"{said} is no whole number of ticks of {problem.time.tick}", False)
        return
    if known.ticks > best:
        yield Finding("bound", f"{ours} without a search is above the schedule's {shown}: {known.reason}", False)
    elif ticks > best:
        yield Finding("bound", f"{said} is above the schedule's {shown}", False)
    elif data["status"] == "proved" and ticks != best:
        yield Finding("bound", f"{said} does not reach the schedule's {shown}, so nothing is proved", False)
    elif known.ticks >= ticks:
        yield Finding("bound", f"{ours} without a search: {known.reason}", True)
    else:
        yield Finding("bound", f"{ours} without a search; {said} rests on: {data.get('bound_reason')}", None)
    yield from _as_said(data, {"gap": as_number(Fraction(best - ticks, best)) if best else 0})


def _compared(data: dict[str, Any], problem: Problem, timeline: Timeline) -> Finding:
    """The named schedules: again where they run on this placement with their usual options, else their ratio alone."""
    placement, objective = timeline.schedule.placement, Objective(data["objective"])
    best = problem.time.value(measured(timeline, objective))

    def recipe(where: Placement) -> Problem:
        if where != placement:
            raise Inapplicable("the file holds the costs of its own placement only")
        return problem

    again = {
        name: row(compared(name, schedule, recipe, placement, objective, best))
        for name, schedule in named_schedules(recipe, placement, {}, objective)
        if schedule.placement == placement
    }
    span = "makespan" if objective is Objective.MAKESPAN else "longest_device_span"
    for one in data["compared"]:
        name = one["schedule"]
        for key, ours in again.get(name, {}).items():
            if key in one and one[key] != ours:
                return Finding("compared", f"{name} has {key} {ours}, the file says {one[key]}", False)
        if best and span in one and not _is_ratio(one.get("ratio"), one[span], float(best)):
            return Finding("compared", f"{name} has another ratio than its {span} to {as_number(best)}", False)
    count = sum(one["schedule"] in again for one in data["compared"])
    rest = len(data["compared"]) - count
    if rest:
        return Finding("compared", f"{count} evaluated again; {rest} of other costs or options", None)
    return Finding("compared", f"{count} evaluated again", True)


def _is_ratio(ratio: Any, own: Any, best: float) -> bool:
    return all(type(one) in (int, float) for one in (ratio, own)) and isclose(ratio, own / best, rel_tol=1e-9)


def _version(data: dict[str, Any]) -> Finding:
    from explorer import __version__

    return Finding("version", f"{__version__}, the file's is {data.get('version')}", None)
