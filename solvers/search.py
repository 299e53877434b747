"""The whole search: seeds, bounds, annealing, CP-SAT. There is always an answer, at once; it only improves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from explorer.core.errors import Inapplicable
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from solvers.bounds import Bound, best_bound, span_bound
from solvers.crossing import crossings
from solvers.incumbent import SEEDS, Incumbent, Progress, Watch
from solvers.optimum import one_by_one, optimum, too_little_memory
from solvers.orders.known import annealing, followed, listed
from solvers.outcome import Found, Infeasible, Proved, Unknown
from solvers.pace import entering, entering_edges
from solvers.refute import Heed, refute
from solvers.relaxation import makespans, spans
from solvers.scope import Objective
from solvers.shop import Shop
from solvers.stretch import short_case, stretched
from solvers.windows import span_windows, windows

ANNEAL_FROM = 150
"""Ops from which annealing is worth loading its compiled loop."""

ANNEAL_UP_TO = 20_000
"""Ops up to which annealing brings anything."""

STRETCH_FROM = 2000
"""Ops from which a schedule is first made from a shorter one."""

SHORT = 0.4
"""The part of the time that the shorter case gets."""

PACED, PACED_OPS, PACE_SHARE = 24, 1300, 0.3
"""How many microbatches the pace is proved for, with how many ops at most, and in which part of the time left."""

SOLVE_UP_TO = 6000
"""Ops up to which CP-SAT gets anywhere."""

HEATS, ROUND = (1.0, 0.3, 0.6), (50_000, 200_000)
"""First temperatures of successive short rounds of annealing, and the moves of the first and of the longest."""

SLOW_HEATS, SLOW_MOVES, OP_MOVES_A_SECOND = (0.15, 0.08), 4_000_000, 700_000_000
"""First temperatures of slow rounds, and their moves where time is no limit.

Where it is, they get as many as a machine makes that tries so many moves a second, times the ops. So the same time
limit brings the same moves; a slower machine ends before it has cooled down.
"""

SLOW_ABOVE = 200
"""A gap smaller than one in so many is left to CP-SAT."""

SHORT_SHARE, SLOW_SHARE = 0.1, 0.3
"""The part of the time left that short rounds of annealing may take, and of the whole time that slow ones may."""

REFUTE_SHARE = 0.55
"""The part of the time left in which CP-SAT refutes horizons before it searches under the best."""

Named = tuple[str, Schedule]
"""A known schedule and where it comes from."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a search found.

    Parameters
    ----------
    outcome
        Proved, found with a bound, or infeasible.
    bound
        The greatest bound, and what it rests on.
    seeded_by, found_by
        The best seed, and what found the schedule that is returned.
    seconds
        How long it took.
    interrupted
        Whether Ctrl-C ended it.
    """

    outcome: Proved | Found | Infeasible
    bound: Bound | None
    seeded_by: str
    found_by: str
    seconds: float
    interrupted: bool


def search(
    problem: Problem,
    placement: Placement,
    *,
    split: bool,
    known: Iterable[Named] = (),
    objective: Objective = Objective.MAKESPAN,
    time_limit: float = math.inf,
    workers: int = 1,
    seed: int = 0,
    watch: Watch = lambda progress: None,
) -> Answer:
    """Find the best order of a placement's ops, or one with a bound.

    Parameters
    ----------
    problem, placement
        Of equal sizes; the problem's memory limit is kept.
    split
        Whether every backward is split into I and W.
    known
        Named schedules; those of other placements or that do not fit the memory limit serve as far as they can.
    objective
        What is made as small as possible.
    time_limit
        Seconds; seeds and bounds are found in any case.
    workers, seed
        Threads of CP-SAT, and the seed of all random choices. Repeatable with one worker, if time is no limit.
    watch
        Is told of progress.

    Raises
    ------
    Refuted, Disagreement
        If checker, evaluator and solver do not agree.
    """
    first = one_by_one(placement, split)
    reason = too_little_memory(first, problem)
    if reason is not None:
        return Answer(Infeasible(reason), None, "", "", 0.0, False)
    start = best_bound if objective is Objective.MAKESPAN else span_bound
    best = Incumbent(problem, objective, first, "one microbatch at a time", start(problem, placement, split), watch)
    interrupted = False
    try:
        shop = Shop.of(problem, placement, split)
        _seeds(best, shop, known)
        _bounds(best, shop, time_limit / 2)
        if not best.proved and len(shop) >= STRETCH_FROM:
            _stretch(best, shop, time_limit, workers, seed)
        if not best.proved and len(shop) >= STRETCH_FROM:
            _pace(best, shop, time_limit, seed)
        seeded = best.timeline.schedule
        if not best.proved and ANNEAL_FROM <= len(shop) <= ANNEAL_UP_TO:
            _anneal(best, shop, best.seconds + (time_limit - best.seconds) * SHORT_SHARE, seed)
        if not best.proved and len(shop) <= SOLVE_UP_TO and time_limit < math.inf:
            interrupted = _refute(best, split, time_limit, workers, seed)
        if not best.proved and not interrupted and ANNEAL_FROM <= len(shop) <= ANNEAL_UP_TO:
            _anneal_slowly(best, shop, seeded, time_limit, seed)
        if not best.proved and not interrupted and len(shop) <= SOLVE_UP_TO:
            interrupted = _solve(best, split, time_limit, workers, seed)
        best.require_checked()
    except KeyboardInterrupt:
        interrupted = True
        best.require_checked()
    outcome = (
        Proved(best.ticks, best.timeline) if best.proved else Found(best.ticks, best.bound.ticks, best.timeline)
    )  # fmt: skip
    return Answer(outcome, best.bound, best.seeded_by, best.found_by, best.seconds, interrupted)


def _seeds(best: Incumbent, shop: Shop, known: Iterable[Named]) -> None:
    """Every named schedule as it is, or followed as far as the memory allows; then list schedules."""
    best.tell(SEEDS)
    for name, schedule in known:
        orders = shop.conformed(schedule)
        if orders is None:
            continue
        best.offer(shop.schedule(orders), name)
        if best.proved:
            return
        within = followed(shop, orders)
        if within is not None:
            best.offer(within, f"{name}, as far as memory allows")
    for name, schedule in listed(shop):
        if best.proved:
            return
        best.offer(schedule, name)


def _bounds(best: Incumbent, shop: Shop, until: float) -> None:
    """What heads and tails prove; for spans, device by device until time is up."""
    if best.proved:
        return
    best.tell("bounds")
    if best.objective is Objective.MAKESPAN:
        heads_and_tails = windows(shop)
        for bound in makespans(heads_and_tails):
            best.raise_bound(bound)
        if best.proved:
            return
        for bound in crossings(heads_and_tails):
            best.raise_bound(bound)
        return
    for bound in spans(span_windows(shop)):
        best.raise_bound(bound)
        if best.seconds > until:
            return


def _pace(best: Incumbent, shop: Shop, time_limit: float, seed: int) -> None:
    """Prove how fast few microbatches can enter, and what follows for all."""
    few = min(PACED, PACED_OPS // len(shop.classes), shop.placement.microbatches // 2)
    if best.objective is Objective.SPAN or few < 2:
        return
    best.tell("proving the pace of few microbatches")
    left = (time_limit - best.seconds) * PACE_SHARE
    ticks = entering(best.problem, shop.placement, shop.split, few, left, seed)
    if ticks:
        edges = entering_edges(shop, few, ticks)
        reason = f"pace proved for {few} microbatches (CP-SAT), then "
        for bound in makespans(windows(shop, more=edges)):
            best.raise_bound(Bound(bound.ticks, reason + bound.reason))


def _stretch(best: Incumbent, shop: Shop, time_limit: float, workers: int, seed: int) -> None:
    """Search a case of two to three microbatches a device, and repeat what repeats in its best schedule."""
    devices, microbatches = shop.placement.devices, shop.placement.microbatches
    step = 8 if microbatches > 32 else 2
    short = microbatches % step + step * max(1, round(2.5 * devices / step))
    case = short_case(best.problem, shop.placement, short) if 2 * short <= microbatches else None
    if case is None:
        return
    best.tell("a shorter case")
    answer = search(
        *case, split=shop.split, objective=best.objective, time_limit=(time_limit - best.seconds) * SHORT,
        workers=workers, seed=seed,
    )  # fmt: skip
    if isinstance(answer.outcome, Infeasible):
        return
    best.tell("repeating")
    for schedule in stretched(shop, Shop.of(*case, shop.split), answer.outcome.timeline):
        best.offer(schedule, f"repeating a block of the best for {short} microbatches")
    if answer.interrupted:
        raise KeyboardInterrupt


def _anneal(best: Incumbent, shop: Shop, until: float, seed: int) -> None:
    """Short rounds of annealing from the best so far, until time is up or three rounds bring nothing."""
    best.tell("annealing")
    idle, turn = 0, 0
    moves, most = ROUND
    while idle < len(HEATS) and best.seconds < until and not best.proved:
        better = _cool(best, shop, best.timeline.schedule, moves, HEATS[turn % len(HEATS)], until, seed + turn)
        idle = 0 if better else idle + 1
        turn += 1
        moves = min(moves * 2, most)


def _anneal_slowly(best: Incumbent, shop: Shop, start: Schedule, time_limit: float, seed: int) -> None:
    """Slow rounds from where the short ones began, unless the gap is small; their best need not be near the best."""
    if best.ticks - best.bound.ticks < best.ticks // SLOW_ABOVE:
        return
    best.tell("annealing slowly")
    seconds = time_limit * SLOW_SHARE / len(SLOW_HEATS)
    moves = SLOW_MOVES if seconds == math.inf else math.ceil(seconds * OP_MOVES_A_SECOND / len(shop))
    until = min(best.seconds + time_limit * SLOW_SHARE, time_limit)
    for turn, heat in enumerate(SLOW_HEATS):
        if best.seconds < until and not best.proved:
            _cool(best, shop, start, moves, heat, until, seed + turn)


def _cool(best: Incumbent, shop: Shop, start: Schedule, moves: int, heat: float, until: float, seed: int) -> bool:
    """One round of annealing, as far as time allows; whether it brought something better."""
    orders = shop.conformed(start)
    assert orders is not None, "the schedule is one of this placement"
    better = False
    spans = best.objective is Objective.SPAN
    for found in annealing(shop, orders, moves, heat=heat, spans=spans, seed=seed):
        better |= found is not None and best.offer(found, "annealing")
        if best.proved or best.seconds > until:
            break
    return better


def _refute(best: Incumbent, split: bool, time_limit: float, workers: int, seed: int) -> bool:
    """Let CP-SAT refute horizons below the best; whether it was interrupted."""
    best.tell("refuting shorter horizons")
    follow = Heed()
    until = best.seconds + (time_limit - best.seconds) * REFUTE_SHARE
    try:
        refute(best, split, until, workers=workers, seed=seed, watch=follow)
    except Inapplicable:  # the model does not hold ops without length under a limit; what is known stands
        return False
    return follow.stopped


def _solve(best: Incumbent, split: bool, time_limit: float, workers: int, seed: int) -> bool:
    """Let CP-SAT improve or prove; whether it was interrupted."""
    left = time_limit - best.seconds
    if left <= 0:
        return False
    best.tell("CP-SAT")
    follow = _Follow(best)
    placement = best.timeline.schedule.placement
    try:
        outcome = optimum(
            best.problem, placement, split=split, seed_schedule=best.timeline.schedule, bound=best.bound,
            objective=best.objective, time_limit=left, workers=workers, seed=seed, watch=follow,
        )  # fmt: skip
    except Inapplicable:  # the model does not hold ops without length under a limit; what is known stands
        return False
    match outcome:
        case Proved(ticks, timeline):
            best.offer(timeline.schedule, "CP-SAT")
            best.raise_bound(Bound(ticks, "exhausted search (CP-SAT)"))
        case Found(_, bound, timeline):
            best.offer(timeline.schedule, "CP-SAT")
            best.raise_bound(Bound(bound, "search (CP-SAT)"))
        case Infeasible() | Unknown():
            raise AssertionError("with a seed there is a schedule")
    return follow.stopped


class _Follow:
    """Passes what CP-SAT reports on to whoever watches; the incumbent itself changes only when it ends."""

    def __init__(self, best: Incumbent) -> None:
        self.best = best
        self.ticks = best.ticks
        self.floor = best.bound.ticks
        self.stopped = False

    def solution(self, ticks: int) -> None:
        """A better solution is there."""
        self.ticks = min(self.ticks, ticks)
        self._tell()

    def bound(self, ticks: int) -> None:
        """A better bound is there."""
        self.floor = max(self.floor, ticks)
        self._tell()

    def interrupted(self) -> None:
        """Ctrl-C has ended the search."""
        self.stopped = True

    def _tell(self) -> None:
        best = self.best
        best.pass_on(Progress(best.seconds, self.ticks, min(self.floor, self.ticks), best.doing))
