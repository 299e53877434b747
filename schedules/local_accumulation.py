"""Local accumulation: 1F1B without a flush or kept weights; each device updates alone after its own backwards."""

from __future__ import annotations

from explorer.core.errors import Inapplicable
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.one_f_one_b import one_f_one_b
from schedules.pipedream import endless
from schedules.registry import named
from schedules.steady import Asynchrony


@named(
    "local-accumulation",
    summary="asynchronous: no bubble once full, one version of the weights, but they change between F and B",
    source="PipeDream without weight stashing, arXiv:1806.03377, with gradients accumulated",
)
def local_accumulation(devices: int, microbatches: int, accumulate: int | None = None) -> Schedule:
    """Build local accumulation: the order of `pipedream`; a device updates after every ``accumulate`` backwards.

    D = 3, accumulate = 2; ``|`` marks an update: on device 0 it comes between F2 and B2::

        0: F0 F1 F2 B0 F3 B1 | F4 B2 F5 B3 | F6 B4 F7 B5 | ...
        1: F0 F1 B0 F2 B1 | F3 B2 F4 B3 | F5 B4 F6 B5 | ...
        2: F0 B0 F1 B1 | F2 B2 F3 B3 | F4 B4 F5 B5 | ...

    Parameters
    ----------
    accumulate
        Microbatches per update; D by default.
    """
    if accumulate is not None and accumulate < 1:
        raise Inapplicable(f"local-accumulation needs at least 1 microbatch an update, got {accumulate}")
    return one_f_one_b(devices, microbatches)


@local_accumulation.asynchronous
def _asynchrony(case: Case) -> Asynchrony:
    """D-1-s backwards of others come between F and B on device s: so many updates over ``accumulate``, up or down."""
    d = case.devices
    every = d if case.options["accumulate"] is None else case.count("accumulate")
    between = [d - 1 - s for s in range(d)]
    return Asynchrony(
        update_every=every,
        weight_versions=(1,) * d,
        staleness=tuple((behind // every, -(-behind // every)) for behind in between),
        remark="a backward uses the weights of its own time, not those of its forward: the gradient is not exact",
    )


@local_accumulation.closed_form
def _formula(case: Case) -> Formula:
    """Device s holds D-s activations."""
    return endless(case)
