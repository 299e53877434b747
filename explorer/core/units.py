"""Exact quantities: text to `Fraction` to integer ticks. Floats leave in reports only.

Time in abstract runs has the unit ``1``, in modelled runs ``s``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from explorer.core.errors import Inexact, UsageError

HORIZON = 2**42
"""Longest makespan that is accepted, in ticks: sums stay far from the limits of 64-bit integers and of the solver."""

_DECIMAL = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}


def _scaled(unit: str, base: Fraction = Fraction(1)) -> dict[str, Fraction]:
    return {prefix + unit: base * 10**power for prefix, power in _DECIMAL.items()}


_BYTES = _scaled("B") | {f"{p}iB": Fraction(1024**n) for n, p in enumerate(("K", "M", "G", "T"), 1)}

DIMENSIONS: dict[str, dict[str, Fraction]] = {
    "time": {
        "ps": Fraction(1, 10**12), "ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "µs": Fraction(1, 10**6),
        "ms": Fraction(1, 10**3), "s": Fraction(1), "min": Fraction(60),
    },
    "size": _BYTES,
    "bandwidth": {f"{unit}/s": scale for unit, scale in _BYTES.items()}
    | {f"{unit}/s": scale for unit, scale in _scaled("bit", Fraction(1, 8)).items()},
    "throughput": {f"{unit}/s": scale for unit, scale in _scaled("FLOP").items()},
}  # fmt: skip
"""For each dimension the units that text may use, each as a multiple of s, B, B/s or FLOP/s."""

_QUANTITY = re.compile(
    r"\s*([-+]?[0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,3})?(?:/[0-9]+)?|[-+]?\.[0-9]+)\s*(\S*)\s*"
)
_LONGEST = 64
_LARGEST = 10**30


def number(text: str | int | Fraction, what: str = "a number") -> Fraction:
    """Read a plain number exactly: ``1``, ``18.522``, ``1e-3``, ``3/2``.

    Raises
    ------
    UsageError
        If the text is anything else.
    """
    if isinstance(text, (int, Fraction)):
        return Fraction(text)
    value, unit = _split(text, what)
    if unit:
        raise UsageError(f"{what} must be a plain number such as 1.5, got {text!r}")
    return value


def quantity(text: str, dimension: str, what: str = "") -> Fraction:
    """Read a number with its unit, as a multiple of the dimension's base unit (s, B, B/s, FLOP/s).

    Raises
    ------
    UsageError
        If the unit is missing or of another dimension; the message lists those that would do.
    """
    what = what or f"a {dimension}"
    value, unit = _split(text, what)
    units = DIMENSIONS[dimension]
    if unit not in units:
        raise UsageError(f"{what} needs one of the units {', '.join(units)}, got {text!r}")
    return value * units[unit]


def duration(text: str, what: str = "a time") -> tuple[Fraction, str]:
    """Read a time that may be abstract.

    Returns
    -------
    (Fraction, str)
        The value and its unit, ``"1"`` for a plain number and ``"s"`` for a number with a unit of time.
    """
    value, unit = _split(text, what)
    if not unit:
        return value, "1"
    return quantity(text, "time", what), "s"


def _split(text: str, what: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise UsageError(f"{what} must be a number, got {text[:_LONGEST]!r}")
    try:
        value = Fraction(match[1])
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"{what} must be a number, got {text!r}") from None
    if value and not Fraction(1, _LARGEST) <= abs(value) <= _LARGEST:
        raise UsageError(f"{what} must be between 1e-30 and 1e30 in size, got {text!r}")
    return value, match[2]


@dataclass(frozen=True)
class TimeBase:
    """How long a tick is.

    Parameters
    ----------
    tick
        Length of one tick, in ``unit``.
    unit
        ``"1"`` (abstract) or ``"s"``.
    rounds
        Whether durations are rounded to the nearest tick (modelled, measured) or must be whole (given).
    """

    tick: Fraction
    unit: str = "1"
    rounds: bool = False

    @classmethod
    def exact(cls, values: Iterable[Fraction], unit: str = "1") -> TimeBase:
        """The longest tick that measures every value without remainder."""
        parts = [value for value in values if value]
        denominator = math.lcm(*(value.denominator for value in parts))
        numerator = math.gcd(*(int(value * denominator) for value in parts)) or 1
        return cls(Fraction(numerator, denominator), unit)

    def ticks(self, value: Fraction) -> int:
        """A duration in ticks.

        Raises
        ------
        Inexact
            If the value is negative, is no whole number of ticks in an exact base, or passes the horizon.
        """
        count = value / self.tick
        whole = round(count)
        if value < 0:
            raise Inexact(f"a duration cannot be negative, got {as_number(value)}")
        if whole != count and not self.rounds:
            raise Inexact(f"{as_number(value)} is no whole number of ticks of {self.tick} {self.unit}")
        if whole > HORIZON:
            raise Inexact(
                f"{as_number(value)} is over 2^42 ticks of {self.tick}; give costs with fewer digits or closer sizes"
            )
        return whole

    def value(self, ticks: int) -> Fraction:
        """A number of ticks in `unit`."""
        return int(ticks) * self.tick


def as_number(value: Fraction | int) -> int | float:
    """A fraction as JSON carries it: an int where it is whole, else the nearest float."""
    return int(value) if value == int(value) else float(value)
