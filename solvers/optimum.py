"""The best order on a placement: seeded, bounded, solved, and evaluated again."""

from __future__ import annotations

import math

from explorer.core.errors import Disagreement, UsageError
from explorer.core.op import Entry, Kind
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.core.units import as_number
from explorer.evaluation.longest_path import evaluate as longest_path
from explorer.evaluation.memory import fits, peaks, static
from solvers.bounds import Bound
from solvers.incumbent import Refuted, measured
from solvers.model import build
from solvers.outcome import Found, Infeasible, Outcome, Proved, Unknown
from solvers.relaxation import bounds
from solvers.scope import Objective, first_starts, searching, serves_in_turn
from solvers.solve import Watch, solve
from solvers.space import limited_stash, room
from solvers.work import all_ops, owed_syncs


def optimum(
    problem: Problem,
    placement: Placement,
    *,
    split: bool,
    seed_schedule: Schedule | None = None,
    bound: Bound | None = None,
    objective: Objective = Objective.MAKESPAN,
    time_limit: float = math.inf,
    workers: int = 1,
    seed: int = 0,
    watch: Watch | None = None,
) -> Outcome:
    """Search all orders of a placement's ops with CP-SAT alone.

    Parameters
    ----------
    problem, placement
        Of equal sizes; the problem's memory limit is kept.
    split
        Whether the backward is split into I and W.
    seed_schedule
        A known schedule of the same ops that fits the memory limit; one microbatch after the other by default. It is
        the hint where its identical microbatches run in order.
    bound
        That is known; the greatest of `solvers.relaxation.bounds` by default.
    objective
        What is made as small as possible.
    time_limit
        Seconds.
    workers, seed, watch
        See `solvers.solve.solve`.

    Returns
    -------
    Outcome
        Its timeline is the earliest of its order. Where waiting can help (see `waiting_can_help`), the model's optimum
        may be one that no earliest timeline reaches; then the outcome is Found, with that optimum as the bound.

    Raises
    ------
    UsageError
        If the seed runs other ops or does not fit the memory limit.
    Disagreement
        If the solver's order, evaluated again, does not give what the solver said.
    """
    known = one_by_one(placement, split) if seed_schedule is None else seed_schedule
    if seed_schedule is None:
        reason = too_little_memory(known, problem)
        if reason is not None:
            return Infeasible(reason)
    _require_seed(known, problem, placement, split)
    best = longest_path(known, problem)
    if bound is None:
        bound = max(bounds(problem, placement, split, objective), key=lambda one: one.ticks)
    if measured(best, objective) <= bound.ticks:
        return Proved(measured(best, objective), best)
    scope = searching(
        problem, placement, split=split, objective=objective, horizon=_horizon(best, problem, objective),
        floor=bound.ticks,
    )  # fmt: skip
    model = build(problem, scope)
    outcome = solve(model, time_limit=time_limit, workers=workers, seed=seed, hint=best, watch=watch)
    match outcome:
        case Proved() | Found():
            return _better(evaluated_again(outcome, problem, objective), best, objective)
        case Unknown():
            return Found(measured(best, objective), min(outcome.bound, measured(best, objective)), best)
        case Infeasible():
            raise Disagreement(f"CP-SAT finds nothing as good as a schedule that is known: {outcome.reason}")


def _horizon(best: Timeline, problem: Problem, objective: Objective) -> int | None:
    """Ticks by which everything is done in some timeline that is as good as a known one; None if that is not known."""
    if objective is Objective.MAKESPAN:
        return best.makespan
    starts = first_starts(problem, best.schedule.placement)
    return max(starts) + measured(best, objective) if starts else None


def one_by_one(placement: Placement, split: bool) -> Schedule:
    """One microbatch after the other: no order holds less memory."""
    orders: list[list[Entry]] = [[] for _ in range(placement.devices)]
    for op in all_ops(placement, split):
        orders[placement.route(op.microbatch)[op.stage].device].append(op)
    return Schedule.from_orders(placement, orders)


def too_little_memory(schedule: Schedule, problem: Problem) -> str | None:
    """Why no order fits the memory limit, given the schedule `one_by_one`; None if that one fits.

    Every order holds all of a microbatch's activations of a device before the first of them is freed, and one
    microbatch after the other holds no more: what that takes is the smallest feasible limit.
    """
    limit, placement = problem.memory_limit, schedule.placement
    spaces = room(problem, placement.resident)
    if spaces is None or limit is None:
        return None
    stash = limited_stash(problem, limit)
    needed = peaks(schedule, problem, stash)
    resting = static(schedule, stash) if limit.in_bytes else 0 * needed
    short = [device for device, space in enumerate(spaces) if needed[device] > space]
    if not short:
        return None
    device, whole = short[0], needed + resting
    least = as_number(stash.unit * int(whole.max()))
    unit = " bytes" if limit.in_bytes else ""
    takes, leaves = (as_number(stash.unit * int(value)) for value in (needed[device], max(0, spaces[device])))
    return (
        f"on device {device} one microbatch's activations take {takes}{unit}, but the memory limit {limit.text} leaves "
        f"{leaves}{unit} for them; the smallest feasible limit is {least}{unit}"
    )


def waiting_can_help(problem: Problem, placement: Placement, objective: Objective) -> bool:
    """Whether starting something later than possible may improve the objective of an order.

    A device that starts later may have a shorter span, unless the model states its first start. And where requests of
    several devices are served in order of readiness (shared links, gradient synchronisations), a later request may let
    a more urgent one pass.
    """
    later_start = objective is Objective.SPAN and not first_starts(problem, placement)
    return later_start or serves_in_turn(problem) or len(owed_syncs(problem, placement)) > 1


def evaluated_again(outcome: Proved | Found, problem: Problem, objective: Objective) -> Proved | Found:
    """The outcome with the earliest timeline of its order, as the longest-path evaluator gives it.

    Raises
    ------
    Refuted
        If it differs from what the solver said, or passes the memory limit.
    """
    schedule = outcome.timeline.schedule
    timeline = longest_path(schedule, problem)
    ticks = measured(timeline, objective)
    if not fits(schedule, problem):
        raise Refuted(f"CP-SAT's order of {ticks} ticks passes the memory limit", outcome.timeline, timeline)
    bound = outcome.ticks if isinstance(outcome, Proved) else outcome.bound
    if ticks < bound or (ticks > outcome.ticks and not waiting_can_help(problem, schedule.placement, objective)):
        raise Refuted(
            f"CP-SAT gives its order {outcome.ticks} ticks (and bounds all by {bound}), the longest path {ticks}",
            outcome.timeline,
            timeline,
        )
    return Proved(ticks, timeline) if ticks == bound else Found(ticks, bound, timeline)


def _better(outcome: Proved | Found, known: Timeline, objective: Objective) -> Outcome:
    """The outcome, or the known timeline where it is better."""
    ticks = measured(known, objective)
    if isinstance(outcome, Proved) or outcome.ticks <= ticks:
        return outcome
    return Proved(ticks, known) if ticks == outcome.bound else Found(ticks, outcome.bound, known)


def _require_seed(schedule: Schedule, problem: Problem, placement: Placement, split: bool) -> None:
    if schedule.placement != placement:
        raise UsageError("the seed schedule has another placement")
    if schedule.overlaps or set(schedule.kind.tolist()) & ({Kind.B} if split else {Kind.I, Kind.W}):
        raise UsageError(
            f"the seed schedule must have a {'split' if split else 'fused'} backward and no overlapped pairs"
        )
    if not fits(schedule, problem):
        raise UsageError("the seed schedule does not fit the memory limit")
