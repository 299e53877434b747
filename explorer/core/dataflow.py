"""What each op waits for: the one statement of the dependency rule.

    F(s, m)    after F(s-1, m)
    G(s, m)    after G(s+1, m), and G(S-1, m) after F(S-1, m)     G = I or the fused B
    W(s, m)    after I(s, m)

The evaluator and the CP-SAT model both read it from here; the checker and the test peers derive it on their own.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from explorer.core.op import KINDS, Kind
from explorer.core.placement import IntArray, Placement


class Product(IntEnum):
    """What an op leaves behind for others: an activation (F), or the gradient of its input (I, B)."""

    ACTIVATION = 0
    GRADIENT = 1


class Need(NamedTuple):
    """The product that an op waits for, and the stage that makes it."""

    product: Product
    stage: int


def product(kind: Kind) -> Product | None:
    """What an op of this kind leaves for others; None for W."""
    return {Kind.F: Product.ACTIVATION, Kind.I: Product.GRADIENT, Kind.B: Product.GRADIENT, Kind.W: None}[kind]


def need(kind: Kind, stage: int, stages: int) -> Need | None:
    """What (kind, stage) waits for on a route of ``stages`` stages; None where it needs only the data set."""
    match kind:
        case Kind.F:
            return Need(Product.ACTIVATION, stage - 1) if stage > 0 else None
        case Kind.I | Kind.B:
            last = stage == stages - 1
            return Need(Product.ACTIVATION, stage) if last else Need(Product.GRADIENT, stage + 1)
        case Kind.W:
            return Need(Product.GRADIENT, stage)


class Flow(NamedTuple):
    """The rule tabulated for a placement; R routes of at most S stages.

    Attributes
    ----------
    needs
        (R, 4, S) the product that (route, kind, stage) waits for, as ``product * S + stage``; -1 for none.
    target
        (R, 2, S) the device that waits for product p of stage s; -1 for none. W does not count (its I ran here).
    message
        (R, 2, S) the chunk behind which the product crosses: the maker of an activation, the receiver of a gradient.
    """

    needs: IntArray
    target: IntArray
    message: IntArray


@lru_cache(maxsize=64)
def flow(placement: Placement) -> Flow:
    """Tabulate `need` for every route, kind and stage."""
    stages = placement.stages
    needs = np.full((len(placement.routes), len(KINDS), stages), -1, np.int64)
    target = np.full((len(placement.routes), len(Product), stages), -1, np.int64)
    message = np.full_like(target, 0)
    for number, route in enumerate(placement.routes):
        for kind in KINDS:
            for stage, hop in enumerate(route):
                wanted = need(kind, stage, len(route))
                if wanted is None:
                    continue
                needs[number, kind, stage] = wanted.product * stages + wanted.stage
                if kind is not Kind.W:
                    target[number, wanted.product, wanted.stage] = hop.device
                    message[number, wanted.product, wanted.stage] = route[min(stage, wanted.stage)].chunk
    return Flow(needs, target, message)
