"""What the solver may choose, and within which bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from explorer.core.errors import Inapplicable, Inexact, UsageError
from explorer.core.op import Entry, Kind, Op
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.units import HORIZON
from solvers.shop import Shop
from solvers.windows import Windows, span_windows, windows
from solvers.work import Costs, all_ops, owed_syncs


class Objective(StrEnum):
    """What is made as small as possible.

    ============  ==========================================================================
    ``makespan``  the end of the last op, of the last gradient synchronisation and of the last optimiser step
    ``span``      the longest time between a device's first start and its last end
    ============  ==========================================================================
    """

    MAKESPAN = "makespan"
    SPAN = "span"


@dataclass(frozen=True)
class Scope:
    """What the solver may choose.

    Parameters
    ----------
    candidates
        The placements to choose from. One, at present: a fixed placement is a scope with one candidate.
    entries
        For each device, what runs there, overlapped pairs as such, in an order that respects dependencies. It means
        nothing, but where ops that take no time start together.
    horizon
        Ticks by which everything is done.
    floor
        A proven lower bound of the objective, in ticks.
    objective
        What is made as small as possible.
    free_order
        Whether the solver chooses the devices' orders. Where it does not, pins state them, and with them the order in
        which each device's sends are served.
    identical_in_order
        Whether microbatches that are alike (`alike`) run in the order of their numbers at every stage. This loses no
        optimum: exchanging the i-th op of one stage and kind to start with that of microbatch i keeps every
        dependency (order statistics), every link's service (each sender's links follow its order) and every device's
        memory (which counts only). It needs a free order without overlapped pairs, which name their microbatches.
    windows
        Heads and tails that hold in some best order: one from time 0 to the makespan, or one for each device's span.

    Raises
    ------
    UsageError
        If there is no candidate, or identical microbatches are to be put in order where that is not safe.
    Inapplicable
        If there are several candidates.
    Inexact
        If the horizon passes 2^42 ticks.
    """

    candidates: tuple[Placement, ...]
    entries: tuple[tuple[Entry, ...], ...]
    horizon: int
    floor: int = 0
    objective: Objective = Objective.MAKESPAN
    free_order: bool = True
    identical_in_order: bool = False
    windows: tuple[Windows, ...] = ()

    def __post_init__(self) -> None:
        if not self.candidates:
            raise UsageError("a scope needs at least one placement")
        if len(self.candidates) > 1:
            raise Inapplicable(f"the model chooses within one placement, got {len(self.candidates)} candidates")
        paired = any(not isinstance(entry, Op) for device in self.entries for entry in device)
        if self.identical_in_order and (paired or not self.free_order):
            raise UsageError("identical microbatches can be put in order only if the order is free and no ops overlap")
        if self.horizon > HORIZON:
            raise Inexact(f"all ops one after the other take {self.horizon} ticks, over 2^42; use a coarser tick")

    @property
    def placement(self) -> Placement:
        """The only candidate."""
        return self.candidates[0]


def alike(problem: Problem, placement: Placement, op: Op) -> tuple[int, int, int, int]:
    """What an op shares with those that differ from it by an identical microbatch: (route, profile, stage, kind)."""
    return placement.route_of[op.microbatch], int(problem.profile_of[op.microbatch]), op.stage, int(op.kind)


def first_starts(problem: Problem, placement: Placement) -> tuple[int, ...]:
    """For each device when it first starts, in all orders worth a search; empty where orders may differ in it.

    With one route, which visits all devices before it comes back to any, and identical microbatches in order, a
    device's first op is the forward of microbatch 0 at the first stage there: all else on the device needs it. So it
    starts when this microbatch gets there.
    """
    route = placement.routes[0][: placement.devices]
    alike = len(placement.routes) == 1 and len(set(problem.profile_of.tolist())) == 1
    if not alike or {hop.device for hop in route} != set(range(placement.devices)):
        return ()
    costs, now = Costs(problem, placement), 0
    starts = [0] * placement.devices
    for stage, hop in enumerate(route):
        starts[hop.device] = now
        occupancy = costs.occupancy(Op(stage, Kind.F, 0))
        now += sum(send.offset + send.delay for send in occupancy.sends)
    return tuple(starts)


def first_op(placement: Placement, device: int) -> Op:
    """The op with which a device starts, where `first_starts` knows it."""
    return Op([hop.device for hop in placement.routes[0]].index(device), Kind.F, 0)


def serves_in_turn(problem: Problem) -> bool:
    """Whether several devices send over one link, or several pairs at a time, so that who is ready first goes first.

    Or transfers and gradient all-reduces.
    """
    several = any(one.servers > 1 or len({source for source, _ in one.pairs}) > 1 for one in problem.network.resources)
    return several or problem.syncs_compete


def searching(
    problem: Problem,
    placement: Placement,
    *,
    split: bool,
    objective: Objective = Objective.MAKESPAN,
    horizon: int | None = None,
    floor: int = 0,
    known: tuple[Windows, ...] | None = None,
) -> Scope:
    """The scope in which the order is free.

    Parameters
    ----------
    split
        Whether the backward is split into I and W.
    horizon
        Ticks of a known schedule; all ops and transfers one after the other by default.
    floor
        A proven lower bound of the objective.
    known
        Heads and tails for the objective; found here by default. Where several devices share a link, identical
        microbatches are left in any order, and heads and tails, which rest on it, are left out.
    """
    ops: list[list[Entry]] = [[] for _ in range(placement.devices)]
    costs = Costs(problem, placement)
    for op in all_ops(placement, split):
        ops[costs.device(op)].append(op)
    entries = tuple(map(tuple, ops))
    limit = serial_horizon(costs, entries) if horizon is None else horizon
    in_order = not serves_in_turn(problem)
    if known is None and in_order:
        shop = Shop.of(problem, placement, split)
        known = (windows(shop),) if objective is Objective.MAKESPAN else tuple(span_windows(shop))
    return Scope((placement,), entries, limit, floor, objective, True, in_order, known if in_order and known else ())


def evaluating(schedule: Schedule, problem: Problem, *, horizon: int | None = None) -> Scope:
    """The scope of a named schedule: exactly its ops and pairs, whose order pins will state.

    Raises
    ------
    Incomplete
        If an op is missing, repeated or on the wrong device.
    """
    schedule.require_complete()
    entries = tuple(map(tuple, schedule.orders()))
    limit = serial_horizon(Costs(problem, schedule.placement), entries) if horizon is None else horizon
    return Scope((schedule.placement,), entries, limit, free_order=False)


def serial_horizon(costs: Costs, entries: Iterable[Iterable[Entry]]) -> int:
    """Ticks that no earliest timeline of these entries exceeds.

    Until the last optimiser step starts some occupancy, transfer or synchronisation is always in progress, so their sum
    and that of the longest step bound the makespan.
    """
    occupancies = [costs.occupancy(entry) for device in entries for entry in device]
    syncs = owed_syncs(costs.problem, costs.placement)
    return (
        sum(o.busy + sum(max(send.delay, send.hold) for send in o.sends) for o in occupancies)
        + sum(int(costs.problem.sync[chunk]) for chunk in syncs)
        + max(costs.problem.steps)
    )  # fmt: skip
