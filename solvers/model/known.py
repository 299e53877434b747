"""Part: what is known of starts without a search."""

from __future__ import annotations

from solvers.model.variables import Model
from solvers.scope import Objective, first_starts


def within_windows(model: Model) -> None:
    """``start[a] >= head[a]``, ``makespan >= start[a] + tail[a]``; or the same within each device's span.

    Redundant, and only where the scope brings heads and tails: ``start[a] >= first[d] + head[a]`` and ``span >=
    start[a] + tail[a] - first[d]`` for the ops a of device d, with the first start of the device, where that is known.
    """
    spans = model.scope.objective is Objective.SPAN
    starts = first_starts(model.problem, model.scope.placement) if spans else (0,)
    for device, (known, first) in enumerate(zip(model.scope.windows, starts, strict=False)):
        shop = known.shop
        for n in shop.on(device).tolist() if spans else range(len(shop)):
            start = model.task_of[shop.op(n)].start
            model.cp.add(start >= first + int(known.head[n]))
            model.cp.add(model.value >= start + int(known.tail[n]) - first)
