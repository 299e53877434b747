"""ZB-auto: the best of many split-backward orders for the costs, transfer times and memory limit of the run at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Literal

from explorer.core.errors import UsageError
from explorer.core.op import Kind, Op
from explorer.core.placement import linear
from explorer.core.schedule import Schedule
from schedules.planning import Costs, Plan, Policy, follow, replay
from schedules.registry import Recipe, named
from schedules.zb_h1 import late_weights

EFFORT = 600_000
"""How many op starts are simulated before the search ends: one or two seconds."""

HALVINGS = 8
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
    for plan in islice(_plans(costs, merit), max(1, EFFORT // (3 * devices * microbatches))):
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


def _plans(costs: Costs, merit: Callable[[Plan], tuple[int, int]]) -> Iterator[Plan]:
    """Known orders that fit the memory, then policies that never wait, then what waiting makes of them, best first."""
    for factor in (1, 2):
        orders = [
            [op.kind for op in late_weights(d, costs.microbatches, factor * (costs.devices - d - 1), factor * d)]
            for d in range(costs.devices)
        ]
        if costs.fits(orders):
            yield replay(costs, orders)
    hasty = []
    for in_flight in _caps(costs):
        plan = follow(costs, Policy(in_flight, patient=False, late=False, budget=0))
        yield plan
        hasty.append((merit(plan), in_flight, plan.idle))
    for (_, in_flight, idle), patient, late in product(sorted(hasty), (True, False), (True, False)):
        yield from _waiting(costs, Policy(in_flight, patient, late, budget=0), idle)


def _caps(costs: Costs) -> list[tuple[int, ...]]:
    """How many forwards may be under way: as many as fill the first round trip, as in ZB-H1 and ZB-H2, or all."""
    first = range(costs.devices)
    trip = [0] * costs.devices
    for d in reversed(first[:-1]):
        forward = costs.duration[Kind.F][d + 1][0] + costs.delay[Kind.F][d][0]
        trip[d] = trip[d + 1] + forward + costs.duration[Kind.I][d + 1][0] + costs.delay[Kind.I][d + 1][0]
    fill = [1 + trip[d] // max(1, costs.duration[Kind.F][d][0]) for d in first]
    ahead = [costs.devices - d for d in first]
    caps = (fill, [n + 1 for n in fill], [2 * n for n in ahead], [2 * n - 1 for n in ahead], ahead)
    return list(dict.fromkeys([*map(tuple, caps), (costs.microbatches,) * costs.devices]))


def _waiting(costs: Costs, policy: Policy, idle: int) -> Iterator[Plan]:
    """Search for the least budget for waiting that suffices, from the idle time of a policy that never waits."""
    short, enough = 0, idle
    for _ in range(HALVINGS):
        budget = (short + enough) // 2
        plan = follow(costs, policy._replace(budget=budget))
        yield plan
        enough = min(enough, plan.idle)
        short = budget if plan.idle > budget else short
        if (short + enough) // 2 == budget:
            break
