"""Chimera: pipelines in both directions over the same devices, so that they fill each other's bubbles."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from explorer.core.errors import Inapplicable, UsageError
from explorer.core.op import B, F, Op
from explorer.core.placement import Placement, mirrored
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.registry import named, require_multiple

SCALINGS = ("concatenate", "double-forward", "halve-backward")


@named(
    "chimera",
    summary="pipelines in both directions: half the bubble for twice the weights and a gradient all-reduce",
    source="Chimera, arXiv:2107.06925",
)
def chimera(devices: int, microbatches: int, pipes: int = 1, scaling: str = "concatenate") -> Schedule:
    """Build Chimera.

    Microbatches come in units of D, an equal run of them for each pipeline. In slots of equal length, a pipeline's j-th
    microbatch of unit u runs F of stage s in slot 2Du + 2j + s and B in slot 2Du + 2j + 2D-1-s; no two ops of a device
    fall into the same slot. The last unit may be a smaller one.

    D = 4, N = 4; stages of the pipeline going up in lower case, as the microbatches are its own (2, 3)::

        0: F0 F1 f2 b2 f3 b3 B0 B1
        1: F0 f2 F1 f3 b2 B0 b3 B1
        2: f2 F0 f3 F1 B0 b2 B1 b3
        3: f2 f3 F0 B0 F1 B1 b2 b3

    Parameters
    ----------
    pipes
        Pairs of pipelines, f in the paper; must divide D/2.
    scaling
        What happens for N > D. ``concatenate``: one unit behind the other. ``double-forward``: two microbatches share a
        forward slot, and their backwards follow one another where the backward slot was (our reading of the paper's
        description); for B = 2F no bubbles are left between units, but twice the activations are held.
        ``halve-backward``: the same order of half microbatches. An order of equal microbatches has no smaller backward,
        so here N counts the halves: two forwards in a row stand for a whole one, backwards are halves.

    Raises
    ------
    Inapplicable
        If D is odd, ``pipes`` does not divide D/2, or the pipelines cannot have equal numbers of microbatches.
    """
    _require_applicable(devices, microbatches, pipes, scaling)
    per_slot = 1 if scaling == "concatenate" else 2
    turns = _turns(devices, microbatches // per_slot, pipes)
    placement = mirrored(devices, microbatches, pipes, route_of=[pipe for _, pipe in turns for _ in range(per_slot)])

    def order(device: int) -> Iterator[Op]:
        stages = [_stage(placement, pipe, device) for pipe in range(2 * pipes)]
        slots: list[tuple[int, Op]] = []
        for turn, (start, pipe) in enumerate(turns):
            stage = stages[pipe]
            slots.append((start + stage, F(stage, turn)))
            slots.append((start + 2 * devices - 1 - stage, B(stage, turn)))
        for _, (stage, kind, turn) in sorted(slots):
            for m in range(turn * per_slot, (turn + 1) * per_slot):
                yield Op(stage, kind, m)

    return Schedule.from_orders(placement, map(order, range(devices)))


def _turns(devices: int, count: int, pipes: int) -> list[tuple[int, int]]:
    """Go through units, pipelines and their turns: for each turn the slot in which it starts, and its pipeline."""
    turns = []
    for first in range(0, count, devices):
        each = min(devices, count - first) // (2 * pipes)
        turns += [(2 * first + 2 * j, pipe) for pipe in range(2 * pipes) for j in range(each)]
    return turns


def _stage(placement: Placement, route: int, device: int) -> int:
    """The stage of a route that runs on a device."""
    return next(stage for stage, hop in enumerate(placement.routes[route]) if hop.device == device)


def _require_applicable(devices: int, microbatches: int, pipes: int, scaling: str) -> None:
    if scaling not in SCALINGS:
        raise UsageError(f"scaling of chimera must be one of {', '.join(SCALINGS)}, got {scaling!r}")
    if devices % 2:
        raise Inapplicable(f"chimera needs an even number of devices, got {devices}")
    half = devices // 2
    if pipes < 1 or half % pipes:
        would_do = ", ".join(str(f) for f in range(1, half + 1) if half % f == 0)
        raise Inapplicable(
            f"pipes of chimera must divide half of the {devices} devices, got {pipes}; {would_do} would do"
        )
    per_slot, why = (1, "") if scaling == "concatenate" else (2, ", two in each forward slot")
    require_multiple("chimera", microbatches, 2 * pipes * per_slot, f" ({2 * pipes} pipelines{why})")


@chimera.closed_form
def _formula(case: Case) -> Formula:
    """Idle by direct concatenation (D/f-2)B + (K-1)(D/f-2)(B-F), where the paper's (D-2)/(2N+D-2) takes F = B."""
    d, n, f = case.devices, case.microbatches, case.count("pipes")
    forward, backward = case.forward, case.backward
    per_slot = 1 if case.options["scaling"] == "concatenate" else 2
    if n > d * per_slot and n % (d * per_slot):
        return Formula.inapplicable(f"needs whole units: {d * per_slot} microbatches or fewer, or a multiple")
    peaks = [per_slot * peak for peak in _peaks(d, min(n // per_slot, d), f)]
    if per_slot == 2:
        if n % (2 * d) or backward > 2 * forward:
            return Formula.inapplicable(f"needs B <= 2F and a multiple of {2 * d} microbatches")
        idle = Fraction(d // f - 2, 2) * (forward + backward)
        return Formula.idle(case, idle, peaks, "equal stages, no transfer time, B <= 2F")
    if backward < forward:
        return Formula.inapplicable("needs B >= F")
    idle = (d // f - 2) * Fraction(backward)
    if n < d:
        idle += (d - n) * (forward + backward * Fraction(f - 1, f))
    else:
        idle += (n // d - 1) * (d // f - 2) * (backward - forward)
    return Formula.idle(case, idle, peaks, "equal stages, no transfer time, B >= F")


def _peaks(devices: int, in_unit: int, pipes: int) -> list[int]:
    """Activations by device: at most D - s microbatches of a pipeline are between F and B of its stage s."""
    placement = mirrored(devices, in_unit, pipes)
    each = in_unit // (2 * pipes)
    return [
        sum(min(each, devices - _stage(placement, route, device)) for route in range(2 * pipes))
        for device in range(devices)
    ]


@chimera.caution
def _caution(case: Case) -> str | None:
    """Where 1F1B leaves less idle, and what the microbatches of halve-backward are."""
    if case.options["scaling"] == "halve-backward":
        return "with halve-backward N counts half microbatches, what a backward takes: halve their costs, too"
    makespan = _formula(case).makespan
    one_f_one_b = case.work + (case.devices - 1) * (case.forward + case.backward)
    if makespan is not None and makespan > one_f_one_b:
        return (
            f"concatenating {case.microbatches // case.devices} units leaves bubbles between them, since backwards "
            "are longer than forwards: without transfer times 1F1B is faster here"
        )
    return None
