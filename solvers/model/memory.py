"""Parts: what each device may hold."""

from __future__ import annotations

from collections import defaultdict

from explorer.core.errors import Inapplicable
from explorer.core.op import Kind, Op
from solvers.model.variables import Model
from solvers.scope import alike
from solvers.space import limited_stash, room


def within_limit(model: Model) -> None:
    """At every time, ``sum of held over started F - sum of freed over ended I, W, B <= limit - static`` on each device.

    Raises
    ------
    Inapplicable
        If a forward that holds memory takes no time: what it holds would not show between its start and its end.
    """
    spaces = room(model.problem, model.scope.placement.resident)
    if spaces is None or model.problem.memory_limit is None:
        return
    stash = limited_stash(model.problem, model.problem.memory_limit)
    for tasks, space in zip(model.tasks, spaces, strict=True):
        times, changes = [], []
        for task in tasks:
            for op in task.occupancy.ops:
                change = model.costs.held(stash, op) if op.kind is Kind.F else -model.costs.freed(stash, op)
                if change > 0 and task.occupancy.duration == 0:
                    raise Inapplicable(f"a memory limit needs forwards that take time, but {op} takes none")
                if change:
                    times.append(task.start if op.kind is Kind.F else task.end)
                    changes.append(change)
        if space < 0:
            model.cp.add_bool_or([])
        elif sum(change for change in changes if change > 0) > space:
            model.cp.add_reservoir_constraint(times, changes, min(0, sum(c for c in changes if c < 0)), space)


def room_for_forwards(model: Model) -> None:
    """``start[F(s, i+k)] >= end[a(s, i)]``: the ops a that must have freed something before a forward fits.

    Redundant, and only where identical microbatches run in order. Let h be what F(s', i) holds, summed over the stages
    s' <= s of the same route on the same device. Until a = I or B of (s, i) ends, none of these stages has freed
    anything of the microbatches from i on; so with the first k for which ``(k + 1) h > space``, F(s, i+k) must wait for
    it. Until a = W(s, i) ends, stage s still holds its rest r of each of them: the same for ``k r + held > space``.
    """
    spaces = room(model.problem, model.scope.placement.resident)
    if spaces is None or model.problem.memory_limit is None or not model.scope.identical_in_order:
        return
    stash = limited_stash(model.problem, model.problem.memory_limit)
    classes: defaultdict[tuple[int, int, int, int], list[Op]] = defaultdict(list)
    for op in model.task_of:
        classes[alike(model.problem, model.scope.placement, op)].append(op)
    for (route, profile, stage, kind), members in classes.items():
        if kind == Kind.F:
            continue
        device = model.costs.device(members[0])
        if kind == Kind.W:
            rest = model.costs.freed(stash, members[0])
            first = (spaces[device] - model.costs.held(stash, members[0])) // rest + 1 if rest else len(members)
        else:
            hops = model.scope.placement.routes[route][: stage + 1]
            together = sum(int(stash.held[profile, hop.chunk]) for hop in hops if hop.device == device)
            first = spaces[device] // together if together else len(members)
        forwards = sorted(classes[route, profile, stage, Kind.F])
        for op, forward in zip(sorted(members), forwards[max(first, 0) :], strict=False):
            model.cp.add(model.task_of[forward].start >= model.task_of[op].end)
