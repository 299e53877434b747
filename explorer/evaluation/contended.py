"""What transfers and all-reduces share: the resources on each one's path, as tables for the evaluator's loop."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.core.dataflow import flow
from explorer.core.op import Kind
from explorer.core.placement import IntArray, Placement
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule


class Paths(NamedTuple):
    """For every directed pair i of devices, in row-major order, the shared resources that its transfers pass through.

    Where all-reduces compete with transfers, that of chunk c counts as pair devices^2 + c; its path ends with one
    resource for each of its hosts, which takes part in one all-reduce at a time.

    Attributes
    ----------
    first
        (pairs + 1,) those of pair i are ``resource[first[i]:first[i + 1]]``.
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


def owed_syncs(problem: Problem, placement: Placement) -> list[int]:
    """The chunks whose gradients are all-reduced: those with several hosts, copies included, where it takes time."""
    hosted = [len(hosts) * problem.copies for hosts in placement.hosts]
    return [chunk for chunk, hosts in enumerate(hosted) if hosts > 1 and problem.sync[chunk] > 0]


def paths(problem: Problem, placement: Placement) -> Paths:
    """What is shared in a problem's mode; what one pair has to itself is no more than its link."""
    devices = problem.devices
    competing = owed_syncs(problem, placement) if problem.syncs_compete else []
    on_path: list[list[int]] = [[] for _ in range(devices * devices + placement.chunks * problem.syncs_compete)]
    shared = problem.network.resources if problem.communication is Communication.LINK else ()
    servers: list[int] = []
    for position, one in enumerate(shared):
        syncs = [chunk for chunk in competing if position in problem.sync_path[chunk]]
        if len(one.pairs) + len(syncs) > 1:
            for source, destination in one.pairs:
                on_path[source * devices + destination].append(len(servers))
            for chunk in syncs:
                on_path[devices * devices + chunk].append(len(servers))
            servers.append(one.servers)
    for chunk in competing:
        on_path[devices * devices + chunk] += [len(servers) + host for host in placement.hosts[chunk]]
    servers += [1] * devices * bool(competing)
    first = np.concatenate(([0], np.cumsum([len(resources) for resources in on_path])))
    slots = np.cumsum([0, *(count + (count > 1) for count in servers)])
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
