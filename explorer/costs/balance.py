"""Layers spread over stages so that the longest stage is as short as it can be.

The embedding and the head take time of their own (a large vocabulary's head as much as several layers), so that an
even number of layers a stage is not an even time.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

from explorer.config.roofline import BlockCosts
from explorer.config.system import System
from explorer.core.errors import Inapplicable
from explorer.core.op import Kind
from explorer.costs.architecture import Architecture
from explorer.costs.layers import embedding_costs, head_costs, layer_costs, prediction_costs
from explorer.costs.training import Piece, Training

TICK = Fraction(1, 10**10)
"""Seconds in which times are compared."""


@lru_cache(maxsize=1024)
def balanced(architecture: Architecture, training: Training, system: System, stages: int) -> tuple[Piece, ...]:
    """What each stage holds: the time of F and B of the longest is least, and the others are near the average.

    Layers keep their order; the embedding is in the first stage, the head and what predicts further in the last, and
    these two may hold no layer besides.

    Raises
    ------
    Inapplicable
        If there are more stages than pieces to fill them.
    """
    what = (architecture, training, system)
    each = {
        layer: _ticks(layer_costs(*what, layer)) for layer in {*map(architecture.alike, range(architecture.layers))}
    }
    layers = [each[architecture.alike(layer)] for layer in range(architecture.layers)]
    last = _ticks(head_costs(*what))
    if architecture.prediction_layers:
        last += architecture.prediction_layers * _ticks(prediction_costs(*what))
    if stages > architecture.layers + 2 or stages < 1:
        raise Inapplicable(f"the model's {architecture.layers} layers and its ends do not fill {stages} stages")
    line = _Line((0, *accumulate(layers)), _ticks(embedding_costs(*what)), last, stages)
    return tuple(
        Piece(
            range(start, end),
            embedding=stage == 0,
            head=stage == stages - 1,
            prediction=architecture.prediction_layers if stage == stages - 1 else 0,
        )
        for stage, (start, end) in enumerate(line.spread())
    )


def _ticks(costs: BlockCosts) -> int:
    return int((costs.seconds[Kind.F] + costs.seconds[Kind.B]) / TICK)


@dataclass(frozen=True)
class _Line:
    """Layers in a row: ``until[i]`` is the time of the first i; the ends take time besides."""

    until: tuple[int, ...]
    first: int
    last: int
    stages: int

    @property
    def layers(self) -> int:
        return len(self.until) - 1

    def _extra(self, stage: int) -> int:
        return self.first * (stage == 0) + self.last * (stage == self.stages - 1)

    def _least(self, stage: int) -> int:
        """Layers that a stage holds at least: the ends may do without."""
        return 0 if stage in (0, self.stages - 1) else 1

    def _after(self, stage: int) -> int:
        """Layers that the stages behind one hold at least."""
        return max(0, self.stages - 2 - stage)

    def _furthest(self, start: int, stage: int, limit: int) -> int:
        """Up to which layer a stage from ``start`` stays within a limit; under ``start`` if not even without layers."""
        return bisect_right(self.until, self.until[start] + limit - self._extra(stage)) - 1

    def _fits(self, start: int, stage: int, limit: int) -> bool:
        """Whether the stages from this one on hold the layers from ``start`` on within a limit."""
        for here in range(stage, self.stages):
            end = min(self._furthest(start, here, limit), self.layers - self._after(here))
            if end < start + self._least(here):
                return False
            start = end
        return start == self.layers

    def spread(self) -> list[tuple[int, int]]:
        """Where each stage starts and ends."""
        low, high = 0, self.until[-1] + self.first + self.last
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(0, 0, middle) else (middle + 1, high)
        cuts, start = [], 0
        for stage in range(self.stages):
            end = self._nearest(start, stage, low)
            cuts.append((start, end))
            start = end
        return cuts

    def _nearest(self, start: int, stage: int, limit: int) -> int:
        """Of the ends that keep within the limit, that which brings the stage nearest to the average of the rest."""
        most = min(self._furthest(start, stage, limit), self.layers - self._after(stage))
        ends = range(start + self._least(stage), most + 1)
        if stage == self.stages - 1:
            return self.layers
        rest = self.until[-1] - self.until[start] + self._extra(stage) + self.last
        average = rest / (self.stages - stage)
        possible = [end for end in ends if self._fits(end, stage + 1, limit)]
        return min(possible, key=lambda end: abs(self.until[end] - self.until[start] + self._extra(stage) - average))
