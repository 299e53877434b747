"""Parts: what each device may hold."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from itertools import pairwise

from ortools.sat.python import cp_model

from explorer.core.errors import Inapplicable
from explorer.core.op import Kind, Op
from explorer.core.problem import Stash
from solvers.model.variables import Model, Task
from solvers.scope import alike
from solvers.space import limited_stash, room


def within_limit(model: Model) -> None:
    """At every time, ``sum of held over started F - sum of freed over ended I, W, B <= limit - static`` on each device.

    Where identical microbatches run in order and a device has one stage only, precedences say it exactly (`_in_turn`);
    a reservoir constraint does elsewhere.

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
        elif sum(change for change in changes if change > 0) <= space:
            continue
        elif len(lines := _lines(model, tasks)) == 1:
            _in_turn(model, stash, lines[0], space)
        else:
            model.cp.add_reservoir_constraint(times, changes, min(0, sum(c for c in changes if c < 0)), space)


Line = dict[Kind, list[Op]]
"""The ops of one stage of identical microbatches, in order."""


def _lines(model: Model, tasks: tuple[Task, ...]) -> list[Line]:
    """A device's ops by stage, route and profile; as many lines as there are if the order of alike ones is free."""
    found: dict[object, Line] = {}
    for task in tasks:
        for op in task.occupancy.ops:
            key = alike(model.problem, model.scope.placement, op)[:3] if model.scope.identical_in_order else op
            found.setdefault(key, {}).setdefault(op.kind, []).append(op)
    return [{kind: sorted(ops) for kind, ops in line.items()} for line in found.values()]


def _in_turn(model: Model, stash: Stash, line: Line, space: int) -> None:
    """``end[I_(j+1)] <= start[F_n]`` or ``end[W_w] <= start[F_n]``, for the w that is needed while only j I have ended.

    With n forwards begun and j input gradients ended, memory holds if at least ``w = ceil((n a - space - j a1) / a2)``
    weight gradients have ended, where a is what F holds, a1 what I and a2 what W frees. If w > j that cannot be, and
    I_(j+1) must have ended. With fused backwards, B stands for both.
    """
    forwards, last = line[Kind.F], line.get(Kind.W) or line[Kind.B]
    first = line.get(Kind.I, last)
    held, by_last = model.costs.held(stash, forwards[0]), model.costs.freed(stash, last[0])
    by_first = held - by_last
    for ops in line.values():
        for one, following in pairwise(ops):
            model.cp.add(model.task_of[following].start >= model.task_of[one].free)

    @cache
    def ended(op: Op, forward: Op) -> cp_model.IntVar:
        literal = model.cp.new_bool_var(f"ended[{op},{forward}]")
        model.cp.add(model.task_of[forward].start >= model.task_of[op].end).only_enforce_if(literal)
        model.cp.add(model.task_of[op].start >= model.task_of[forward].free).only_enforce_if(~literal)
        return literal

    def needed(n: int, j: int) -> int:
        excess = n * held - space - j * by_first
        if excess <= 0:
            return 0
        return -(-excess // by_last) if by_last else n

    for n, forward in enumerate(forwards, 1):
        start, least = model.task_of[forward].start, needed(n, n - 1)
        if least >= n:
            model.cp.add_bool_or([])
        elif least:
            model.cp.add(start >= model.task_of[last[least - 1]].end)
        for j in range(n - 1):
            w = needed(n, j)
            if w > j:
                model.cp.add(start >= model.task_of[first[j]].end)
            elif w > least:
                model.cp.add_bool_or([ended(first[j], forward), ended(last[w - 1], forward)])


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
