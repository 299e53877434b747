"""PipeDream-2BW: 1F1B without a flush, gradients accumulated, and never more than two versions of the weights."""

from __future__ import annotations

from explorer.core.errors import Inapplicable
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.one_f_one_b import one_f_one_b
from schedules.pipedream import endless
from schedules.registry import named
from schedules.steady import Asynchrony


@named(
    "pipedream-2bw",
    summary="asynchronous: no bubble once full, two versions of the weights, gradients one update old everywhere",
    source="PipeDream-2BW, arXiv:2006.09503",
)
def pipedream_2bw(devices: int, microbatches: int, accumulate: int | None = None) -> Schedule:
    """Build PipeDream-2BW: the order of `pipedream`, with an update after every ``accumulate`` microbatches.

    D = 3, accumulate = 3; ``|`` marks an update, each batch uses the weights of the update before the last::

        0: F0 F1 F2 B0 F3 B1 F4 B2 | F5 B3 F6 B4 F7 B5 | ...
        1: F0 F1 B0 F2 B1 F3 B2 | F4 B3 F5 B4 F6 B5 | ...
        2: F0 B0 F1 B1 F2 B2 | F3 B3 F4 B4 F5 B5 | ...

    Parameters
    ----------
    accumulate
        Microbatches per update; D by default.

    Raises
    ------
    Inapplicable
        If fewer than D microbatches go into an update: two versions would not do.
    """
    if accumulate is not None and accumulate < devices:
        raise Inapplicable(
            f"pipedream-2bw on {devices} devices needs at least {devices} microbatches an update, got {accumulate}"
        )
    return one_f_one_b(devices, microbatches)


@pipedream_2bw.asynchronous
def _asynchrony(case: Case) -> Asynchrony:
    """Two versions and a staleness of one update, on every device."""
    d = case.devices
    return Asynchrony(
        update_every=d if case.options["accumulate"] is None else case.count("accumulate"),
        weight_versions=(2,) * d,
        staleness=((1, 1),) * d,
        remark="each backward uses the weights of its own forward",
    )


@pipedream_2bw.closed_form
def _formula(case: Case) -> Formula:
    """Device s holds D-s activations."""
    return endless(case)
