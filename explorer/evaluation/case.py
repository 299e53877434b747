"""What closed formulas depend on, read off a problem."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from explorer.core.op import Kind
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from schedules.formula import Case


def case_of(problem: Problem, placement: Placement, options: Mapping[str, object], *, split: bool = False) -> Case:
    """A device's share of one microbatch's work, as the mean over devices and microbatches.

    Parameters
    ----------
    options
        The schedule's own options, where given.
    split
        Whether the schedule splits its backwards, so that I may free a part of an activation.
    """
    columns = placement.columns
    classes = np.stack([columns.route_of, problem.profile_of])
    (routes, profiles), counts = np.unique(classes, axis=1, return_counts=True)
    work = np.zeros(len(Kind), np.int64)
    for route, profile, count in zip(routes, profiles, counts, strict=True):
        chunks = columns.chunk[route, : columns.length[route]]
        work += count * problem.durations[profile, chunks].sum(axis=0)
    share = problem.time.tick / (placement.devices * placement.microbatches)
    value = {kind: int(work[kind]) * share for kind in Kind}
    used = problem.durations[np.unique(problem.profile_of)]
    return Case(
        devices=placement.devices,
        microbatches=placement.microbatches,
        forward=value[Kind.F],
        input_grad=value[Kind.I],
        weight_grad=value[Kind.W],
        backward=value[Kind.B],
        options=options,
        uniform=bool((used == used[0, 0]).all()),
        overlap=problem.overlap,
        unit_stash=_unit_stash(problem, placement, split),
    )


def _unit_stash(problem: Problem, placement: Placement, split: bool) -> bool:
    stash, used = problem.stash, np.unique(problem.profile_of)
    if split and stash.freed_at_input[used].any():
        return False
    expected = [placement.devices * share for share in placement.shares]
    return all(
        stash.unit * int(held) == size
        for row in stash.held[used].tolist()
        for held, size in zip(row, expected, strict=True)
    )
