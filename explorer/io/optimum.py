"""What a search found, as the JSON that programs read, and checked again.

Field names are a contract, additions are free.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.core.errors import ExplorerError, Malformed
from explorer.core.files import read_text
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from explorer.core.timeline import Timeline
from explorer.core.units import as_number
from explorer.evaluation.checker import verify
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import peaks
from explorer.evaluation.metrics import critical_path, split
from explorer.io import native
from explorer.io import problem as problems
from solvers.incumbent import measured
from solvers.losses import losses
from solvers.optimise import Compared, Optimum
from solvers.outcome import Infeasible, Proved
from solvers.relaxation import bounds
from solvers.scope import Objective

FORMAT = "pipeline-optimum"


def encode(result: Optimum) -> dict[str, Any]:
    """A result, with all that checking it again needs; times in ``time_unit``."""
    from explorer import __version__

    answer, problem, settings = result.answer, result.problem, result.settings
    outcome, value = answer.outcome, problem.time.value
    status = {Proved: "proved", Infeasible: "infeasible"}.get(type(outcome), "found")
    common = {
        "format": FORMAT,
        "version": __version__,
        "status": status,
        "interrupted": answer.interrupted,
        "objective": str(settings.objective),
        "split_backward": settings.split,
        "seconds": round(answer.seconds, 3),
        "time_limit": None if settings.time_limit == float("inf") else settings.time_limit,
        "workers": settings.workers,
        "seed": settings.seed,
        "time_unit": problem.time.unit,
        "devices": result.placement.devices,
        "microbatches": result.placement.microbatches,
        "memory_limit": problem.memory_limit and problem.memory_limit.text,
        "problem": problems.encode(problem),
        "problem_sha256": problems.digest(problem, result.placement),
        "compared": [row(one) for one in result.compared],
    }
    if isinstance(outcome, Infeasible):
        nothing = dict.fromkeys(
            ("makespan", "bound", "gap", "bound_reason", "peak_activations", "seeded_by", "schedule")
        )
        return common | nothing | {"reason": outcome.reason}
    timeline = outcome.timeline
    assert answer.bound is not None, "what is found has a bound"
    path = split(critical_path(timeline, problem), problem)
    return common | {
        "makespan": as_number(value(timeline.makespan)),
        "longest_device_span": as_number(value(int(timeline.spans.max()))),
        "bound": as_number(value(answer.bound.ticks)),
        "gap": as_number(result.gap),
        "bound_reason": answer.bound.reason,
        "peak_activations": [
            as_number(problem.stash.unit * int(peak)) for peak in peaks(timeline.schedule, problem, problem.stash)
        ],
        "seeded_by": answer.seeded_by,
        "found_by": answer.found_by,
        "critical_path": {str(part): as_number(value(ticks)) for part, ticks in path.items()},
        "losses": {
            str(loss): as_number(ticks * problem.time.tick) for loss, ticks in losses(timeline, problem).items()
        },
        "schedule": native.encode(timeline.schedule),
    }


def row(one: Compared) -> dict[str, Any]:
    """A named schedule beside the best."""
    return {
        "schedule": one.name,
        "makespan": as_number(one.makespan),
        "longest_device_span": as_number(one.longest_device_span),
        "ratio": None if one.ratio is None else as_number(one.ratio),
        "fits_memory": one.fits_memory,
        "same_placement": one.same_placement,
        "peak_activations": as_number(one.peak_activations),
        "peak_memory": one.peak_memory,
        "losses": {str(loss): as_number(time) for loss, time in one.losses.items()},
    }


def disagreement(message: str, timelines: Iterable[Timeline], problem: Problem) -> dict[str, Any]:
    """What checker, evaluator and solver do not agree on: each timeline with its starts, in ticks."""
    return {
        "disagreement": message,
        "problem": problems.encode(problem),
        "timelines": [
            {"schedule": native.encode(one.schedule), "start": one.start.tolist(), "end": one.end.tolist()}
            for one in timelines
        ],
    }


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


@dataclass(frozen=True)
class KeptCosts:
    """The costs of a search, as its result keeps them: of one placement."""

    kept: Problem

    def problem(self, placement: Placement) -> Problem:
        """The problem as it was.

        Raises
        ------
        UsageError
            If the placement has other sizes.
        """
        self.kept.require_fits(placement)
        return self.kept


def kept_costs(path: Path) -> KeptCosts | None:
    """The costs in a result of a search; None for any other file."""
    if path.suffix.lower() != ".json":
        return None
    try:
        data = _result(path)
    except ExplorerError:
        return None
    return KeptCosts(problems.decode(data["problem"], f"{path}: problem"))


def replay(path: Path) -> Replayed:
    """Check a result again: fingerprint, schedule, times, memory, and the bound as far as no search is needed.

    Raises
    ------
    UsageError, Malformed
        If the file cannot be read, or holds no result of a search.
    """
    data = _result(path)
    problem = problems.decode(data["problem"], f"{path}: problem")
    if data["status"] == "infeasible":
        return Replayed((Finding("status", "infeasible; search again to check it", None),))
    schedule = native.decode(data.get("schedule"), f"{path}: schedule")
    value = problem.time.value
    try:
        found = problems.digest(problem, schedule.placement)
        objective, split = Objective(data["objective"]), bool(data["split_backward"])
        timeline = evaluate(schedule, problem)
        wrong = verify(timeline, problem)
        known = max(bounds(problem, schedule.placement, split, objective), key=lambda bound: bound.ticks)
    except (ExplorerError, ValueError) as error:
        return Replayed((Finding("schedule", str(error), False),))
    ours, said = as_number(value(timeline.makespan)), data["makespan"]
    best = measured(timeline, objective)
    findings = [
        Finding("fingerprint of the problem", found[:16], found == data["problem_sha256"]),
        Finding("checker", wrong[0].message if wrong else "finds nothing wrong", not wrong),
        Finding("makespan", f"{ours}, the file says {said}", ours == said),
        _bound(data, as_number(value(known.ticks)), as_number(value(best)), known.reason),
        _version(data),
    ]
    return Replayed(tuple(findings))


def _bound(data: dict[str, Any], ours: int | float, best: int | float, reason: str) -> Finding:
    said = data["bound"]
    if said > best:
        return Finding("bound", f"{said} is above the schedule's {best}", False)
    if data["status"] == "proved" and said != best:
        return Finding("bound", f"{said} does not reach the schedule's {best}, so nothing is proved", False)
    if ours >= said:
        return Finding("bound", f"{ours} without a search: {reason}", True)
    return Finding("bound", f"{ours} without a search; {said} rests on: {data['bound_reason']}", None)


def _version(data: dict[str, Any]) -> Finding:
    from explorer import __version__

    return Finding("version", f"{__version__}, the file's is {data.get('version')}", None)


def _result(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error.msg}", f"{path}:{error.lineno}:{error.colno}") from None
    except RecursionError:
        raise Malformed("nested too deeply to be a result", str(path)) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise Malformed(f'expected a result of optimize, an object with "format": "{FORMAT}"', str(path))
    needed = ("status", "problem", "problem_sha256", "objective", "split_backward", "makespan", "bound")
    missing = [key for key in needed if key not in data]
    if missing:
        raise Malformed(f"the key {missing[0]!r} is missing", str(path))
    if data["status"] != "infeasible" and not all(isinstance(data[key], (int, float)) for key in ("makespan", "bound")):
        raise Malformed("makespan and bound must be numbers", str(path))
    return data
