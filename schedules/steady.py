"""What asynchronous schedules answer instead of a makespan: how many weights they hold, and how stale gradients are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Asynchrony:
    """The rule of a schedule without a flush, in its steady state.

    Parameters
    ----------
    update_every
        How many microbatches' gradients go into one update of the weights.
    weight_versions
        [device] how many versions of its weights a device holds at once.
    staleness
        [device] the fewest and the most updates that lie between the weights of a microbatch's forward and the update
        that its gradient goes into. Where the backward does not use the forward's weights, the updates between the two.
    remark
        What a reader must know of it.
    """

    update_every: int
    weight_versions: tuple[int, ...]
    staleness: tuple[tuple[int, int], ...]
    remark: str = ""
