"""What each device must hold. The order of its ops decides it alone; times do not matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from explorer.core.op import Kind
from explorer.core.placement import IntArray
from explorer.core.problem import Problem, Stash
from explorer.core.schedule import Schedule


class Levels(NamedTuple):
    """What a device holds around each row, in the stash's integer units; static memory is not in it.

    Attributes
    ----------
    during
        (ops,) while the row runs.
    after
        (ops,) when it has ended.
    """

    during: IntArray
    after: IntArray


def levels(schedule: Schedule, problem: Problem, stash: Stash) -> Levels:
    """How much every device holds during and after each of its ops.

    F adds its activation at its start; I frees its share and W the rest, or B all, at their end. An overlapped pair
    adds before it frees.
    """
    profile, chunk = problem.profile_of[schedule.microbatch], schedule.chunk
    held, at_input = stash.held[profile, chunk], stash.freed_at_input[profile, chunk]
    add = np.where(schedule.kind == Kind.F, held, 0)
    free = np.select(
        [schedule.kind == Kind.B, schedule.kind == Kind.I, schedule.kind == Kind.W],
        [held, at_input, held - at_input],
        0,
    )
    added, freed = (np.concatenate(([0], np.cumsum(column))) for column in (add, free))
    first = np.flatnonzero(~schedule.joined)  # the rows at which an occupancy begins
    bounds = np.append(first, len(schedule))
    sizes = np.diff(bounds)
    base = np.repeat((added - freed)[schedule.offsets[:-1]], np.diff(schedule.offsets))
    during = np.repeat(added[bounds[1:]] - freed[bounds[:-1]], sizes) - base
    after = np.repeat(added[bounds[1:]] - freed[bounds[1:]], sizes) - base
    return Levels(during, after)


def peaks(schedule: Schedule, problem: Problem, stash: Stash) -> IntArray:
    """(devices,) The most that each device's stash ever holds, in integer units; static memory is not in it."""
    during = levels(schedule, problem, stash).during
    found = np.zeros(schedule.devices, np.int64)
    np.maximum.at(found, schedule.device, during)
    return found


def static(schedule: Schedule, stash: Stash, weight_versions: Sequence[int] = ()) -> IntArray:
    """(devices,) Static memory of every chunk resident on a device, replicas included, in the stash's integer units.

    Parameters
    ----------
    weight_versions
        How many versions of its weights each device holds, in asynchronous schedules; one by default.
    """
    resident = schedule.placement.resident
    held = np.array([sum(int(stash.static[chunk]) for chunk in chunks) for chunks in resident], np.int64)
    if weight_versions and stash.weights is not None:
        version = np.array([sum(int(stash.weights[chunk]) for chunk in chunks) for chunks in resident], np.int64)
        held += (np.array(weight_versions, np.int64) - 1) * version
    return held


def fits(schedule: Schedule, problem: Problem, weight_versions: Sequence[int] = ()) -> bool:
    """Whether every device stays within the problem's memory limit (true where there is none).

    Parameters
    ----------
    weight_versions
        See `static`.
    """
    limit = problem.memory_limit
    if limit is None:
        return True
    stash = problem.bytes if limit.in_bytes else problem.stash
    assert stash is not None, "a limit in bytes is only made with a stash in bytes"
    used = peaks(schedule, problem, stash) + (static(schedule, stash, weight_versions) if limit.in_bytes else 0)
    return bool((used <= np.array(limit.per_device)).all())
