"""Hanayo: the pipeline goes down and up the devices in waves, without a second copy of the weights."""

from __future__ import annotations

from fractions import Fraction

from explorer.core.op import Kind, Op
from explorer.core.placement import wave
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.greedy import greedy
from schedules.registry import named


@named(
    "hanayo",
    summary="the pipeline goes down and up the devices in waves; meant for as many microbatches as devices",
    source="Hanayo, arXiv:2308.15762; its order as we infer it: backward, lowest microbatch, deepest stage first",
)
def hanayo(devices: int, microbatches: int, waves: int = 1) -> Schedule:
    """Build Hanayo.

    Each device runs, of the ops that are ready, a backward first, then the lowest microbatch, then the deepest stage.
    This rule, in slots of equal length, is our inference: the paper defines its order by figures. For N = D, B >= F and
    no transfer time it leaves the idle time that CP-SAT proved to be the least for this placement at small sizes.

    D = 2, N = 2, one wave; ops of the way up in lower case::

        0: F0 F1 f0 b0 f1 b1 B0 B1
        1: F0 f0 F1 f1 b0 B0 b1 B1

    Parameters
    ----------
    waves
        How many times down and up; each device holds 2 ``waves`` chunks.
    """
    return greedy(wave(devices, microbatches, waves), _priority)


def _priority(op: Op) -> tuple[bool, int, int]:
    return op.kind is Kind.F, op.microbatch, -op.stage


@hanayo.closed_form
def _formula(case: Case) -> Formula:
    """Idle 2(D-1)B for N = D, in times of one of the 2W chunks of a device."""
    d, n, chunks = case.devices, case.microbatches, 2 * case.count("waves")
    if n > d:
        return Formula.inapplicable("is known for up to as many microbatches as devices only")
    if case.backward < case.forward:
        return Formula.inapplicable("needs B >= F")
    return Formula.idle(
        case,
        (d - n) * (case.forward + case.backward) + Fraction(2 * (n - 1), chunks) * case.backward,
        [n - Fraction(max(0, n - 1 - device), chunks) for device in range(d)],
        "equal stages, no transfer time, B >= F",
    )


@hanayo.caution
def _caution(case: Case) -> str | None:
    """Outside N = D, how much the order loses; in units F = 1, B = 2 of a chunk where it can be said exactly."""
    d, n, chunks = case.devices, case.microbatches, 2 * case.count("waves")
    if n == d or d == 1:
        return None
    meant = f"hanayo's order is meant for as many microbatches as devices ({d})"
    if n < d:
        return f"{meant}; with {n} each device stays idle for the time of {d - n} more"
    if n % d:
        return f"{meant}; with {n} it leaves bubbles between groups of {d}, most of all around the last one"
    idle, least = (2 * (d - 1) * (1 + n // d) - 1, 3 * (d - 1))
    loss = Fraction(idle - least, 3 * n * chunks + least)
    return (
        f"{meant}; with {n}, at B = 2F and without transfers, it takes {float(loss):.0%} longer than an idle time of "
        f"{d - 1}(F + B) of a chunk would, which is the best for this placement where it has been proved"
    )
