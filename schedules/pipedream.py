"""PipeDream: 1F1B without a flush; an update for every microbatch, and each forward's weights kept for its backward."""

from __future__ import annotations

from fractions import Fraction

from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.one_f_one_b import one_f_one_b
from schedules.registry import named
from schedules.steady import Asynchrony


@named(
    "pipedream",
    summary="asynchronous: no bubble once full, but up to D versions of the weights and D-1 updates of staleness",
    source="PipeDream, SOSP 2019, arXiv:1806.03377",
)
def pipedream(devices: int, microbatches: int) -> Schedule:
    """Build PipeDream: the order of 1F1B, which goes on for ever; after ``microbatches`` it is cut off and drained.

    D = 3, N = 5; the part between the bars repeats::

        0: F0 F1 | F2 B0 F3 B1 F4 B2 | B3 B4
        1: F0 | F1 B0 F2 B1 F3 B2 F4 B3 | B4
        2: | F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 |
    """
    return one_f_one_b(devices, microbatches)


@pipedream.asynchronous
def _asynchrony(case: Case) -> Asynchrony:
    """Device s has D-s microbatches under way, each with its own weights; the first of them is D-1-s updates old."""
    ahead = [case.devices - 1 - s for s in range(case.devices)]
    return Asynchrony(
        update_every=1,
        weight_versions=tuple(behind + 1 for behind in ahead),
        staleness=tuple((behind, behind) for behind in ahead),
        remark="each backward uses the weights of its own forward",
    )


@pipedream.closed_form
def _formula(case: Case) -> Formula:
    """Device s holds D-s activations."""
    return endless(case)


def endless(case: Case) -> Formula:
    """The memory of 1F1B without a flush; there is no makespan to give."""
    return Formula(
        "no flush, so no makespan: see the period of the steady state",
        peak_activations=tuple(Fraction(min(case.microbatches, case.devices - s)) for s in range(case.devices)),
    )
