"""Limits on what costs may be given."""

from __future__ import annotations

from fractions import Fraction

from explorer.core.errors import UsageError
from explorer.core.problem import MemoryLimit, Stash
from explorer.core.units import number, quantity

UNLIMITED = 2**62
"""No stash reaches it: larger limits say the same."""


def check_shares(freed_at_input: Fraction, overlap: Fraction) -> None:
    """Check the share of an activation that I frees, and what an overlapped pair takes of its ops' sum.

    Raises
    ------
    UsageError
        If the share is not within 0 and 1, or the factor is negative.
    """
    if not 0 <= freed_at_input <= 1:
        raise UsageError(f"the share freed at the input gradient must be between 0 and 1, got {freed_at_input}")
    if overlap < 0:
        raise UsageError(f"the overlap factor cannot be negative, got {overlap}")


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
