"""The costs that a result of a search keeps, for other evaluations of its schedule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from explorer.config.limits import UNLIMITED, check_shares, memory_limit
from explorer.core.placement import Placement
from explorer.core.problem import Communication, MemoryLimit, Problem, Stash
from explorer.io import native, optimum
from explorer.io import problem as problems


@dataclass(frozen=True)
class KeptCosts:
    """The costs of a search, as its result keeps them: of one placement.

    Parameters
    ----------
    kept
        The problem of the search.
    communication, memory_limit, overlap, freed_at_input
        What is otherwise this time; None for as it was.
    gradient_sync
        Whether all-reduces that take time are left as they were.
    """

    kept: Problem
    communication: Communication | None = None
    memory_limit: str | None = None
    overlap: Fraction | None = None
    freed_at_input: Fraction | None = None
    gradient_sync: bool = True

    def problem(self, placement: Placement) -> Problem:
        """The problem as it was, but for what is said otherwise.

        Raises
        ------
        UsageError
            If the placement has other sizes, or a value is wrong.
        """
        self.kept.require_fits(placement)
        problem = self.kept
        check_shares(self.freed_at_input or Fraction(0), problem.overlap if self.overlap is None else self.overlap)
        if self.overlap is not None:
            problem = replace(problem, overlap=self.overlap)
        if self.freed_at_input is not None:
            problem = _freeing(problem, self.freed_at_input)
        if not self.gradient_sync:
            problem = replace(problem, sync=np.zeros_like(problem.sync), sync_path=())
        if self.communication is not None:
            problem = _communicating(problem, self.communication)
        if self.memory_limit is not None:
            limit = memory_limit(self.memory_limit, problem.devices, problem.stash, problem.bytes)
            problem = replace(problem, memory_limit=limit)
        return problem


def kept_costs(path: Path) -> KeptCosts | None:
    """The costs in a result of a search; None for any other file.

    Raises
    ------
    UsageError, Malformed
        If the file cannot be read, or is meant as a result and damaged.
    """
    if path.suffix.lower() != ".json" or not optimum.is_result(native.read_json(path)):
        return None
    problem = problems.decode(optimum.read(path)["problem"], f"{path}: problem")
    return KeptCosts(replace(problem, title=f"costs kept in {path}"))


def _communicating(problem: Problem, mode: Communication) -> Problem:
    """In another mode; a time that was given for a whole transfer now occupies the link if the mode is `link`."""
    network = problem.network
    if mode is Communication.LINK and problem.bytes is None and not network.occupancy.any():
        whole = network.occupancy + network.latency
        network = replace(network, occupancy=whole, latency=np.zeros_like(network.latency))
    return replace(problem, communication=mode, network=network)


def _freeing(problem: Problem, share: Fraction) -> Problem:
    """With another share of each activation that I frees; device units are held in parts in which it is whole."""
    parts, stash, limit = share.denominator, problem.stash, problem.memory_limit
    finer = Stash(
        stash.unit / parts, stash.held * parts, stash.held * share.numerator, stash.static * parts,
        None if stash.weights is None else stash.weights * parts,
    )  # fmt: skip
    if limit is not None and not limit.in_bytes:
        limit = MemoryLimit(tuple(min(one * parts, UNLIMITED) for one in limit.per_device), False, limit.text)
    in_bytes = problem.bytes
    if in_bytes is not None:
        in_bytes = replace(in_bytes, freed_at_input=in_bytes.held * share.numerator // parts)
    return replace(problem, stash=finer, bytes=in_bytes, memory_limit=limit)
