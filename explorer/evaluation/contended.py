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
    resources
        How many there are.
    """

    first: IntArray
    resource: IntArray
    resources: int


def paths(problem: Problem) -> Paths:
    """What the pairs of a problem share in its mode; what one pair has to itself is no more than its link."""
    devices = problem.devices
    on_path: list[list[int]] = [[] for _ in range(devices * devices)]
    shared = problem.network.shared if problem.communication is Communication.LINK else ()
    groups = [pairs for _, pairs in shared if len(pairs) > 1]
    for number, pairs in enumerate(groups):
        for source, destination in pairs:
            on_path[source * devices + destination].append(number)
    first = np.concatenate(([0], np.cumsum([len(resources) for resources in on_path])))
    return Paths(first, np.array([r for resources in on_path for r in resources], np.int64), len(groups))


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
