"""How fast microbatches can enter a pipeline: what is proved for a few holds for any few of many.

Take any schedule of many identical microbatches in order, and of it only the ops of microbatches i to i + n. They keep
their inputs, devices, links and memory, and none starts before the first forward of microbatch i: they are a schedule
of n + 1 microbatches. So from the first forward of microbatch i to that of i + n passes at least the least start that
the first forward of the last of n + 1 microbatches can have.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ortools.sat.python import cp_model

from explorer.core.op import Kind, Op
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from solvers.model import build
from solvers.scope import Objective, searching
from solvers.shop import Shop
from solvers.solve import PROBE_UP_TO
from solvers.stretch import short_case
from solvers.windows import Edge, windows


def entering(problem: Problem, placement: Placement, split: bool, n: int, time_limit: float, seed: int = 0) -> int:
    """Ticks that pass at least from the first forward of a microbatch to that of the n-th behind it.

    Parameters
    ----------
    n
        At least 1, and fewer than there are microbatches.
    time_limit
        Seconds; what is proved until then counts.
    """
    case = short_case(problem, placement, n + 1)
    if case is None:
        return 0
    shop = Shop.of(*case, split)
    scope = searching(*case, split=split, known=())
    model = build(case[0], replace(scope, objective=Objective.MAKESPAN))
    head = windows(shop).head
    for index in range(len(shop)):
        model.cp.add(model.task_of[shop.op(index)].start >= int(head[index]))
    last = Op(0, Kind.F, n)
    model.cp.minimize(model.task_of[last].start)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_time_in_seconds = time_limit
    if len(shop) > PROBE_UP_TO:
        solver.parameters.cp_model_probing_level = 0
    status = solver.solve(model.cp)
    known = int(head[next(index for index in range(len(shop)) if shop.op(index) == last)])
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        return known
    return max(known, math.ceil(solver.best_objective_bound - 1e-6))


def entering_edges(shop: Shop, n: int, ticks: int) -> tuple[Edge, ...]:
    """``start[F(0, i+n)] >= start[F(0, i)] + ticks``."""
    first = next(index for index, one in enumerate(shop.classes) if one.stage == 0 and one.kind is Kind.F)
    return (Edge(int(shop.first[first]), int(shop.first[first]) + n, ticks, len(shop.members[0]) - n),)
