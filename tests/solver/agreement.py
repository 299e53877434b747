"""Whether all ways to the optimum of a tiny case agree: every order, the plain model, the search's own, the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from explorer.core.placement import Placement
from explorer.core.problem import Problem
from solvers.model import PARTS, REDUNDANT, build
from solvers.optimum import waiting_can_help
from solvers.outcome import Infeasible, Proved
from solvers.relaxation import bounds
from solvers.scope import Objective, searching
from solvers.solve import solve
from tests.solver.brute import Run


@dataclass(frozen=True)
class Comparison:
    """What a case comes to.

    Parameters
    ----------
    feasible
        Whether some order keeps the memory limit.
    bracketed
        Whether waiting can help, so that the models' optimum may be below every earliest timeline.
    wrong
        What does not agree; empty if all does.
    """

    feasible: bool
    bracketed: bool
    wrong: tuple[str, ...]


def model_optimum(
    problem: Problem, placement: Placement, split: bool, objective: Objective, *, plain: bool
) -> int | None:
    """The optimum that CP-SAT proves, without a seed or a bound; None if it proves that there is none.

    The plain model has no symmetry breaking, heads and tails, or precedences that follow from the memory limit.
    """
    scope = searching(problem, placement, split=split, objective=objective)
    if plain:
        scope = replace(scope, identical_in_order=False, windows=())
    outcome = solve(build(problem, scope, [part for part in PARTS if not plain or part not in REDUNDANT]))
    if isinstance(outcome, Infeasible):
        return None
    if not isinstance(outcome, Proved):
        raise TypeError(f"without a time limit CP-SAT proves, got {outcome}")
    return outcome.ticks


def kept(problem: Problem, runs: Sequence[Run]) -> list[Run]:
    """The runs within the memory limit."""
    if problem.memory_limit is None:
        return list(runs)
    caps = problem.memory_limit.per_device
    return [run for run in runs if all(peak <= cap for peak, cap in zip(run.peaks, caps, strict=True))]


def compare(
    placement: Placement, problem: Problem, split: bool, objective: Objective, runs: Sequence[Run]
) -> Comparison:
    """Hold both models and all bounds against the best of all orders, which are ``runs``."""
    values = [run.makespan if objective is Objective.MAKESPAN else run.span for run in kept(problem, runs)]
    best = min(values, default=None)
    plain = model_optimum(problem, placement, split, objective, plain=True)
    ours = model_optimum(problem, placement, split, objective, plain=False)
    bracketed = waiting_can_help(problem, placement, objective)
    wrong = []
    if plain != ours:
        wrong.append(f"the plain model proves {plain}, the one with symmetry {ours}")
    if best is None or plain is None:
        if best != plain:
            wrong.append(f"the best of all orders is {best}, the plain model proves {plain}")
        return Comparison(best is not None, bracketed, tuple(wrong))
    if not (plain <= best if bracketed else plain == best):
        wrong.append(f"the best of all orders is {best}, the plain model proves {plain}")
    wrong += [
        f"a bound of {bound.ticks} is over the best of all orders, {best}: {bound.reason}"
        for bound in bounds(problem, placement, split, objective)
        if bound.ticks > best
    ]
    return Comparison(True, bracketed, tuple(wrong))
