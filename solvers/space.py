"""What the memory limit leaves for activations."""

from __future__ import annotations

from explorer.core.errors import Inapplicable
from explorer.core.problem import MemoryLimit, Problem, Stash


def limited_stash(problem: Problem, limit: MemoryLimit) -> Stash:
    """The measure that the limit is in."""
    stash = problem.bytes if limit.in_bytes else problem.stash
    if stash is None:
        raise Inapplicable(f"the limit {limit.text} is in bytes and needs modelled costs")
    return stash


def room(problem: Problem, resident: tuple[tuple[int, ...], ...]) -> tuple[int, ...] | None:
    """What each device's limit leaves for its stash, static memory taken off; None where there is no limit."""
    limit = problem.memory_limit
    if limit is None:
        return None
    stash = limited_stash(problem, limit)
    return tuple(
        most - (sum(int(stash.static[chunk]) for chunk in chunks) if limit.in_bytes else 0)
        for most, chunks in zip(limit.per_device, resident, strict=True)
    )
