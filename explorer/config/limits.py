"""Limits on what costs may be given."""

from __future__ import annotations

from fractions import Fraction

from explorer.core.errors import UsageError
from explorer.core.problem import MemoryLimit, Stash
from explorer.core.units import as_number, number, quantity

UNLIMITED = 2**62
"""No stash reaches it: larger limits say the same."""

FINEST = 1000
"""Largest denominator of shares and factors: costs are held in that many parts, and must stay far from 64 bits."""


def check_shares(freed_at_input: Fraction, overlap: Fraction) -> None:
    """Check the share of an activation that I frees, and what an overlapped pair takes of its ops' sum.

    Raises
    ------
    UsageError
        If the share is not within 0 and 1, the factor is negative or over 10, or either is finer than `FINEST`.
    """
    if not 0 <= freed_at_input <= 1:
        raise UsageError(f"the share freed at the input gradient must be between 0 and 1, got {freed_at_input}")
    if not 0 <= overlap <= 10:
        raise UsageError(f"the overlap factor must be between 0 and 10, got {as_number(overlap)}")
    for what, value in (("share freed at the input gradient", freed_at_input), ("overlap factor", overlap)):
        if value.denominator > FINEST:
            raise UsageError(f"the {what} may have three decimals at most, or a denominator up to {FINEST}")


def memory_limit(text: str | None, devices: int, stash: Stash, in_bytes: Stash | None) -> MemoryLimit | None:
    """Read a limit: ``4`` activations in device units, or ``40GiB``; one for all devices or, with commas, one for each.

    Raises
    ------
    UsageError
        If it is no such limit, is not positive, has bytes though costs are abstract, or devices are more or fewer.
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    sizes = [part[-1:] == "B" for part in parts]
    if any(sizes) and not all(sizes):
        raise UsageError(f"the memory limit {text!r} mixes activations and bytes")
    if any(sizes) and in_bytes is None:
        raise UsageError(
            f"the memory limit {text!r} is in bytes, which need modelled costs; abstract ones count activations"
        )
    if len(parts) not in (1, devices):
        raise UsageError(f"{len(parts)} memory limits for {devices} devices; give one, or one for each")
    if all(sizes):
        values, unit = [quantity(part, "size", "a memory limit") for part in parts], Fraction(1)
    else:
        what = "a memory limit in activations (bytes need a unit such as GiB)"
        values, unit = [number(part, what) for part in parts], stash.unit
    if min(values) <= 0:
        raise UsageError(f"a memory limit must be positive, got {text!r}")
    whole = tuple(min(int(value / unit), UNLIMITED) for value in values)
    return MemoryLimit(whole * devices if len(whole) == 1 else whole, all(sizes), text)
