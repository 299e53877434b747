"""DualPipe: two pipelines in opposite directions, forwards of one overlapped with backwards of the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from explorer.core.errors import Inapplicable
from explorer.core.op import Entry, Kind, Op, Overlapped
from explorer.core.placement import mirrored
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.registry import named


class Lane(NamedTuple):
    """What one of a device's two phases works on: a stage, and the microbatches that pass it."""

    stage: int
    microbatches: range


@named(
    "dualpipe",
    summary="bidirectional, F and B overlapped: hides expert-parallel communication, for two copies of the weights",
    source="DeepSeek-V3, arXiv:2412.19437; deepseek-ai/DualPipe",
)
def dualpipe(devices: int, microbatches: int) -> Schedule:
    """Build DualPipe.

    The first half of the microbatches goes down the devices, the second half up. Devices r and D-1-r mirror each
    other.

    D = 2, N = 4; microbatches 2 and 3 go up, ``F1&B2`` is an overlapped pair::

        0: F0 F2 F1 B2 F3&B0 B3 I1 W1
        1: F2 F0 F3 B0 F1&B2 B1 I3 W3

    Raises
    ------
    Inapplicable
        If D or N is odd, or N < 2D.
    """
    require_pairs("dualpipe", devices, microbatches)
    half = microbatches // 2
    down, up = range(half), range(half, microbatches)

    def order(rank: int) -> Iterator[Entry]:
        first, second = (down, up) if rank < devices // 2 else (up, down)
        depth = min(rank, devices - 1 - rank)
        return overlapped_order(devices // 2, depth, Lane(depth, first), Lane(devices - 1 - depth, second))

    return Schedule.from_orders(mirrored(devices, microbatches), map(order, range(devices)))


def require_pairs(name: str, devices: int, microbatches: int) -> None:
    """Check what the published bidirectional code asserts: D and N even, N at least 2D."""
    if devices % 2:
        raise Inapplicable(f"{name} needs an even number of devices, got {devices}; {devices + 1} would do")
    if microbatches % 2 or microbatches < 2 * devices:
        near = max(2 * devices, microbatches + microbatches % 2)
        raise Inapplicable(
            f"{name} on {devices} devices needs an even number of microbatches, at least {2 * devices}, "
            f"got {microbatches}; {near} would do"
        )


def overlapped_order(depth: int, rank: int, zero: Lane, one: Lane) -> Iterator[Entry]:
    """One device's order, in the eight steps of DualPipe's code: 0 and 1 are the device's two lanes.

    Parameters
    ----------
    depth
        How many devices a microbatch passes on lanes 0 before it goes on along lanes 1.
    rank
        The device's place among them; ``depth - 1`` is the middle, which runs its first F0 and B1 one by one.
    zero, one
        Its lanes.
    """
    outer, inner = depth - rank - 1, rank + 1
    overlapped = len(zero.microbatches) - 2 * depth + inner
    first = ["F0", "B1", "F1&B0"] if outer == 0 else ["F0&B1", "F1&B0"]
    drain = ["B1", "B0"] * inner
    program = (
        ["F0"] * 2 * outer
        + ["F0", "F1"] * inner
        + ["I1", "W", "F1"] * outer
        + first
        + ["F0&B1", "F1&B0"] * (overlapped - 1)
        + ["B1", "F1&B0"] * outer
        + drain[:inner]
        + [step.replace("B", "I") for step in drain[inner:]]
        + ["W", "I0"] * outer
        + ["W"] * inner
    )
    return _run(program, (zero, one))


def _run(program: list[str], lanes: tuple[Lane, Lane]) -> Iterator[Entry]:
    """Give each step of the program the next microbatch of its lane; W takes the oldest I that has none yet."""
    to_do = {(way, lane): iter(lanes[lane].microbatches) for way in "FB" for lane in (0, 1)}
    deferred: deque[Op] = deque()

    def op(step: str) -> Op:
        if step == "W":
            return deferred.popleft()._replace(kind=Kind.W)
        kind, lane = Kind[step[0]], int(step[1])
        made = Op(lanes[lane].stage, kind, next(to_do["F" if kind is Kind.F else "B", lane]))
        if kind is Kind.I:
            deferred.append(made)
        return made

    for step in program:
        first, *second = map(op, step.split("&"))
        yield Overlapped(first, *second) if second else first


@dualpipe.closed_form
def _formula(case: Case) -> Formula:
    """Bubble (D/2-1)(F&B + B - 3W) beside the middle devices' work, for F = I >= W; D+1 activations everywhere."""
    return overlapped_formula(case, case.devices // 2, case.microbatches // 2, Fraction(1))


def overlapped_formula(case: Case, depth: int, microbatches: int, share: Fraction) -> Formula:
    """Bubble (depth-1)(F&B + B - 3W) beside the middle device's work; 2 depth + 1 ops are held.

    Parameters
    ----------
    depth, microbatches
        As in `overlapped_order`, ``microbatches`` those of one lane.
    share
        What one op is of a device's work on a microbatch.
    """
    f, b, w = (share * cost for cost in (case.forward, case.backward, case.weight_grad))
    peak = tuple([share * (2 * depth + 1)] * case.devices)
    if case.forward != case.input_grad or w > f or b != f + w:
        return Formula("time only where F = I >= W and B = I + W; activations held until W", peak_activations=peak)
    if not case.uniform:
        return Formula.inapplicable("needs equal stages and equal microbatches")
    alone, saved = 2 * microbatches * (f + b), (1 - case.overlap) * (f + b)
    pairs = [2 * (microbatches - 2 * depth + inner) + depth - inner - (inner == depth) for inner in range(1, depth + 1)]
    makespan = alone - pairs[-1] * saved + (depth - 1) * (case.overlap * (f + b) + b - 3 * w)
    busy = alone - Fraction(sum(pairs), depth) * saved
    return Formula(
        "equal stages, no transfer time, F = I >= W, B = I + W; activations held until W",
        makespan,
        1 - busy / makespan if makespan else Fraction(0),
        peak,
    )
