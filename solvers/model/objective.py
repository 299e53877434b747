"""Part: what is made as small as possible."""

from __future__ import annotations

from solvers.model.variables import Model
from solvers.scope import Objective, first_op, first_starts


def measure(model: Model) -> None:
    """What the objective is not less than.

    ``makespan >= free[a]``, ``sync[c] + ticks[c]``, ``step[d] + ticks[d]``; or ``span >= free[a] - first[d]``,
    ``first[d] <= start[a]``.
    Where devices' first starts are known they are stated, so that no device waits to make its span look shorter.
    """
    match model.scope.objective:
        case Objective.MAKESPAN:
            for task in model.all_tasks():
                model.cp.add(model.value >= task.free)
            for sync in model.syncs:
                model.cp.add(model.value >= sync.end)
            for step in model.steps:
                model.cp.add(model.value >= step.end)
        case Objective.SPAN:
            starts = first_starts(model.problem, model.scope.placement) if model.scope.free_order else ()
            for device, tasks in enumerate(model.tasks):
                first = model.cp.new_int_var(0, model.scope.horizon, f"first[{device}]")
                if starts:
                    model.cp.add(first == starts[device])
                    model.cp.add(model.task_of[first_op(model.scope.placement, device)].start == first)
                for task in tasks:
                    model.cp.add(first <= task.start)
                    model.cp.add(model.value >= task.free - first)
    model.cp.minimize(model.value)
