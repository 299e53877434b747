"""Grids: a TOML file whose product of axes is a list of problems."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

from explorer.config.decode import parse
from explorer.core.errors import Malformed, UsageError, nearest
from explorer.core.files import read_text
from explorer.core.units import quantity
from explorer.sweep.costs import ABSTRACT, COMMON, MODELLED

MOST_POINTS = 1_000_000
_SIZES = ("devices", "microbatches")
_KEYS = ("schedules", *_SIZES, "costs")
_RANGED = {"latency": ("time", "us", Fraction(1, 10**6)), "bandwidth": ("bandwidth", "GB/s", Fraction(10**9))}
"""Costs that may be given as a range: their dimension, and the unit in which its points are written."""

Value = str | int | bool


@dataclass(frozen=True)
class Point:
    """One problem of a grid.

    Parameters
    ----------
    schedule
        As on the command line, such as ``hanayo:waves=2``.
    devices, microbatches
        Sizes.
    costs
        Names and values of `explorer.sweep.costs`, in the order of the names.
    """

    schedule: str
    devices: int
    microbatches: int
    costs: tuple[tuple[str, Value], ...]

    @property
    def axes(self) -> dict[str, Value]:
        """Everything that can vary, by name."""
        sizes: dict[str, Value] = {
            "schedule": self.schedule,
            "devices": self.devices,
            "microbatches": self.microbatches,
        }
        return sizes | dict(self.costs)


@dataclass(frozen=True)
class Grid:
    """A product of axes.

    Parameters
    ----------
    schedules, devices, microbatches
        Values of these axes; sequences that need not be held in memory.
    costs
        The axes of costs, by name.
    """

    schedules: Sequence[str]
    devices: Sequence[int]
    microbatches: Sequence[int]
    costs: Mapping[str, Sequence[Value]]

    @property
    def size(self) -> int:
        """How many points there are."""
        return math.prod(map(len, (self.schedules, self.devices, self.microbatches, *self.costs.values())))

    def points(self) -> Iterator[Point]:
        """All points; those with the same costs stand together.

        Raises
        ------
        UsageError
            If there are too many.
        """
        if self.size > MOST_POINTS:
            raise UsageError(
                f"the grid has {self.size:,} points, more than {MOST_POINTS:,}; give fewer values to some axis"
            )
        names = sorted(self.costs)
        for values in product(*(self.costs[name] for name in names)):
            costs = tuple(zip(names, values, strict=True))
            for devices, microbatches, schedule in product(self.devices, self.microbatches, self.schedules):
                yield Point(schedule, devices, microbatches, costs)


def load(path: Path) -> Grid:
    """Read a grid.

    Raises
    ------
    UsageError
        If the file cannot be read.
    Malformed
        If it is no TOML, or a key is unknown, missing or wrong.
    """
    where = str(path)
    table = parse(read_text(path), where)
    for key in table:
        if key not in _KEYS:
            raise Malformed(f"unknown key {key!r}; {nearest(key, _KEYS)}", where)
    costs = table.get("costs", {})
    if not isinstance(costs, dict):
        raise Malformed("costs must be a table [costs]", where)
    known = (*COMMON, *ABSTRACT, *MODELLED)
    for key in costs:
        if key not in known:
            raise Malformed(f"unknown key {'costs.' + key!r}; {nearest(key, known)}", where)
    for name in ("schedules", *_SIZES):
        if name not in table:
            raise Malformed(f"the key {name!r} is missing", where)
    try:
        return Grid(
            _texts("schedules", table["schedules"]),
            _counts("devices", table["devices"]),
            _counts("microbatches", table["microbatches"]),
            {name: _costs(name, value) for name, value in costs.items()},
        )
    except UsageError as error:
        raise Malformed(str(error), where) from None


def _texts(name: str, value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(each, str) for each in values):
        raise UsageError(f"{name} must be text, or a list of text, got {value!r}")
    return _distinct(name, values)


def _counts(name: str, value: Any) -> Sequence[int]:
    """A number, a list of numbers, or a range: from, to, and step or factor."""
    if isinstance(value, dict):
        return _range(name, value)
    values = value if isinstance(value, list) else [value]
    if not values or not all(type(each) is int and 0 < each < 2**31 for each in values):
        raise UsageError(f"{name} must be a whole number from 1, a list of them or a range, got {value!r}")
    return _distinct(name, values)


def _range(name: str, given: Mapping[str, Any]) -> Sequence[int]:
    keys = set(given)
    if not all(type(value) is int and value > 0 for value in given.values()) or keys not in (
        {"from", "to"}, {"from", "to", "step"}, {"from", "to", "factor"},
    ):  # fmt: skip
        raise UsageError(f"a range of {name} has whole numbers 'from' and 'to', and 'step' or 'factor'")
    first, last = given["from"], given["to"]
    if last < first or given.get("factor") == 1:
        raise UsageError(f"the range of {name} holds nothing: from {first} to {last}")
    if "factor" not in given:
        return range(first, last + 1, given.get("step", 1))
    values = []
    while first <= last:
        values.append(first)
        first *= given["factor"]
    return tuple(values)


def _costs(name: str, value: Any) -> Sequence[Value]:
    if isinstance(value, dict):
        return _geometric(name, value)
    values = value if isinstance(value, list) else [value]
    if not values:
        raise UsageError(f"costs.{name} has no value")
    return _distinct(name, [each if isinstance(each, (bool, int)) else str(each) for each in values])


def _geometric(name: str, given: Mapping[str, Any]) -> Sequence[str]:
    """``points`` values between two quantities, evenly spaced by ratio, rounded to four digits."""
    if name not in _RANGED or set(given) != {"from", "to", "points"}:
        raise UsageError(
            f"costs.{name} must be a value or a list of values; {{from, to, points}} is for {' and '.join(_RANGED)}"
        )
    dimension, unit, scale = _RANGED[name]
    first, last = (float(quantity(str(given[key]), dimension, f"costs.{name}") / scale) for key in ("from", "to"))
    points = given["points"]
    if type(points) is not int or not 2 <= points <= MOST_POINTS or min(first, last) <= 0:
        raise UsageError(f"a range of costs.{name} needs 2 to {MOST_POINTS:,} points, and positive ends")
    steps = (first * (last / first) ** (place / (points - 1)) for place in range(points))
    return _distinct(name, [f"{value:.4g} {unit}" for value in steps])


def _distinct(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    if len(set(map(repr, values))) < len(values):
        raise UsageError(f"{name} names a value twice")
    return tuple(values)
