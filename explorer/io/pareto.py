"""A frontier as the JSON that programs read."""

from __future__ import annotations

from typing import Any

from explorer.core.units import as_number
from explorer.evaluation.memory import peaks
from explorer.io import native
from explorer.io.optimum import row
from solvers.outcome import Infeasible, Proved
from solvers.pareto import Frontier, Point


def encode(result: Frontier) -> dict[str, Any]:
    """A frontier; times in ``time_unit``, memory in device units."""
    return {
        "objective": str(result.settings.objective),
        "split_backward": result.settings.split,
        "devices": result.placement.devices,
        "microbatches": result.placement.microbatches,
        "time_unit": result.problem.time.unit,
        "interrupted": any(point.answer.interrupted for point in result.points),
        "points": [_point(point, result) for point in result.points],
        "smallest_feasible_limit": as_number(result.least),
        "infeasible_below_because": result.infeasible,
        "compared": [row(one) for one in result.compared],
    }


def _point(point: Point, result: Frontier) -> dict[str, Any]:
    outcome, bound, problem = point.answer.outcome, point.answer.bound, result.problem
    if isinstance(outcome, Infeasible) or bound is None:
        reason = outcome.reason if isinstance(outcome, Infeasible) else ""
        return {"limit": point.limit.text, "status": "infeasible", "reason": reason}
    value, timeline = problem.time.value, outcome.timeline
    return {
        "limit": point.limit.text,
        "status": "proved" if isinstance(outcome, Proved) else "found",
        "makespan": as_number(value(timeline.makespan)),
        "longest_device_span": as_number(value(int(timeline.spans.max()))),
        "bound": as_number(value(bound.ticks)),
        "bound_reason": bound.reason,
        "peak_activations": as_number(problem.stash.unit * int(peaks(timeline.schedule, problem, problem.stash).max())),
        "seconds": round(point.answer.seconds, 3),
        "schedule": native.encode(timeline.schedule),
    }
