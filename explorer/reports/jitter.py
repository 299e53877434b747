"""How schedules take jitter, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from rich.table import Table
from rich.text import Text

from explorer.evaluation.jitter import Jitter, Spread
from explorer.reports import numbers


def table(spreads: Mapping[str, Spread], unit: str, jitter: Jitter) -> Table:
    """One line a schedule, the lowest 95th percentile first; places by it against places without jitter."""
    told = Table(title=f"Under jitter: {described(jitter)}", title_justify="left")
    told.add_column("schedule")
    for column in ("undisturbed", "mean", "median", "95th percentile", "highest", "lost on average"):
        told.add_column(column, justify="right")
    calm, rough = (_places({n: getattr(s, of) for n, s in spreads.items()}) for of in ("undisturbed", "high"))
    for name in sorted(spreads, key=lambda name: spreads[name].high):
        found = spreads[name]
        mark = "" if calm[name] == rough[name] else " \u25b2" if rough[name] < calm[name] else " \u25bc"
        told.add_row(
            name,
            f"{_time(found.undisturbed, unit)} [{calm[name]}]",
            _time(found.mean, unit),
            _time(found.median, unit),
            Text(f"{_time(found.high, unit)} [{rough[name]}]{mark}"),
            _time(found.highest, unit),
            f"{100 * (found.mean / found.undisturbed - 1):.1f}%" if found.undisturbed else "-",
        )
    return told


def described(jitter: Jitter) -> str:
    """Jitter in words."""
    parts = [f"{n} {getattr(jitter, n):g}" for n in ("ops", "transfers", "devices") if getattr(jitter, n)]
    parts += [f"a straggler {jitter.straggler:g} times as slow"] if jitter.straggler > 1 else []
    return f"{', '.join(parts) or 'none'}; {jitter.draws} draws, seed {jitter.seed}"


def _places(values: Mapping[str, float]) -> dict[str, int]:
    return {name: 1 + sum(other < value for other in values.values()) for name, value in values.items()}


def _time(value: float, unit: str) -> str:
    return numbers.time(Fraction(value), unit)
