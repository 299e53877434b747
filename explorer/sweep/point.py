"""One point of a sweep: its address, and what is found there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from explorer import __version__, api
from explorer.api import Costs
from explorer.core.errors import ExplorerError, Inapplicable
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.units import as_number
from explorer.evaluation.case import case_of
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import peaks, static
from explorer.evaluation.metrics import bubble_ratio
from explorer.evaluation.results import idealised
from explorer.sweep import search
from explorer.sweep.costs import costs_of
from explorer.sweep.grid import Point, Value

Row = dict[str, Any]
CODE = (
    "schedules/**/*.py",
    "explorer/core/**/*.py",
    "explorer/evaluation/**/*.py",
    "explorer/config/**/*.py",
    "solvers/**/*.py",
    "explorer/sweep/point.py",
    "explorer/sweep/costs.py",
    "explorer/sweep/search.py",
)
"""What a result depends on besides a point."""


@dataclass(frozen=True)
class Task:
    """A point, ready to be computed anywhere.

    Parameters
    ----------
    key
        Its address; see `address`.
    point
        As the grid gives it.
    name, options
        The schedule that its text names.
    costs
        What its texts mean: where it is computed, there need be no files.
    """

    key: str
    point: Point
    name: str
    options: Mapping[str, object]
    costs: Costs


@cache
def version() -> str:
    """The version whose results are the same: the package's, and a digest of the code that computes them."""
    home = Path(api.__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for pattern in CODE:
        for path in sorted(home.glob(pattern)):
            digest.update(path.relative_to(home).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:12]}"


def address(point: Point) -> str:
    """A digest of a point's axes and of what its result depends on besides: the costs that its texts mean.

    A system's file that has changed gives another address; so does a file of schedules. Points whose costs mean the
    same, or cannot be for the same reason, are points of their own nevertheless.

    Raises
    ------
    UsageError
        If the costs are wrong in themselves.
    """
    parts = [
        point.axes,
        _costs_digest(point.costs),
        _file_digest(point.schedule),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


@cache
def _costs_digest(costs: tuple[tuple[str, Value], ...]) -> str:
    return hashlib.sha256(repr(costs_of(costs)).encode()).hexdigest()


@cache
def _file_digest(schedule: str) -> str:
    path = Path(schedule.partition(".py:")[0] + ".py")
    return hashlib.sha256(path.read_bytes()).hexdigest() if ".py:" in schedule and path.is_file() else ""


def compute(task: Task) -> Row:
    """Evaluate a point at the three levels.

    Returns
    -------
    dict
        ``status`` (``done``, ``inapplicable`` or ``refused``) with its ``reason``, or: ``makespan``,
        ``table_makespan`` and ``formula_makespan`` in ``unit`` (``1`` or ``s``), the ``mode``, the three bubble ratios,
        the largest peaks, whether limits are met, ``asynchronous`` (then the makespan is no measure), and how many
        ``ops`` there are. Of a search also whether it is ``proved``, and the lower ``bound``.
    """
    try:
        return {"status": "done", **_evaluated(task)}
    except Inapplicable as reason:
        return {"status": "inapplicable", "reason": str(reason)}
    except ExplorerError as reason:
        return {"status": "refused", "reason": str(reason)}


def _evaluated(task: Task) -> Row:
    point, recipe = task.point, task.costs.problem
    if task.name == search.NAME:
        schedule, more = search.best(recipe, point.devices, point.microbatches, task.options)
        return _measured(schedule, recipe(schedule.placement)) | more
    named = api.resolve(task.name)
    assert named is not None, "a sweep's schedules have names"
    schedule = named(point.devices, point.microbatches, recipe=recipe, **task.options)
    problem = recipe(schedule.placement)
    case = case_of(problem, schedule.placement, task.options)
    formula = named.formula(case)
    asynchronous = named.asynchrony(case) is not None
    if asynchronous:
        api.require_one_step(problem, task.name)
    return _measured(schedule, problem) | {
        "formula_makespan": _optional(formula.makespan),
        "formula_bubble_ratio": _optional(formula.bubble_ratio),
        "asynchronous": asynchronous,
    }


def _measured(schedule: Schedule, problem: Problem) -> Row:
    ideal = idealised(problem)
    timeline, table = evaluate(schedule, problem, compile=True), evaluate(schedule, ideal, compile=True)
    value = problem.time.value
    stashed = peaks(schedule, problem, problem.stash)
    row: Row = {
        "unit": problem.time.unit,
        "mode": str(problem.communication),
        "makespan": as_number(value(timeline.makespan)),
        "table_makespan": as_number(value(table.makespan)),
        "bubble_ratio": float(bubble_ratio(timeline, problem)),
        "table_bubble_ratio": float(bubble_ratio(table, ideal)),
        "formula_makespan": None,
        "formula_bubble_ratio": None,
        "peak_activations": as_number(problem.stash.unit * int(stashed.max())),
        "asynchronous": False,
        "ops": len(schedule),
    }
    held = None
    if problem.bytes is not None:
        held = peaks(schedule, problem, problem.bytes) + static(schedule, problem.bytes)
        row["peak_memory"] = int(held.max())
        row["fits_device"] = problem.device_memory is None or int(held.max()) <= problem.device_memory
    limit = problem.memory_limit
    used = stashed if limit is None or not limit.in_bytes or held is None else held
    row["fits_limit"] = limit is None or bool((used <= limit.per_device).all())
    return row


def _optional(value: Fraction | None) -> int | float | None:
    return None if value is None else as_number(value)
