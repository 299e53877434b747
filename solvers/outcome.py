"""What a solver knows at the end: an answer says how it knows."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.core.timeline import Timeline


@dataclass(frozen=True, eq=False)
class Proved:
    """An optimum: ``timeline`` takes ``ticks``, and nothing within the scope takes less."""

    ticks: int
    timeline: Timeline


@dataclass(frozen=True, eq=False)
class Found:
    """A solution of ``ticks``; nothing within the scope takes less than ``bound``."""

    ticks: int
    bound: int
    timeline: Timeline


@dataclass(frozen=True)
class Infeasible:
    """Nothing satisfies the limits, and why."""

    reason: str


@dataclass(frozen=True)
class Unknown:
    """Time ran out before anything was found; nothing takes less than ``bound``."""

    bound: int


Outcome = Proved | Found | Infeasible | Unknown
