"""Asymmetric Chimera: pipelines in both directions that are not mirror images of each other.

The source paper's construction is not available to us. The variants here are ours, and named for what is uneven.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from explorer.core.errors import Inapplicable, UsageError
from explorer.core.op import Kind, Op
from explorer.core.placement import Hop, Placement, mirrored
from explorer.core.schedule import Schedule
from schedules.chimera import chimera
from schedules.formula import Case, Formula
from schedules.greedy import greedy
from schedules.interleaved_1f1b import interleaved_1f1b
from schedules.registry import named, require_multiple

VARIANTS = ("block-split", "direction-split", "rotated")
_SPLIT = re.compile(r"([1-9]\d{0,3}):([1-9]\d{0,3})")


@named(
    "asymmetric-chimera",
    summary="Chimera with uneven stages, uneven directions or rotated replicas (variants of ours)",
    source="the idea: arXiv:2605.24006, whose exact construction is not public; these variants are ours",
)
def asymmetric_chimera(devices: int, microbatches: int, variant: str = "block-split", split: str = "1:2") -> Schedule:
    """Build a variant.

    ``block-split``
        Chimera's order and placement, but the chunks in the first half of the model hold fewer blocks than those in the
        second, a to b. Each device has one chunk of either kind. It takes Chimera's time for whole units and without
        transfers, while no forward is longer than any backward.
    ``direction-split``
        Chimera's placement, but of a + b microbatches a go down, those with the lowest numbers, and b up. The order is
        a list schedule: of the ops that are ready, the one with Chimera's earliest slot, with at most D activations on
        a device. With equal directions it leaves the idle time (D-2)B of one unit of Chimera for N = 2D and 3D as well
        (seen for D = 4, 6, 8 with F = 1, B = 2).
    ``rotated``
        The second replica's stage s runs on device (s + D/2) mod D; ``split`` does not matter. Each replica runs as
        interleaved 1F1B with two chunks on D/2 ranks. Rank x of both is the pair of devices x and x + D/2: one of them
        takes the first chunk of the first replica and the second chunk of the second, the other the other two, so both
        work in step.

    Unequal shares of *blocks* for the directions are left out: the two replicas would cut the model at different places
    and have no chunk in common.

    Rotated, D = 4, N = 4; stages of the second replica in lower case, as the microbatches are its own (2, 3)::

        0: F0 F1 f2 f3 b2 b3 B0 B1
        1: F0 F1 f2 b2 f3 b3 B0 B1
        2: f2 f3 F0 F1 B0 B1 b2 b3
        3: f2 f3 F0 B0 F1 B1 b2 b3

    Parameters
    ----------
    variant
        One of `VARIANTS`.
    split
        ``a:b``, light to heavy blocks, or microbatches down to microbatches up.

    Raises
    ------
    Inapplicable
        If D is odd, or the microbatches cannot be dealt to the directions.
    UsageError
        If there is no such variant, or the split is no ``a:b``.
    """
    if devices % 2:
        raise Inapplicable(f"asymmetric-chimera needs an even number of devices, got {devices}")
    match variant:
        case "block-split":
            return _block_split(devices, microbatches, *_parts(split))
        case "direction-split":
            return _direction_split(devices, microbatches, *_parts(split))
        case "rotated":
            return _rotated(devices, microbatches)
    raise UsageError(f"variant of asymmetric-chimera must be one of {', '.join(VARIANTS)}, got {variant!r}")


def _parts(split: str) -> tuple[int, int]:
    match = _SPLIT.fullmatch(split)
    if match is None:
        raise UsageError(f"split of asymmetric-chimera must be two whole numbers such as 1:2, got {split!r}")
    return int(match[1]), int(match[2])


def _block_split(devices: int, microbatches: int, light: int, heavy: int) -> Schedule:
    require_multiple("asymmetric-chimera", microbatches, 2, " (two directions)")
    symmetric = chimera(devices, microbatches)
    half = devices // 2
    shares = tuple(Fraction(part, half * (light + heavy)) for part in (light, heavy) for _ in range(half))
    uneven = replace(symmetric.placement, shares=shares)
    return Schedule.from_orders(uneven, symmetric.orders())


def _direction_split(devices: int, microbatches: int, down: int, up: int) -> Schedule:
    whole = down + up
    require_multiple("asymmetric-chimera", microbatches, whole, f" (the directions take {down} to {up} of them)")
    first_up = microbatches * down // whole
    route_of = [int(m >= first_up) for m in range(microbatches)]

    def slot(op: Op) -> tuple[int, bool]:
        turn = op.microbatch - first_up if op.microbatch >= first_up else op.microbatch
        after = op.stage if op.kind is Kind.F else 2 * devices - 1 - op.stage
        return 2 * turn + after, op.microbatch >= first_up

    return greedy(mirrored(devices, microbatches, route_of=route_of), slot, limit=devices)


def _rotated(devices: int, microbatches: int) -> Schedule:
    require_multiple("rotated asymmetric-chimera", microbatches, devices, ", one unit of Chimera")
    half, each = devices // 2, microbatches // 2
    routes = tuple(tuple(Hop(stage, (stage + shift) % devices) for stage in range(devices)) for shift in (0, half))
    ranks = interleaved_1f1b(half, each, chunks=2)

    def order(device: int) -> Iterator[Op]:
        for op in ranks.ops(device % half):
            replica = (op.stage // half + device // half) % 2
            yield Op(op.stage, op.kind, replica * each + op.microbatch)

    placement = Placement(routes, tuple(m // each for m in range(microbatches)))
    return Schedule.from_orders(placement, map(order, range(devices)))


@asymmetric_chimera.closed_form
def _formula(case: Case) -> Formula:
    """Rotated: idle (D/2-1)(F+B), that of interleaved 1F1B with two chunks on D/2 ranks; its peaks, too."""
    if case.options["variant"] != "rotated":
        return Formula.inapplicable("no closed form is known for this variant")
    half = case.devices // 2
    return Formula.idle(
        case,
        (half - 1) * (case.forward + case.backward),
        [min(case.microbatches, 3 * half - 1 - 2 * (device % half)) for device in range(case.devices)],
        "equal stages, no transfer time",
    )


@asymmetric_chimera.caution
def _caution(case: Case) -> str | None:
    """More activations than Chimera's, in the rotated variant."""
    d, n = case.devices, case.microbatches
    if case.options["variant"] == "rotated" and n > d > 2:
        return f"rotated replicas hold {min(n, 3 * d // 2 - 1)} activations on a device, where mirrored ones hold {d}"
    return None
