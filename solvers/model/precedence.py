"""Parts: what an op waits for."""

from __future__ import annotations

from solvers.model.variables import Model
from solvers.work import input_of


def inputs_made_here(model: Model) -> None:
    """``start[b] >= free[a]`` where b needs what a makes, on the same device."""
    for op, task in model.task_of.items():
        wanted = input_of(op, model.scope.placement)
        if wanted is not None:
            source = model.maker[wanted]
            if model.costs.device(source) == model.costs.device(op):
                model.cp.add(task.start >= model.task_of[source].free)


def inputs_sent(model: Model) -> None:
    """``start[b] >= sent[a] + delay[a]`` where b needs what a makes, on another device."""
    for op, task in model.task_of.items():
        wanted = input_of(op, model.scope.placement)
        if wanted is not None:
            source = model.maker[wanted]
            if model.costs.device(source) != model.costs.device(op):
                model.cp.add(task.start >= model.transfers[source].arrival)
