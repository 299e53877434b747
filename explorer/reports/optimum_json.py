"""What a search found, as the JSON that programs read: field names are a contract, additions are free."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from explorer.core.units import as_number
from explorer.evaluation.memory import peaks
from explorer.evaluation.metrics import critical_path, split
from explorer.io import native
from explorer.io import problem as problems
from solvers.losses import losses
from solvers.optimise import Compared, Optimum
from solvers.outcome import Infeasible, Proved

FORMAT = "pipeline-optimum"


def optimum(result: Optimum) -> dict[str, Any]:
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
        "compared": [_row(row) for row in result.compared],
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
        "gap": as_number(gap(result)),
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


def gap(result: Optimum) -> Fraction:
    """How far the bound is below the best objective, as a fraction of the latter."""
    bound, ticks = result.answer.bound, result.ticks
    if bound is None or not ticks:
        return Fraction(0)
    return Fraction(ticks - bound.ticks, ticks)


def _row(row: Compared) -> dict[str, Any]:
    return {
        "schedule": row.name,
        "makespan": as_number(row.makespan),
        "longest_device_span": as_number(row.longest_device_span),
        "ratio": None if row.ratio is None else as_number(row.ratio),
        "fits_memory": row.fits_memory,
        "same_placement": row.same_placement,
        "peak_activations": as_number(row.peak_activations),
        "losses": {str(loss): as_number(time) for loss, time in row.losses.items()},
    }
