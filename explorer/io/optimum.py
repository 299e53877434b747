"""What a search found, as the JSON that programs read.

Field names are a contract, additions are free.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from explorer.core.errors import Malformed, nearest
from explorer.core.problem import Problem
from explorer.core.timeline import Timeline
from explorer.core.units import as_number
from explorer.evaluation.memory import peaks
from explorer.evaluation.metrics import critical_path, split
from explorer.io import native
from explorer.io import problem as problems
from solvers.losses import losses
from solvers.optimise import Compared, Optimum
from solvers.outcome import Infeasible, Proved
from solvers.scope import Objective

FORMAT = "pipeline-optimum"
STATUSES = ("proved", "found", "infeasible")
_IN_WORDS: dict[type, str] = {
    str: "text", bool: "true or false", int: "a whole number", float: "a number", dict: "an object", type(None): "null",
}  # fmt: skip


def encode(result: Optimum) -> dict[str, Any]:
    """A result, with all that checking it again needs; times in ``time_unit``."""
    from explorer import __version__

    answer, problem, settings = result.answer, result.problem, result.settings
    outcome = answer.outcome
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
        **said_again(problem),
        "devices": result.placement.devices,
        "microbatches": result.placement.microbatches,
        "problem": problems.encode(problem),
        "problem_sha256": problems.digest(problem, result.placement),
        "compared": [row(one) for one in result.compared],
    }
    if isinstance(outcome, Infeasible):
        nothing = dict.fromkeys(
            ("makespan", "bound", "gap", "bound_reason", "peak_activations", "seeded_by", "schedule")
        )
        return common | nothing | {"reason": outcome.reason}
    assert answer.bound is not None, "what is found has a bound"
    return common | {
        **figures(outcome.timeline, problem),
        "bound": as_number(problem.time.value(answer.bound.ticks)),
        "gap": as_number(result.gap),
        "bound_reason": answer.bound.reason,
        "seeded_by": answer.seeded_by,
        "found_by": answer.found_by,
        "schedule": native.encode(outcome.timeline.schedule),
    }


def said_again(problem: Problem) -> dict[str, Any]:
    """What a result says of its problem besides, for those who read no problem."""
    limit = problem.memory_limit
    return {"time_unit": problem.time.unit, "memory_limit": limit and limit.text}


def figures(timeline: Timeline, problem: Problem) -> dict[str, Any]:
    """What a result says of the best schedule's timeline."""
    value = problem.time.value
    path = split(critical_path(timeline, problem), problem)
    return {
        "makespan": as_number(value(timeline.makespan)),
        "longest_device_span": as_number(value(int(timeline.spans.max()))),
        "peak_activations": [
            as_number(problem.stash.unit * int(peak)) for peak in peaks(timeline.schedule, problem, problem.stash)
        ],
        "critical_path": {str(part): as_number(value(ticks)) for part, ticks in path.items()},
        "losses": {
            str(loss): as_number(ticks * problem.time.tick) for loss, ticks in losses(timeline, problem).items()
        },
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


def read(path: Path) -> dict[str, Any]:
    """A result, its fields of the kinds that `encode` writes; problem and schedule as they stand.

    Raises
    ------
    UsageError, Malformed
        If the file cannot be read, or holds no result of a search.
    """
    data: dict[str, Any] = native.read_json(path)
    if not is_result(data):
        raise Malformed(f'expected a result of optimize, an object with "format": "{FORMAT}"', str(path))
    infeasible = data.get("status") == "infeasible"
    number = (type(None),) if infeasible else (int, float)
    kinds: dict[str, tuple[type, ...]] = {
        "status": (str,), "problem": (dict,), "problem_sha256": (str,), "objective": (str,), "split_backward": (bool,),
        "makespan": number, "bound": number, "schedule": (type(None),) if infeasible else (dict,),
    }  # fmt: skip
    for key, types in kinds.items():
        if key not in data:
            raise Malformed(f"the key {key!r} is missing", str(path))
        if type(data[key]) not in types:
            expected = " or ".join(_IN_WORDS[one] for one in types)
            of = f" of status {data['status']}" if key != "status" else ""
            raise Malformed(f"{key} of a result{of} must be {expected}", str(path))
    for key, known in (("status", STATUSES), ("objective", list(map(str, Objective)))):
        if data[key] not in known:
            raise Malformed(f"no {key} is called {data[key]!r}; {nearest(data[key], known)}", str(path))
    rows = data.get("compared", [])
    named = isinstance(rows, list) and all(isinstance(one, dict) for one in rows)
    if not named or not all(isinstance(one.get("schedule"), str) for one in rows):
        raise Malformed("compared of a result must be a list of objects, each with its schedule", str(path))
    return data


def is_result(data: Any) -> bool:
    """Whether the values of a JSON file are meant as a result."""
    return isinstance(data, dict) and data.get("format") == FORMAT
