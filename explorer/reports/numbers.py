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
    scale, name = next(((s, n) for s, n in _TIME if abs(value) >= s), _TIME[-1])
    return f"{plain(value / scale, 4)} {name}"


def size(value: int | None) -> str:
    """A number of bytes in the binary unit that suits."""
    if value is None:
        return "-"
    scale, name = next(((s, n) for s, n in _SIZE if value >= s), _SIZE[-1])
    return f"{float(value) / scale:.4g} {name}"


def percent(value: Fraction | None) -> str:
    """A ratio as a percentage with one decimal."""
    return "-" if value is None else f"{float(value) * 100:.1f}%"
