"""A plan as tables and as JSON."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from explorer.evaluation.reasons import Share, shares
from explorer.plan.candidates import Candidate, shape, sparse, titan_flags
from explorer.plan.planner import MOST_DEVICES, OVER, Outcome, Plan
from explorer.reports import numbers
from explorer.reports.tables import fitted


def table(found: Plan, named: Sequence[str], width: int = 160) -> RenderableType:
    """The best settings, how to launch the first, and why others fell out.

    Parameters
    ----------
    named
        Words of the command line that name the model and the system.
    """
    columns: dict[str, list[str | Text]] = {}
    for outcome in found.best:
        for name, cell in _cells(outcome):
            columns.setdefault(name, []).append(cell)
    parts: list[RenderableType] = []
    if found.best:
        shown, narrow = fitted(f"The best of {found.weighed} settings", columns, width, _DROPPED_FIRST, _LEFT)
        parts += [shown, *([Text(narrow.strip(), "dim italic")] if narrow else [])]
        parts += [Text(line, no_wrap=True, overflow="ignore") for line in _launch(found.best[0], named)]
        parts += [Text(line, "yellow") for line in _cautions(found.best[0])]
    elif found.interrupted:
        parts.append(Text("none that fits was found so far"))
    elif found.closest is not None:
        parts.append(Text(misses(found.closest, found.enough)))
    else:
        why = found.illegal.most_common(1)
        parts.append(Text(f"no setting of the grid can run; most often because {why[0][0] if why else 'of sizes'}"))
    parts.append(Text(_summary(found), "dim"))
    if found.interrupted:
        parts.append(Text(f"interrupted: {found.weighed} of {found.tried} settings were weighed", "yellow"))
    return Group(*parts)


_DROPPED_FIRST = ("device", "cp", "ep", "exposed comm", "tokens/s/device", "peak memory", "bubble", "recompute")
_LEFT = ("schedule", "recompute")
_ROOM = Fraction(95, 100)
"""The part of a device's memory over which a plan is told to be tight."""


def _launch(best: Outcome, named: Sequence[str]) -> Iterator[str]:
    candidate, wish = best.candidate, best.wish
    flags, titan = candidate.flags(wish), titan_flags(candidate, wish)
    if flags:
        yield f"Megatron-LM: {flags}"
    if titan:
        yield f"torchtitan: {titan}"
    if not flags:
        words = ["explorer", "export", candidate.schedule, *named, *candidate.words(wish), "--output", "schedule.csv"]
        yield f"the schedule: {shlex.join(words)}"


def _cautions(best: Outcome) -> Iterator[str]:
    if why := sparse(best.candidate, best.wish):
        yield f"no setting of the grid with as many microbatches as pipeline devices fits; in the first, {why}"
    size = int(best.wish.system.memory.size)
    if best.memory > _ROOM * size:
        yield (
            f"the first leaves {numbers.size(size - best.memory)} of a device's {numbers.size(size)}: the context, "
            "buffers of NCCL and fragmentation take some, which --mem-limit leaves free"
        )


def _summary(found: Plan) -> str:
    fallen = dict(found.fallen)
    over = fallen.pop(OVER, 0)
    rest = "; ".join(f"{count} {why}" for why, count in Counter(fallen).most_common())
    names = ", ".join(found.schedules)
    return f"schedules tried: {names}. {found.evaluated} evaluated, {over} of them {OVER}" + (
        f"; {rest}" if rest else ""
    )


def misses(outcome: Outcome, larger: Outcome | None) -> str:
    """By how much a setting does not fit, and on how many devices one does."""
    over = outcome.memory - outcome.wish.room
    change = (
        f"nor was a setting found that does with a batch of {outcome.wish.global_batch} on 2, 4, ... "
        f"{MOST_DEVICES} times as many devices, as far as the system has them"
        if larger is None
        else f"{larger.wish.devices} devices would do: {_named(larger.candidate)} needs {numbers.size(larger.memory)}"
    )
    return (
        f"nothing fits: the closest, {_named(outcome.candidate)}, needs {numbers.size(outcome.memory)} on device "
        f"{outcome.device}, {numbers.size(over)} more than there is; {change}"
    )


def mine(outcome: Outcome, found: Plan) -> str:
    """How the user's own setting stands against the best."""
    own = _named(outcome.candidate)
    if not outcome.fits:
        over = outcome.memory - outcome.wish.room
        return f"yours ({own}) does not fit: device {outcome.device} needs {numbers.size(over)} more than it has"
    time = numbers.time(outcome.seconds, "s")
    if not found.best or outcome.seconds <= found.best[0].seconds:
        return f"yours ({own}) takes {time}: none that was tried is faster"
    best = found.best[0]
    rank = sum(other.seconds < outcome.seconds for other in found.best) + 1
    place = f"place {rank}" if rank <= len(found.best) else f"behind the first {len(found.best)}"
    more = numbers.percent(outcome.seconds / best.seconds - 1)
    return (
        f"yours ({own}) takes {time}, {more} more than the best: {place}. It peaks at {numbers.size(outcome.memory)}, "
        f"has a bubble of {_bubble(outcome)} and an MFU of {numbers.percent(outcome.utilisation)}; the best "
        f"({_named(best.candidate)}) {numbers.size(best.memory)}, {_bubble(best)} and "
        f"{numbers.percent(best.utilisation)}"
    )


def contract(found: Plan) -> dict[str, Any]:
    """The same for programs."""
    return {
        "best": [_outcome(outcome) for outcome in found.best],
        "closest": None if found.closest is None else _outcome(found.closest),
        "enough": None if found.enough is None else _outcome(found.enough) | {"devices": found.enough.wish.devices},
        "tried": found.tried,
        "weighed": found.weighed,
        "interrupted": found.interrupted,
        "evaluated": found.evaluated,
        "fallen": dict(found.fallen),
        "illegal": dict(found.illegal.most_common(20)),
        "schedules": list(found.schedules),
    }


def _outcome(outcome: Outcome) -> dict[str, Any]:
    candidate, wish = outcome.candidate, outcome.wish
    split = shares(outcome.evaluation.timeline, outcome.evaluation.problem)
    tick = outcome.evaluation.problem.time.tick
    return {
        **asdict(candidate),
        "data": candidate.data(wish),
        "microbatches": candidate.microbatches(wish),
        "seconds": float(outcome.seconds),
        "tokens_per_second_per_device": float(outcome.tokens),
        "mfu": float(outcome.utilisation),
        "bubble_ratio": float(outcome.evaluation.levels["execution"].bubble_ratio or 0),
        "idle": {str(part): float(value * tick) for part, value in split.items()},
        "peak_memory": outcome.memory,
        "peak_device": outcome.device,
        "fits_memory": outcome.fits,
        "megatron_flags": candidate.flags(wish),
        "torchtitan_flags": titan_flags(candidate, wish),
    }


def _cells(outcome: Outcome) -> Iterator[tuple[str, str]]:
    candidate, wish = outcome.candidate, outcome.wish
    chunks = f" x {candidate.virtual}" if shape(candidate.schedule).dealt else ""
    chunks += ", balanced" if candidate.balanced else ""
    yield "tp", str(candidate.tensor)
    yield "pp", str(candidate.pipeline)
    yield "cp", str(candidate.context)
    yield "dp", str(candidate.data(wish))
    yield "ep", str(candidate.expert)
    yield "microbatch", str(candidate.microbatch)
    yield "schedule", candidate.schedule + chunks
    yield "recompute", candidate.recompute
    yield "iteration", numbers.time(outcome.seconds, "s")
    yield "tokens/s/device", f"{float(outcome.tokens):.0f}"
    yield "MFU", numbers.percent(outcome.utilisation)
    yield "bubble", _bubble(outcome)
    yield "exposed comm", _exposed(outcome)
    yield "peak memory", numbers.size(outcome.memory)
    yield "device", str(outcome.device)


def _exposed(outcome: Outcome) -> str:
    """Mean over devices of the time in which they wait for a transfer on its way."""
    ran = outcome.evaluation
    ticks = shares(ran.timeline, ran.problem)[Share.COMMUNICATION]
    return numbers.time(ticks * ran.problem.time.tick, "s")


def _bubble(outcome: Outcome) -> str:
    return numbers.percent(outcome.evaluation.levels["execution"].bubble_ratio)


def _named(candidate: Candidate) -> str:
    """All in which settings differ; what most share is named where it is otherwise."""
    chunks = f" x {candidate.virtual}" if shape(candidate.schedule).dealt else ""
    parts = {
        f"tp {candidate.tensor}": True,
        f"pp {candidate.pipeline}": True,
        f"cp {candidate.context}": candidate.context > 1,
        f"ep {candidate.expert}": candidate.expert > 1,
        f"microbatch {candidate.microbatch}": True,
        f"{candidate.schedule}{chunks}": True,
        "balanced layers": candidate.balanced,
        f"recompute {candidate.recompute}": True,
        "no sequence parallelism": candidate.tensor > 1 and not candidate.sequence_parallel,
        "no distributed optimizer": not candidate.distributed_optimizer,
    }
    return ", ".join(part for part, told in parts.items() if told)
