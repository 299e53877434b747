"""How much backwards and forwards of microbatches in flight hold each other up, wherever they cross.

While a microbatch is in flight, its forward meets the backward of each of its neighbours at some stage, and one of the
two waits there unless both come just in time. That few can do so makes round trips longer than they are alone; see
docs/optimising.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

from explorer.core.op import Kind
from solvers.bounds import Bound
from solvers.shop import Shop
from solvers.windows import Windows

WEIGHTS = ((1, 1, 1), (3, 4, 3), (1, 2, 1), (1, 4, 1), (2, 3, 4, 3, 2), (1, 2, 3, 2, 1))
"""How often each round trip counts, of microbatches k/2 apart: whichever is best depends on the costs."""

FROM_MICROBATCHES = 3
"""How many times k microbatches there must be: with fewer, the few that none crosses decide."""

EFFORT = 0.2
"""Deterministic time for each sum (seconds, about); what is proved until then counts."""


@dataclass(frozen=True)
class Crossing:
    """The round trip of a stage's microbatches, and how much longer it is for two that cross.

    Let x(m) be the start of the forward of microbatch m at the stage. Then ``x(m + flight) - x(m) >= trip``; and for
    ``c < a < c + flight`` and each later stage either ``x(c + flight) - x(a) >= behind`` (the forward of a runs there
    before the backward of c) or ``x(a + flight) - x(c) >= before`` (it runs after it).

    Parameters
    ----------
    flight
        k: how many microbatches memory lets be in flight at the stage.
    trip
        Ticks from a forward to the earliest one that its end in memory lets start.
    gap
        Ticks between two forwards of the stage, at least.
    behind, before
        For the stage and each later one.
    """

    flight: int
    trip: int
    gap: int
    behind: Sequence[int]
    before: Sequence[int]


def crossings(known: Windows) -> Iterator[Bound]:
    """Bounds of the makespan from the sums of round trips, for the stage that memory slows down most.

    Empty where microbatches differ, memory does not limit any stage, or there are fewer than three times as many
    microbatches as may be in flight.
    """
    shop = known.shop
    if len(shop.members) != 1:
        return
    count = len(shop.members[0])
    some = [
        (one.trip / one.flight, -stage, one)
        for stage in range(len(shop.placement.routes[shop.placement.route_of[0]]))
        if (one := crossing(shop, stage)) is not None and count >= FROM_MICROBATCHES * one.flight and one.flight > 1
    ]
    if not some:
        return
    _, negative, one = max(some, key=lambda found: found[:2])
    stage = -negative
    forward = next(i for i, c in enumerate(shop.classes) if c.kind is Kind.F and c.stage == stage)
    first = int(shop.first[forward])
    heads = sum(known.head[first : first + one.flight].tolist())
    tails = sum(known.tail[first + count - one.flight : first + count].tolist())
    trips = count - one.flight
    for weights in WEIGHTS:
        offsets = [i // 2 * one.flight + i % 2 * (one.flight // 2) for i in range(len(weights))]
        shifts, missed = trips - offsets[-1], offsets[-1]
        if shifts < 1:
            continue
        # What the shifts leave of a sum over all round trips counts as alone.
        whole = sum(weights)
        total = round_trips(one, offsets, weights) * shifts + whole * missed * one.trip
        ticks = math.ceil((heads + math.ceil(total / whole) + tails) / one.flight)
        yield Bound(ticks, f"forwards and backwards that cross, {one.flight} in flight at stage {stage}")


def crossing(shop: Shop, stage: int) -> Crossing | None:
    """What the memory of a stage's device and the way to the end and back come to.

    Where its space holds k forwards but not k + 1, the forward of m + k waits until I(m), or B(m), has freed
    something. If k forwards and what an I leaves do not fit either, it waits for W(m) or for I(m + 1), each of which
    comes behind I(m). If an I frees nothing, it waits for W(m).

    Returns
    -------
    Crossing or None
        None if memory holds all microbatches at the stage.
    """
    number = {(c.kind, c.stage): i for i, c in enumerate(shop.classes) if c.group == 0}
    route = shop.placement.route(shop.members[0][0])
    inner = Kind.I if shop.split else Kind.B
    forward, back = ([shop.classes[number[kind, s]] for s in range(stage, len(route))] for kind in (Kind.F, inner))
    device = forward[0].device
    earlier = [s for s in range(stage + 1) if route[s].device == device]
    together = sum(shop.classes[number[Kind.F, s]].held for s in earlier)
    space = int(shop.space[device])
    if not together or space // together >= len(shop.members[0]):
        return None
    flight = space // together
    out, home = [0], [0]
    for maker, user in pairwise(forward):
        out.append(out[-1] + (maker.busy if maker.device == user.device else user.lag))
    for user, maker in pairwise(back):
        home.append(home[-1] + (maker.busy if maker.device == user.device else user.lag))
    turn = forward[-1].busy
    release = back[0].duration
    if shop.split and len(earlier) == 1:
        last = shop.classes[number[Kind.W, stage]]
        if not back[0].freed:
            release = back[0].busy + last.duration
        elif last.freed > space - flight * together:
            release = back[0].busy + min(last.duration, back[0].duration)
    whole = out[-1] + turn + home[-1]
    return Crossing(
        flight=flight,
        trip=whole + release,
        gap=forward[0].busy,
        behind=[o + f.busy + h + release for o, f, h in zip(out, forward, home, strict=True)],
        before=[
            whole - h + b.busy + out[-1] - o + turn + home[-1] + release
            for o, b, h in zip(out, back, home, strict=True)
        ],
    )


def round_trips(one: Crossing, offsets: Sequence[int], weights: Sequence[int]) -> int:
    """The least weighted sum of ``x(m + t + flight) - x(m + t)`` over some t, whatever m, or what is proved of it.

    Parameters
    ----------
    offsets
        The t, ascending from 0, none more than ``flight`` behind the one before: so no start is later than
        the sum of all trips.
    weights
        Of each, at least 1.
    """
    alone = sum(weights) * one.trip
    most = 2 * alone
    cp = cp_model.CpModel()
    start = [cp.new_int_var(0, most, f"start[{t}]") for t in offsets]
    trip = [cp.new_int_var(one.trip, most, f"trip[{t}]") for t in offsets]
    cp.add(start[0] == 0)
    after = {t + one.flight: start[i] + trip[i] for i, t in enumerate(offsets)}
    moments = [*zip(offsets, start, strict=True), *after.items()]
    for t, early in moments:
        for u, late in moments:
            if t < u:
                cp.add(late >= early + (u - t) * one.gap)
            elif t == u and early is not late:
                cp.add(late == early)
    for j, a in enumerate(offsets):
        for i, c in enumerate(offsets[:j]):
            if a - c >= one.flight:
                continue
            literals = [cp.new_bool_var(f"F{a} before I{c} at {s}") for s in range(len(one.behind))]
            for literal, behind, before in zip(literals, one.behind, one.before, strict=True):
                cp.add(start[i] + trip[i] >= start[j] + behind).only_enforce_if(literal)
                cp.add(start[j] + trip[j] >= start[i] + before).only_enforce_if(~literal)
            for literal, later in pairwise(literals):
                cp.add_implication(later, literal)
    cp.minimize(sum(weight * ticks for weight, ticks in zip(weights, trip, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = EFFORT
    solver.parameters.catch_sigint_signal = False
    status = solver.solve(cp)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
        return alone
    return min(most, max(alone, math.ceil(solver.best_objective_bound - 1e-6)))
