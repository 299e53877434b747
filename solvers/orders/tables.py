"""A shop as plain tables, for loops that run on lists in plain Python and on arrays under numba."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from explorer.core.op import Kind
from solvers.shop import Shop

NEVER = 2**62
"""Later than any time."""


class Tables(NamedTuple):
    """A `Shop` as plain tables; see `solvers.shop.Class` for those by class.

    Attributes
    ----------
    first, device, forward, duration, busy, offset, delay, hold, target, held, freed, source, sync, group
        (classes,) but for ``first``; ``forward`` says whether the class is of kind F.
    paired
        (classes,) for F the class of I or B at the same stage; -1 for others.
    user
        (classes,) the class that needs the product on another device; -1 for none.
    closing
        (classes,) from an op's start until its chunk's gradient synchronisation and the step are done, at least.
    start_of, classes
        Device d has ``classes[start_of[d]:start_of[d + 1]]``.
    nested
        (devices,) whether a microbatch visits the device more than once, so that its memory could be filled by forwards
        none of which can go on.
    group_of, rank_of
        (microbatches,) group, and place in it.
    space
        (devices,) what may be held.
    sync_ticks
        (chunks,) of their gradient synchronisation; 0 where there is none.
    host_from, hosts
        Chunk c has the hosts ``hosts[host_from[c]:host_from[c + 1]]``.
    steps
        (devices,) ticks of their optimiser step.
    """

    first: Any
    device: Any
    forward: Any
    duration: Any
    busy: Any
    offset: Any
    delay: Any
    hold: Any
    target: Any
    held: Any
    freed: Any
    source: Any
    sync: Any
    group: Any
    paired: Any
    user: Any
    closing: Any
    start_of: Any
    classes: Any
    nested: Any
    group_of: Any
    rank_of: Any
    space: Any
    sync_ticks: Any
    host_from: Any
    hosts: Any
    steps: Any


_COLUMNS = ("device", "duration", "busy", "offset", "delay", "hold", "target", "held", "freed", "source", "sync")


def tables(shop: Shop, compile: bool) -> Tables:
    """The tables of a shop, as arrays to be compiled for or as lists."""
    classes, placement = shop.classes, shop.placement
    backward = {(c.group, c.stage): i for i, c in enumerate(classes) if c.kind in (Kind.I, Kind.B)}
    user = {c.source: i for i, c in enumerate(classes) if c.source >= 0 and classes[c.source].device != c.device}
    group_of, rank_of = np.zeros(placement.microbatches, np.int64), np.zeros(placement.microbatches, np.int64)
    for group, members in enumerate(shop.members):
        group_of[list(members)] = group
        rank_of[list(members)] = range(len(members))
    nested = [
        any(sum(hop.device == d for hop in route) > 1 for route in placement.routes) for d in range(placement.devices)
    ]
    synchronised = {c.sync for c in classes if c.sync >= 0}
    values: dict[str, Any] = {name: [getattr(c, name) for c in classes] for name in (*_COLUMNS, "group")}
    values |= {
        "first": shop.first,
        "forward": [c.kind is Kind.F for c in classes],
        "paired": [backward[c.group, c.stage] if c.kind is Kind.F else -1 for c in classes],
        "user": [user.get(i, -1) for i in range(len(classes))],
        "closing": [
            c.duration + int(shop.problem.sync[c.sync]) + shop.problem.steps[c.device] if c.sync >= 0 else 0
            for c in classes
        ],
        "start_of": np.cumsum([0, *map(len, shop.of_device)]),
        "classes": [c for device in shop.of_device for c in device],
        "nested": nested,
        "group_of": group_of,
        "rank_of": rank_of,
        "space": shop.space,
        "sync_ticks": [int(t) if c in synchronised else 0 for c, t in enumerate(shop.problem.sync)],
        "host_from": np.cumsum([0, *map(len, placement.hosts)]),
        "hosts": [host for hosts in placement.hosts for host in hosts],
        "steps": shop.problem.steps,
    }

    def column(value: Any) -> Any:
        array = np.asarray(value, np.int64)
        return array if compile else array.tolist()

    return Tables(**{name: column(values[name]) for name in Tables._fields})
