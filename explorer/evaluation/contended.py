"""What directed pairs of devices share: the resources on each pair's path, as tables for the evaluator's loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.core.dataflow import flow
from explorer.core.op import Kind
from explorer.core.placement import IntArray
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule


class Paths(NamedTuple):
    """For every directed pair i of devices, in row-major order, the shared resources that its transfers pass through.

    Attributes
    ----------
    first
        (devices^2 + 1,) those of pair i are ``resource[first[i]:first[i + 1]]``.
    resource
        Indices of shared resources, counted from 0.
    slots
        (resources + 1,) resource r has the slots ``slots[r]`` to ``slots[r + 1]`` (see `kernel`): one if it serves one
        transfer at a time, else one more than it serves.
    """

    first: IntArray
    resource: IntArray
    slots: IntArray

    @property
    def resources(self) -> int:
        """How many there are."""
        return len(self.slots) - 1


def paths(problem: Problem) -> Paths:
    """What the pairs of a problem share in its mode; what one pair has to itself is no more than its link."""
    devices = problem.devices
    on_path: list[list[int]] = [[] for _ in range(devices * devices)]
    shared = problem.network.resources if problem.communication is Communication.LINK else ()
    groups = [one for one in shared if len(one.pairs) > 1]
    for number, one in enumerate(groups):
        for source, destination in one.pairs:
            on_path[source * devices + destination].append(number)
    first = np.concatenate(([0], np.cumsum([len(resources) for resources in on_path])))
    slots = np.cumsum([0, *(one.servers + (one.servers > 1) for one in groups)])
    return Paths(first, np.array([r for resources in on_path for r in resources], np.int64), slots)


def senders(schedule: Schedule, sent: IntArray) -> tuple[IntArray, IntArray]:
    """The rows that send, and for each the directed pair of devices, source x devices + destination.

    Parameters
    ----------
    sent
        (ops,) a timeline's column, -1 where nothing is sent.
    """
    rows = np.flatnonzero(sent >= 0)
    table = flow(schedule.placement)
    route = schedule.placement.columns.route_of[schedule.microbatch[rows]]
    made = (schedule.kind[rows] != Kind.F).astype(np.int64)
    to = table.target[route, made, schedule.stage[rows]]
    return rows, schedule.device[rows].astype(np.int64) * schedule.devices + to
