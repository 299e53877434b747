"""What a search knows so far: the best timeline, and the greatest bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from explorer.core.errors import Disagreement
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.checker import verify
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import fits
from solvers.bounds import Bound
from solvers.scope import Objective


@dataclass(frozen=True)
class Progress:
    """Where a search stands.

    Parameters
    ----------
    seconds
        Since its start.
    best, bound
        Ticks of the best schedule so far, and below which none is.
    doing
        What is being tried.
    """

    seconds: float
    best: int
    bound: int
    doing: str


SEEDS = "seeds"
"""What a search does first."""

Watch = Callable[[Progress], None]
"""Is told of progress; may raise KeyboardInterrupt to end the search."""


class Refuted(Disagreement):
    """Checker, evaluator and solver do not agree on a schedule.

    Parameters
    ----------
    message
        On what.
    timelines
        As each of them has it.
    """

    def __init__(self, message: str, *timelines: Timeline) -> None:
        self.timelines = timelines
        super().__init__(message)


def measured(timeline: Timeline, objective: Objective) -> int:
    """The objective of a timeline, in ticks."""
    match objective:
        case Objective.MAKESPAN:
            return timeline.makespan
        case Objective.SPAN:
            return int(timeline.spans.max())


class Incumbent:
    """The best so far.

    Parameters
    ----------
    problem, objective
        What is searched for.
    first
        A schedule that fits the memory limit.
    name
        Where it comes from.
    bound
        That is known from the start.
    watch
        Is told whenever something changes.
    """

    def __init__(
        self, problem: Problem, objective: Objective, first: Schedule, name: str, bound: Bound, watch: Watch
    ) -> None:
        self.problem = problem
        self.objective = objective
        self.started = time.monotonic()
        self.timeline = evaluate(first, problem)
        self.seeded_by = name
        self.found_by = name
        self.bound = bound
        self.doing = SEEDS
        self._watch = watch

    @property
    def ticks(self) -> int:
        """The best objective."""
        return measured(self.timeline, self.objective)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.started

    @property
    def proved(self) -> bool:
        """Whether nothing better is left to find."""
        return self.ticks <= self.bound.ticks

    def offer(self, schedule: Schedule, name: str) -> bool:
        """Take a schedule if it fits the memory limit and is better; say whether."""
        if not fits(schedule, self.problem):
            return False
        timeline = evaluate(schedule, self.problem)
        better = measured(timeline, self.objective) < self.ticks
        if better:
            self.timeline, self.found_by = timeline, name
            if self.doing == SEEDS:
                self.seeded_by = name
            self.tell()
        return better

    def raise_bound(self, bound: Bound) -> None:
        """Take a bound if it is greater."""
        if bound.ticks > self.bound.ticks:
            self.bound = bound
            self.tell()

    def tell(self, doing: str | None = None) -> None:
        """Tell who watches."""
        self.doing = doing or self.doing
        self.pass_on(Progress(self.seconds, self.ticks, min(self.bound.ticks, self.ticks), self.doing))

    def pass_on(self, progress: Progress) -> None:
        """Tell who watches of progress within a step."""
        self._watch(progress)

    def require_checked(self) -> None:
        """Have the independent checker look at the best timeline, and hold the bound against it.

        Raises
        ------
        Refuted
            If the checker finds anything, or the timeline is better than the bound allows: then the bound is wrong.
        """
        found = verify(self.timeline, self.problem)
        if found:
            raise Refuted(f"the checker refutes the schedule found: {found[0].where} {found[0].message}", self.timeline)
        if self.ticks < self.bound.ticks:
            raise Refuted(
                f"the schedule found takes {self.ticks} ticks and refutes the bound of {self.bound.ticks}: "
                f"{self.bound.reason}",
                self.timeline,
            )
