"""Solving: the free model, and the same model with a named schedule pinned into it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Protocol

from ortools.sat.python import cp_model

from explorer.core.errors import Disagreement, Inapplicable
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.longest_path import evaluate as longest_path
from solvers.model import Model, build, pin_order, pin_times
from solvers.outcome import Found, Infeasible, Outcome, Proved, Unknown
from solvers.reading import chosen_order, difference, timeline_of
from solvers.scope import evaluating
from solvers.tight import loose
from solvers.work import every_op

PROBE_UP_TO = 700
"""Tasks from which on probing in presolve costs more than it brings."""

POLL = 0.1
"""Seconds between looks at a search that runs in a thread."""


def solve(
    model: Model,
    *,
    time_limit: float = math.inf,
    workers: int = 1,
    seed: int = 0,
    hint: Timeline | None = None,
    watch: Watch | None = None,
    precedences: bool = True,
) -> Outcome:
    """Make the model's objective as small as possible.

    Parameters
    ----------
    model
        As built, with pins or without.
    time_limit
        Seconds.
    workers
        Threads; more than there are cores slow each other down. One makes the search repeatable.
    seed
        Of the search's random choices.
    hint
        A known solution to start from.
    watch
        Is told of better solutions and bounds, and of an interruption.
    precedences
        Whether all that must precede an op on its device is looked at together. With it, schedules are found sooner,
        and what is easy is refuted sooner; what is hard is refuted several times as fast without.

    Returns
    -------
    Outcome
        With the solver's own times, which need not be the earliest of its order.
    """
    if hint is not None:
        give_hint(model, hint)
    solver = _solver(model, time_limit, workers, seed, precedences)
    status = _run(solver, model, watch)
    bound = max(model.scope.floor, math.ceil(solver.best_objective_bound - 1e-6))
    match status:
        case cp_model.OPTIMAL:
            return Proved(solver.value(model.value), _timeline(model, solver))
        case cp_model.FEASIBLE:
            return Found(solver.value(model.value), bound, _timeline(model, solver))
        case cp_model.INFEASIBLE:
            return Infeasible(_why(model))
        case cp_model.UNKNOWN:
            return Unknown(bound)
        case _:
            raise ValueError(f"the model is not valid: {model.cp.validate()}")


class Watch(Protocol):
    """Who follows a solve; called from other threads."""

    def solution(self, ticks: int) -> None:
        """A better solution is there."""
        ...

    def bound(self, ticks: int) -> None:
        """A better bound is there."""
        ...

    def interrupted(self) -> None:
        """Ctrl-C has ended the search; what is found so far is returned."""
        ...


class _Follow(cp_model.CpSolverSolutionCallback):
    """Passes solutions on."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._told = watch

    def on_solution_callback(self) -> None:
        """Tell the objective."""
        self._told.solution(round(self.objective_value))


def _run(solver: cp_model.CpSolver, model: Model, watch: Watch | None) -> cp_model.CpSolverStatus:
    """Solve, in a thread of its own where an interruption should not lose what is found."""
    if watch is None:
        return solver.solve(model.cp)
    solver.best_bound_callback = lambda bound: watch.bound(math.ceil(bound - 1e-6))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(solver.solve, model.cp, _Follow(watch))
        try:
            while not running.done():
                wait([running], POLL)
        except KeyboardInterrupt:
            solver.stop_search()
            watch.interrupted()
    return running.result()


def give_hint(model: Model, timeline: Timeline) -> None:
    """Start the search from a timeline of the model's ops; it replaces an earlier hint."""
    model.cp.clear_hints()  # type: ignore[no-untyped-call]
    row_of = {op: row for row, op in enumerate(every_op(timeline.schedule))}
    for task in model.all_tasks():
        model.cp.add_hint(task.start, int(timeline.start[row_of[task.occupancy.ops[0]]]))
    for transfer, sent in model.queued():
        model.cp.add_hint(sent, int(timeline.sent[row_of[transfer.send.op]]))
    for turn in model.turns:
        if turn.literal is not None and turn.one_sender:
            model.cp.add_hint(turn.literal, row_of[turn.first.send.op] < row_of[turn.second.send.op])
    starts = {sync.chunk: sync.start for sync in timeline.syncs}
    for sync in model.syncs:
        model.cp.add_hint(sync.start, starts[sync.chunk])
    begun = {update.device: update.start for update in timeline.updates}
    for step in model.steps:
        model.cp.add_hint(step.start, begun[step.device])


def evaluate(schedule: Schedule, problem: Problem) -> Timeline:
    """A named schedule as a fixed assignment: the model with its order pinned, everything as early as possible.

    The least sum of all starts is proved; of all timelines of an order only the earliest one has it. Synchronisations
    and optimiser steps, for which no op waits, follow in a second proof. A memory limit is left out: an evaluation
    reports memory, it does not limit it.

    Raises
    ------
    Incomplete
        If an op is missing, repeated or on the wrong device.
    Deadlock
        If order and dependencies form a cycle; the error names it.
    Inapplicable
        If several devices, or gradient all-reduces, send over one link: waiting can then change who is served first,
        and the least sum need not be that of the earliest timeline.
    Disagreement
        If the order has no timeline, and yet no cycle.
    """
    model = build(replace(problem, memory_limit=None), evaluating(schedule, problem))
    if problem.syncs_compete:
        raise Inapplicable(
            "this engine does not evaluate gradient all-reduces that hold links; use longest-path, which it confirms"
        )
    for name, transfers in model.links.items():
        if len({transfer.send.source for transfer in transfers}) > 1:
            raise Inapplicable(f"several devices send through {name!r}, which this engine does not evaluate")
    pin_order(model, schedule)
    starts = [task.start for task in model.all_tasks()]
    starts += [sent for _, sent in model.queued()]
    solver = _least_sum(model, schedule, starts)
    behind = [sync.start for sync in model.syncs] + [step.start for step in model.steps]
    if behind:
        for start in starts:
            model.cp.add(start == solver.value(start))
        solver = _least_sum(model, schedule, behind)
    return timeline_of(model, schedule, solver.value)


def confirm(timeline: Timeline, problem: Problem) -> None:
    """Check by the model that a timeline is the earliest one of its schedule: all times pinned, and nothing loose.

    Raises
    ------
    Disagreement
        If a time breaks the model, or something starts later than it could.
    """
    schedule = timeline.schedule
    model = build(replace(problem, memory_limit=None), evaluating(schedule, problem))
    pin_order(model, schedule)
    pin_times(model, timeline)
    model.cp.clear_objective()  # type: ignore[no-untyped-call]
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.cp_model_presolve = False
    solver.parameters.catch_sigint_signal = False
    status = solver.solve(model.cp)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise Disagreement("CP-SAT refutes the times of this timeline")
    fault = difference(timeline, timeline_of(model, schedule, solver.value)) or loose(model, timeline)
    if fault is not None:
        raise Disagreement(f"CP-SAT and this timeline disagree: {fault}")


def _least_sum(model: Model, schedule: Schedule, variables: Sequence[cp_model.IntVar]) -> cp_model.CpSolver:
    model.cp.minimize(sum(variables))
    solver = _solver(model, math.inf, 1, 0)
    if solver.solve(model.cp) != cp_model.OPTIMAL:
        longest_path(schedule, model.problem)  # names the cycle, if that is why
        raise Disagreement("CP-SAT finds no timeline of this order, the longest path does")
    return solver


def _solver(
    model: Model, time_limit: float, workers: int, seed: int, precedences: bool = True
) -> cp_model.CpSolver:  # fmt: skip
    solver = cp_model.CpSolver()
    if time_limit < math.inf:
        solver.parameters.max_time_in_seconds = time_limit
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = seed
    solver.parameters.catch_sigint_signal = False  # it would leave the process without Python's own handler
    solver.parameters.use_precedences_in_disjunctive_constraint = precedences
    if len(model.task_of) > PROBE_UP_TO:
        solver.parameters.cp_model_probing_level = 0
    return solver


def _timeline(model: Model, solver: cp_model.CpSolver) -> Timeline:
    return timeline_of(model, chosen_order(model, solver.value), solver.value)


def _why(model: Model) -> str:
    limit = model.problem.memory_limit
    within = f" within the memory limit {limit.text or limit.per_device}" if limit else ""
    return f"no order{within} is done in {model.scope.horizon} ticks"
