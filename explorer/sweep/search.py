"""Searches as points of a sweep: ``optimize`` among its schedules, beside the named ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from explorer.core.errors import Inapplicable, UsageError, nearest
from explorer.core.schedule import Schedule
from explorer.core.units import number
from schedules.registry import Recipe

NAME = "optimize"
DEFAULTS: dict[str, object] = {"placement": "linear", "size": 0, "time_limit": 10.0, "fused": False}
"""The placement and its chunks a device or waves, seconds a point, and whether backwards stay whole."""
LONGEST = 24 * 3600


def options(given: Mapping[str, str]) -> dict[str, object]:
    """What ``optimize:placement=v:time_limit=5`` asks for.

    Raises
    ------
    UsageError
        If an option is unknown or its value wrong.
    """
    from solvers.optimise import PLACEMENTS

    for name in given:
        if name not in DEFAULTS:
            raise UsageError(f"optimize has no option {name!r}; {nearest(name, DEFAULTS)}")
    read = dict(DEFAULTS) | dict(given)
    if read["placement"] not in PLACEMENTS:
        raise UsageError(f"no placement is called {read['placement']!r}; {nearest(str(read['placement']), PLACEMENTS)}")
    limit = float(number(str(read["time_limit"]), "time_limit"))
    if not 0 < limit <= LONGEST:
        raise UsageError(f"time_limit must be over 0 and at most {LONGEST} seconds, got {limit:g}")
    size = number(str(read["size"]), "size")
    if size != int(size) or size < 0:
        raise UsageError(f"size must be a whole number, got {size}")
    if str(read["fused"]).lower() not in ("true", "false"):
        raise UsageError(f"fused must be true or false, got {read['fused']!r}")
    fused = str(read["fused"]).lower() == "true"
    return {"placement": read["placement"], "size": int(size), "time_limit": limit, "fused": fused}


def best(recipe: Recipe, devices: int, microbatches: int, given: Mapping[str, Any]) -> tuple[Schedule, dict[str, Any]]:
    """The best schedule that one thread finds in time.

    Returns
    -------
    schedule, dict
        The schedule; ``proved`` and the lower ``bound`` in the problem's unit.

    Raises
    ------
    Inapplicable
        If no order keeps the memory limit.
    """
    from solvers.optimise import Settings, optimise, placements
    from solvers.outcome import Infeasible

    settings = Settings(split=not given["fused"], time_limit=given["time_limit"])
    found = optimise(recipe, placements(given["placement"], devices, microbatches, given["size"]), settings)
    if isinstance(found.answer.outcome, Infeasible) or found.timeline is None:
        raise Inapplicable("no order keeps the memory limit")
    bound = None if found.answer.bound is None else float(found.problem.time.value(found.answer.bound.ticks))
    return found.timeline.schedule, {"proved": not found.gap, "bound": bound}
