"""Part: of many equally good orders, one."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from explorer.core.op import Op
from solvers.model.variables import Model
from solvers.scope import alike


def identical_in_order(model: Model) -> None:
    """``start[k(s, j)] >= free[k(s, i)]`` for identical microbatches i < j at each stage s and kind k.

    Only in scopes that ask for it; see `solvers.scope.Scope` for why it loses no optimum.
    """
    if not model.scope.identical_in_order:
        return
    classes: defaultdict[tuple[int, int, int, int], list[Op]] = defaultdict(list)
    for op in model.task_of:
        classes[alike(model.problem, model.scope.placement, op)].append(op)
    for members in classes.values():
        for earlier, later in pairwise(sorted(members)):
            first = model.task_of[earlier]
            model.cp.add(model.task_of[later].start >= first.free)
