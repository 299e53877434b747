"""ZB-auto: the best of many split-backward orders for the costs, transfer times and memory limit of the run at hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Literal

from explorer.core.errors import UsageError
from explorer.core.op import Kind, Op
from explorer.core.placement import linear
from explorer.core.schedule import Schedule
from schedules.planning import NEVER, Costs, Plan, Policy, follow, replay
from schedules.registry import Recipe, named
from schedules.zb_h1 import late_weights

EFFORT = 1_000_000
"""How many op starts are simulated before the search ends: two or three seconds."""

HALVINGS = 10
"""How often the idle budget of one policy is halved."""


@named(
    "zb-auto",
    summary="the best of many split-backward orders for this run's costs, transfers and memory limit",
    source="ours; the goal is that of the automatic schedules ZB-1p and ZB-2p of arXiv:2401.10241",
)
def zb_auto(
    devices: int,
    microbatches: int,
    objective: Literal["makespan", "span"] = "makespan",
    recipe: Recipe | None = None,
) -> Schedule:
    """Search for a good order by simulating list schedules, ZB-H1 and ZB-H2 with the costs of the run.

    Without costs F, I and W take equally long, transfers no time, and memory is not limited; then, at D = 2 and N = 4,
    it ends the search with ZB-H1::

        0: F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3
        1: F0 I0 F1 I1 W0 F2 I2 W1 F3 I3 W2 W3

    Parameters
    ----------
    objective
        What is made small: ``makespan``, or ``span``, the longest device span.
    recipe
        What things cost.

    Raises
    ------
    Inapplicable
        If the memory limit leaves no room for one activation on some device.
    UsageError
        If there is no such objective.
    """
    if objective not in ("makespan", "span"):
        raise UsageError(f"the objective of zb-auto is makespan or span, got {objective!r}")
    placement = linear(devices, microbatches)
    costs = Costs.of(placement, recipe(placement)) if recipe else Costs.equal(devices, microbatches)

    def merit(plan: Plan) -> tuple[int, int]:
        return (plan.makespan, plan.span) if objective == "makespan" else (plan.span, plan.makespan)

    floor = costs.least_makespan if objective == "makespan" else max(costs.work)
    best: Plan | None = None
    for plan in _plans(costs):
        if best is None or merit(plan) < merit(best):
            best = plan
        if merit(best)[0] == floor:
            break
    assert best is not None, "policies always give a plan"
    return Schedule.from_orders(placement, map(_numbered, range(devices), best.orders))


def _numbered(stage: int, kinds: list[Kind]) -> Iterator[Op]:
    """Give the i-th op of each kind to microbatch i."""
    counts = dict.fromkeys(Kind, 0)
    for kind in kinds:
        yield Op(stage, kind, counts[kind])
        counts[kind] += 1


def _plans(costs: Costs) -> Iterator[Plan]:
    """Known orders that fit the memory, then for each policy its plans as the idle budget is halved in on the best."""
    for factor in (1, 2):
        orders = [
            [op.kind for op in late_weights(d, costs.microbatches, factor * (costs.devices - d - 1), factor * d)]
            for d in range(costs.devices)
        ]
        if costs.fits(orders):
            yield replay(costs, orders)
    left = EFFORT
    ahead = [costs.devices - d for d in range(costs.devices)]
    caps = ([2 * a for a in ahead], [2 * a - 1 for a in ahead], ahead, [costs.microbatches] * costs.devices)
    for in_flight, patient, late in product(caps, (True, False), (True, False)):
        short, enough, budget = 0, NEVER, 0
        for _ in range(HALVINGS):
            plan = follow(costs, Policy(tuple(in_flight), patient, late, budget))
            yield plan
            left -= 3 * costs.devices * costs.microbatches
            if left < 0:
                return
            enough = min(enough, plan.idle)
            short = budget if plan.idle > budget else short
            if (short + enough) // 2 == budget:
                break
            budget = (short + enough) // 2
