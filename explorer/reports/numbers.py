"""Numbers as people read them; the exact values stay in the results."""

from __future__ import annotations

from fractions import Fraction

_TIME = (
    (Fraction(1), "s"),
    (Fraction(1, 10**3), "ms"),
    (Fraction(1, 10**6), "us"),
    (Fraction(1, 10**9), "ns"),
)
_SIZE = ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"), (1, "B"))


def plain(value: Fraction | int | None, digits: int = 6) -> str:
    """Up to ``digits`` significant digits; a dash for None."""
    if value is None:
        return "-"
    if value == int(value) and abs(int(value)) < 10**9:
        return str(int(value))
    return f"{float(value):.{digits}g}"


def time(value: Fraction | None, unit: str) -> str:
    """A time with its unit: as it stands if abstract, else in the SI unit that suits."""
    if value is None or unit == "1":
        return plain(value)
    factor, name = scale(value, unit)
    return f"{plain(value / factor, 4)} {name}"


def scale(value: Fraction, unit: str) -> tuple[Fraction, str]:
    """The SI unit that suits a time: what to divide by, and its name; 1 and no name for an abstract time."""
    if unit == "1":
        return Fraction(1), ""
    return next(((s, n) for s, n in _TIME if abs(value) >= s), _TIME[-1])


def size(value: int | None) -> str:
    """A number of bytes in the binary unit that suits."""
    if value is None:
        return "-"
    factor, name = size_scale(value)
    return f"{float(value) / factor:.4g} {name}"


def size_scale(value: int) -> tuple[int, str]:
    """The binary unit that suits a number of bytes: what to divide by, and its name."""
    return next(((s, n) for s, n in _SIZE if value >= s), _SIZE[-1])


def percent(value: Fraction | None) -> str:
    """A ratio as a percentage with one decimal."""
    return "-" if value is None else f"{float(value) * 100:.1f}%"
