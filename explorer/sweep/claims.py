"""What the source paper finds, and what this program finds under the same set-up.

The paper (arXiv:2605.24006) was not read: its set-up and findings are taken from two independent summaries of it, and
every figure of theirs is labelled as secondary. Its model and its nine systems ship as configs; what the summaries
leave open is our choice, which each answer names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import schedules
from explorer.config import catalogue
from explorer.config.modelled import ModelledCosts
from explorer.config.recipe import AbstractCosts
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import peaks
from explorer.evaluation.metrics import bubble_ratio
from explorer.evaluation.results import idealised

SOURCE = "arXiv:2605.24006, from two independent summaries of it (secondary)"
SPEEDS = ("slow", "mid", "fast")
SYSTEMS = {
    (network, compute): "paper-h100" if network == compute == "mid" else f"paper-{network}-nw-{compute}-cp"
    for network in SPEEDS
    for compute in SPEEDS
}
"""The nine systems by network and compute, each 0.1, 1 or 10 times an H100-like node's."""
STAGES = (4, 8)
BATCHES = (8, 16, 32, 64, 128, 256)
MODES = ("latency", "link", "blocking")
NEARLY = 0.02
"""What we take "nearly the same time" to mean."""


class Verdict(StrEnum):
    """How a finding fares here."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    CONDITIONAL = "only under named conditions"


@dataclass(frozen=True)
class Claim:
    """A finding and our answer.

    Parameters
    ----------
    said
        Theirs, secondary.
    answer
        Ours, in a sentence or two, from the figures in ``rows``.
    header, rows
        Our figures.
    """

    name: str
    said: str
    verdict: Verdict
    answer: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Figures(NamedTuple):
    """Of one run: makespan, the same by table, idle share, and the largest peak in device units of activation."""

    makespan: Fraction
    table: Fraction
    idle: Fraction
    peak: Fraction


Options = tuple[tuple[str, object], ...]


@cache
def run(
    name: str, system: tuple[str, str], devices: int, microbatches: int, mode: str = "link", sync: bool = True,
    options: Options = (),
) -> Figures:  # fmt: skip
    """Evaluate a schedule with the paper's model on one of its systems."""
    model, cluster = catalogue.load_model("paper-128x4096"), catalogue.load_system(SYSTEMS[system])
    costs = ModelledCosts(model, cluster, Communication(mode), gradient_sync=sync)
    schedule = schedules.find(name)(devices, microbatches, recipe=costs.problem, **dict(options))
    return figures(schedule, costs.problem(schedule.placement))


def figures(schedule: Schedule, problem: Problem) -> Figures:
    """Evaluate a schedule."""
    ideal = idealised(problem)
    timeline, table = evaluate(schedule, problem, compile=True), evaluate(schedule, ideal, compile=True)
    peak = problem.stash.unit * int(peaks(schedule, problem, problem.stash).max())
    value = problem.time.value
    return Figures(value(timeline.makespan), value(table.makespan), bubble_ratio(timeline, problem), peak)


def longer(one: Figures, other: Figures) -> float:
    """How much longer one takes than the other, as a fraction; negative if it is faster."""
    return float(one.makespan / other.makespan - 1)


def gpipe_and_1f1b() -> Claim:
    """Equal in time on every system."""
    worst: dict[tuple[tuple[str, str], str], float] = {}
    for system in SYSTEMS:
        for mode in MODES:
            found = [
                longer(run("1f1b", system, *size, mode), run("gpipe", system, *size, mode))
                for size in ((s, b) for s in STAGES for b in BATCHES)
            ]
            worst[system, mode] = max(found, key=abs)
    rows = [(*system, *(_percent(worst[system, mode]) for mode in MODES)) for system in SYSTEMS]
    equal = {mode: [system for system in SYSTEMS if abs(worst[system, mode]) <= NEARLY] for mode in MODES}
    everywhere = [mode for mode, names in equal.items() if len(names) == len(SYSTEMS)]
    said = "; ".join(f"{mode} {len(names)} of {len(SYSTEMS)}" for mode, names in equal.items())
    overlapped = max(spread for (_, mode), spread in worst.items() if mode != "blocking")
    blocking = max((spread for (_, mode), spread in worst.items() if mode == "blocking"), key=abs)
    return Claim(
        "gpipe-1f1b-time",
        "GPipe and 1F1B take nearly the same time on every system.",
        _verdict(len(everywhere) == len(equal), not any(equal.values())),
        f"Systems on which they are within {NEARLY:.0%}, over 4 and 8 stages and 8 to 256 microbatches, by "
        f"communication mode: {said}. Where transfers overlap with compute, 1F1B waits for one each way in every "
        f"round, and takes up to {_percent(overlapped)}; where they keep the sender, the two differ by "
        f"{_percent(blocking)} at most.",
        ("network", "compute", *(f"1F1B over GPipe, {mode}" for mode in MODES)),
        tuple(rows),
    )


def peak_of_1f1b() -> Claim:
    """1F1B holds less."""
    system = ("mid", "mid")
    held = {(s, b): (run("gpipe", system, s, b).peak, run("1f1b", system, s, b).peak) for s in STAGES for b in BATCHES}
    fewer = [size for size, (gpipe, ours) in held.items() if ours < gpipe]
    more = [size for size, (gpipe, ours) in held.items() if ours > gpipe]
    beyond = [size for size in held if size[1] > size[0]]
    return Claim(
        "1f1b-peak",
        "1F1B has the lower peak of activations.",
        _verdict(set(beyond) <= set(fewer) and not more, not fewer),
        f"Lower at {len(fewer)} of {len(held)} sizes, higher at {len(more)}: GPipe holds every microbatch, 1F1B at "
        "most as many as there are stages; with no more microbatches than stages they are equal.",
        ("stages", "microbatches", "GPipe", "1F1B"),
        tuple((str(s), str(b), *(f"{float(peak):g}" for peak in pair)) for (s, b), pair in held.items()),
    )


def chimera_region() -> Claim:
    """Where Chimera beats GPipe."""
    sizes = [(s, b) for s in STAGES for b in (8, 16, 32, 64)]
    gain = {
        (system, size, sync): longer(run("chimera", system, *size, sync=sync), run("gpipe", system, *size))
        for system in SYSTEMS
        for size in sizes
        for sync in (True, False)
    }
    few = [gain[s, size, True] for s in SYSTEMS if s[0] != "slow" for size in sizes if size[1] <= 16]
    many = [gain[s, size, True] for s in SYSTEMS for size in sizes if size[1] == 64]
    slow = [gain[s, size, True] for s in SYSTEMS if s[0] == "slow" for size in sizes]
    wins = [size for size in sizes if sum(gain[s, size, True] < 0 for s in SYSTEMS) > len(SYSTEMS) / 2]
    rows = [
        (*system, "with" if sync else "without", *(_percent(gain[system, size, sync]) for size in sizes))
        for system in SYSTEMS
        for sync in (True, False)
    ]
    return Claim(
        "chimera-region",
        "Chimera wins at few microbatches and on fast networks (at most 16 microbatches: up to about 15% under GPipe; "
        "gone by 64), and loses on slow networks.",
        _verdict(max(few) < 0 <= min(many) and min(slow) > 0, min(few) >= 0),
        f"On most systems it is faster than GPipe at (stages, microbatches) {_sizes(wins)}, by up to "
        f"{_percent(-min(gain.values()), sign=False)}; at 64 microbatches it is slower in {sum(g > 0 for g in many)} "
        f"of {len(many)} runs. On slow networks it wins {sum(g < 0 for g in slow)} of {len(slow)} runs all the same: "
        "those where compute is slow too, or microbatches are few. The replicas' all-reduce counts; the figures show "
        "both.",
        ("network", "compute", "all-reduce", *(f"{s}, {b}" for s, b in sizes)),
        tuple(rows),
    )


def chimera_formula() -> Claim:
    """Formula against table at (8, 16)."""
    devices, microbatches = 8, 16
    ratio = Fraction(devices - 2, 2 * microbatches + devices - 2)
    schedule = schedules.find("chimera")(devices, microbatches)
    model, system = catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100")
    tables = {
        name: figures(schedule, idealised(costs.problem(schedule.placement))).idle
        for name, costs in (
            ("table, backward = forward", AbstractCosts(backward=Fraction(1))),
            ("table, backward = 2 forwards", AbstractCosts()),
            ("table, modelled costs", ModelledCosts(model, system)),
        )
    }
    told = {name: _percent(float(value), sign=False) for name, value in tables.items()}
    modelled = float(tables["table, modelled costs"])
    return Claim(
        "chimera-formula",
        "At 8 stages and 16 microbatches Chimera's formula gives a bubble of 16% and its table 26%.",
        _verdict(round(100 * ratio) == 16 and abs(modelled - 0.26) <= 0.02, modelled < 0.2),
        f"The closed form (P-2)/(2N+P-2) gives {_percent(float(ratio), sign=False)}. It holds where forward and "
        f"backward are equal, and there the table has {told['table, backward = forward']}. With a backward of two "
        f"forwards it has {told['table, backward = 2 forwards']}, with the model's costs "
        f"{told['table, modelled costs']}: the difference is that of longer backwards, of which the formula does not "
        "know.",
        ("level", "ours", "theirs (secondary)"),
        (
            ("formula (P-2)/(2N+P-2)", _percent(float(ratio), sign=False), "16%"),
            *((name, value, "26%") for name, value in told.items()),
        ),
    )


HANAYO = {("slow", "fast"): (0.1232, 0.1232), ("slow", "mid"): (-0.0233, -0.0233)} | {
    (network, compute): (-0.14, -0.12) for network in ("mid", "fast") for compute in SPEEDS
}
"""Theirs (secondary): how much longer Hanayo takes than Chimera, from and to, by system; one is not told."""


def hanayo_and_chimera() -> Claim:
    """At (8, 8) over the nine systems."""
    variants = [(waves, sync) for waves in (1, 2) for sync in (True, False)]
    gain = {
        (system, *variant): longer(_hanayo(system, variant[0]), run("chimera", system, 8, 8, sync=variant[1]))
        for system in SYSTEMS
        for variant in variants
    }
    agree = {v: sum(gain[s, *v] * theirs[0] > 0 for s, theirs in HANAYO.items()) for v in variants}
    close = {v: sum(t[0] - 0.03 <= gain[s, *v] <= t[1] + 0.03 for s, t in HANAYO.items()) for v in variants}
    best = max(variants, key=lambda v: (close[v], agree[v]))
    told = {(w, sync): f"{w} wave{'s' * (w > 1)}, all-reduce {'in' if sync else 'out'}" for w, sync in variants}
    fast = ("fast", "mid")
    idle = [_percent(float(f.idle), sign=False) for f in (run("chimera", fast, 8, 8), _hanayo(fast, best[0]))]
    theirs = {system: " to ".join(dict.fromkeys(map(_percent, ends))) for system, ends in HANAYO.items()}
    slower = sum(gain[system, 1, True] > 0 for system in SYSTEMS)
    return Claim(
        "hanayo-chimera",
        "At 8 stages and 8 microbatches Hanayo is 12-14% faster than Chimera on fast and medium networks (idle from "
        "about 35% to 25%), 2.33% faster with slow network and medium compute, 12.32% slower with slow network and "
        "fast compute.",
        _verdict(close[best] == len(HANAYO), max(agree.values()) == 0),
        f"The summaries do not give the number of waves. With {told[best]}, {close[best]} of {len(HANAYO)} systems are "
        f"within 3 points of theirs and {agree[best]} have the same sign; on the fast network with medium compute, "
        f"idle goes from {idle[0]} to {idle[1]}. With one wave it is slower on {slower} of {len(SYSTEMS)} systems.",
        ("network", "compute", *told.values(), "theirs (secondary)"),
        tuple((*s, *(_percent(gain[s, *v]) for v in variants), theirs.get(s, "-")) for s in SYSTEMS),
    )


def _hanayo(system: tuple[str, str], waves: int) -> Figures:
    return run("hanayo", system, 8, 8, options=(("waves", waves),))


def asymmetric_chimera() -> Claim:
    """An uneven split of blocks."""
    sizes = [(s, b) for s in STAGES for b in (8, 16, 64)]
    gain = {
        (system, size): longer(run("asymmetric-chimera", system, *size), run("chimera", system, *size))
        for system in SYSTEMS
        for size in sizes
    }
    peak = {
        size: (run("chimera", ("mid", "mid"), *size).peak, run("asymmetric-chimera", ("mid", "mid"), *size).peak)
        for size in sizes
    }
    falls = [size for size, (even, uneven) in peak.items() if uneven < even]
    fast = [gain[s, size] for s in SYSTEMS if s[0] == "fast" for size in sizes if size[0] == 4]
    few = [gain[s, (8, 8)] for s in SYSTEMS]
    peaks_told = "; ".join(f"{s}, {b}: {float(p):g} to {float(q):g}" for (s, b), (p, q) in peak.items())
    return Claim(
        "asymmetric-chimera",
        "An uneven 1:2 split of blocks does not lower the global peak; it is about 5% faster at 4 stages on a fast "
        "network, and slower at 8 stages with few microbatches.",
        _verdict(not falls and max(fast) < -0.03 and min(few) > 0, bool(falls) and min(fast) > -0.01 and max(few) <= 0),
        f"Their construction is not told; ours splits the blocks 1:2 along each direction. The peak falls at "
        f"{_sizes(falls) or 'no size'} (stages, microbatches: symmetric to uneven in device units: {peaks_told}). At 4 "
        f"stages on fast networks its time differs by {_percent(min(fast))} to {_percent(max(fast))}, at 8 stages and "
        f"8 microbatches by {_percent(min(few))} to {_percent(max(few))}: in the same order, only transfers and the "
        "all-reduce make a difference.",
        ("network", "compute", *(f"{s}, {b}" for s, b in sizes)),
        tuple((*system, *(_percent(gain[system, size]) for size in sizes)) for system in SYSTEMS),
    )


RANKED: tuple[tuple[str, Options], ...] = (
    ("gpipe", ()), ("1f1b", ()), ("chimera", ()), ("asymmetric-chimera", ()), ("hanayo", (("waves", 2),)),
)  # fmt: skip


def rank_changes() -> Claim:
    """Table against execution."""
    rows, moved, overturned = [], 0, 0
    for system in SYSTEMS:
        found = {name: run(name, system, 8, 8, options=options) for name, options in RANKED}
        places = [
            {name: 1 + sum(key(other) < key(f) for other in found.values()) for name, f in found.items()}
            for key in (_table, _makespan)
        ]
        changes = sum(places[0][name] != places[1][name] for name in found)
        moved += changes > 0
        fastest = [min(found, key=lambda name: key(found[name])) for key in (_table, _makespan)]
        overturned += fastest[0] != fastest[1]
        rows.append((*system, *fastest, str(changes)))
    return Claim(
        "rank-changes",
        "Schedules rank differently at different levels of abstraction.",
        _verdict(moved == len(SYSTEMS), moved == 0),
        f"Of GPipe, 1F1B, Chimera, its asymmetric variant and Hanayo with 2 waves, at 8 stages and 8 microbatches, "
        f"some change their place from table to execution on {moved} of {len(SYSTEMS)} systems (equal ones that part "
        f"count), and on {overturned} another one wins.",
        ("network", "compute", "fastest by table", "fastest in execution", "schedules that change place"),
        tuple(rows),
    )


def _table(found: Figures) -> Fraction:
    return found.table


def _makespan(found: Figures) -> Fraction:
    return found.makespan


CLAIMS: dict[str, Callable[[], Claim]] = {
    "gpipe-1f1b-time": gpipe_and_1f1b,
    "1f1b-peak": peak_of_1f1b,
    "chimera-region": chimera_region,
    "chimera-formula": chimera_formula,
    "hanayo-chimera": hanayo_and_chimera,
    "asymmetric-chimera": asymmetric_chimera,
    "rank-changes": rank_changes,
}


def _verdict(confirmed: bool, refuted: bool) -> Verdict:
    return Verdict.CONFIRMED if confirmed else Verdict.REFUTED if refuted else Verdict.CONDITIONAL


def _percent(value: float, sign: bool = True) -> str:
    return f"{100 * value:{'+' if sign else ''}.1f}%"


def _sizes(sizes: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"({s}, {b})" for s, b in sizes)
