"""The model: its variables, and the parts that state its inequalities."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from explorer.core.problem import Problem
from solvers.model.communication import (
    few_at_once,
    first_come_first_served,
    gradients_before_step,
    gradients_before_sync,
    sent_when_ready,
    syncs_in_turn,
    transfers_and_syncs_in_turn,
)
from solvers.model.known import within_windows
from solvers.model.memory import room_for_forwards, within_limit
from solvers.model.objective import measure
from solvers.model.precedence import inputs_made_here, inputs_sent
from solvers.model.resources import device_exclusive, link_exclusive
from solvers.model.symmetry import identical_in_order
from solvers.model.variables import Model, declare
from solvers.scope import Scope

Part = Callable[[Model], None]
"""Adds the rows of the inequality that its docstring states; reads variables, never another part's rows."""

REDUNDANT: tuple[Part, ...] = (link_exclusive, identical_in_order, room_for_forwards, within_windows)
"""Parts that change how long a proof takes, not what is proved once the order is chosen or pinned."""

PARTS: tuple[Part, ...] = (
    inputs_made_here,
    inputs_sent,
    device_exclusive,
    sent_when_ready,
    first_come_first_served,
    few_at_once,
    gradients_before_sync,
    syncs_in_turn,
    transfers_and_syncs_in_turn,
    gradients_before_step,
    within_limit,
    *REDUNDANT,
    measure,
)
"""All of them."""


def build(problem: Problem, scope: Scope, parts: Iterable[Part] = PARTS) -> Model:
    """The model of a problem within a scope.

    Parameters
    ----------
    problem, scope
        Of the same placement.
    parts
        Which inequalities to state.

    Raises
    ------
    UsageError
        If problem and placement differ in size.
    """
    model = declare(problem, scope)
    for part in parts:
        part(model)
    return model
