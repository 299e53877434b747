"""When each op, transfer, gradient synchronisation and optimiser step of a schedule runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from explorer.core.placement import IntArray
from explorer.core.schedule import Schedule


class Sync(NamedTuple):
    """The all-reduce of one chunk's gradients among its replicas."""

    chunk: int
    devices: tuple[int, ...]
    start: int
    end: int


class Update(NamedTuple):
    """A device's optimiser step, behind all its ops and the synchronisations that it takes part in."""

    device: int
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Timeline:
    """Start and end of everything, in ticks; row i is row i of the schedule.

    Parameters
    ----------
    schedule
        What ran.
    start, end
        (ops,) of the op itself, its launch overhead included. The two of an overlapped pair have the same times.
    free
        (ops,) when the device may begin its next op: later than ``end`` by posting costs and blocking sends.
    sent, released, arrival
        (ops,) of the transfer that the op causes: when it starts, when its link is free again, when its data is there.
        All -1 where the op's product stays on its device, or nothing needs it.
    syncs
        Gradient synchronisations, by start.
    updates
        Optimiser steps, by device; only those that take time.
    """

    schedule: Schedule
    start: IntArray
    end: IntArray
    free: IntArray
    sent: IntArray
    released: IntArray
    arrival: IntArray
    syncs: tuple[Sync, ...] = ()
    updates: tuple[Update, ...] = ()

    @cached_property
    def compute_end(self) -> int:
        """When the last device is done with its last op (blocking sends included)."""
        return int(self.free.max()) if len(self.free) else 0

    @cached_property
    def synchronised(self) -> int:
        """When the last op and the last gradient synchronisation are done."""
        return max([self.compute_end, *(sync.end for sync in self.syncs)])

    @cached_property
    def makespan(self) -> int:
        """When all is done: the last op, gradient synchronisation and optimiser step."""
        return max([self.synchronised, *(update.end for update in self.updates)])

    @cached_property
    def spans(self) -> IntArray:
        """(devices,) From each device's first start to its last end; 0 for a device without ops."""
        offsets = self.schedule.offsets
        spans = np.zeros(self.schedule.devices, np.int64)
        some = offsets[1:] > offsets[:-1]
        first, last = offsets[:-1][some], offsets[1:][some] - 1
        spans[some] = self.free[last] - self.start[first]
        return spans
