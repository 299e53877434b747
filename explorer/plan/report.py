"""A plan as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from explorer.evaluation.reasons import Share, shares
from explorer.plan.candidates import Candidate, titan_flags
from explorer.plan.planner import Outcome, Plan, enough_devices
from explorer.reports import numbers


def table(found: Plan) -> RenderableType:
    """The best settings, the launch flags of the first, and why others fell out."""
    shown = Table(title=f"The best of {found.tried} settings", title_justify="left")
    for column in (
        "tp", "pp", "cp", "dp", "ep", "microbatch", "schedule", "recompute", "iteration", "tokens/s/device", "MFU",
        "bubble",
        "exposed comm", "peak memory", "device",
    ):  # fmt: skip
        shown.add_column(column, justify="left" if column in ("schedule", "recompute") else "right")
    for outcome in found.best:
        shown.add_row(*_cells(outcome))
    parts: list[RenderableType] = [shown] if found.best else []
    if found.best:
        best = found.best[0]
        parts.append(Text(f"Megatron-LM: {best.candidate.flags(best.wish)}"))
        titan = titan_flags(best.candidate, best.wish)
        parts += [Text(f"torchtitan: {titan}")] if titan else []
    elif found.closest is not None:
        parts.append(Text(misses(found.closest)))
    else:
        parts.append(Text(f"no setting of the grid can run; most often because {found.illegal or 'of sizes'}"))
    fallen = ", ".join(f"{count} {why}" for why, count in found.fallen.most_common())
    parts.append(Text(f"{found.evaluated} evaluated; {fallen}", "dim"))
    return Group(*parts)


def misses(outcome: Outcome) -> str:
    """By how much a setting does not fit."""
    over = outcome.memory - int(outcome.wish.system.memory.size)
    larger = enough_devices(outcome.wish)
    change = (
        f"no more devices of this system, to 64 times as many, make it fit with a batch of {outcome.wish.global_batch}"
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
        over = outcome.memory - int(outcome.wish.system.memory.size)
        return f"yours ({own}) does not fit: device {outcome.device} needs {numbers.size(over)} more than it has"
    time = numbers.time(outcome.seconds, "s")
    if not found.best or outcome.seconds <= found.best[0].seconds:
        return f"yours ({own}) takes {time}: none is better"
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
        "tried": found.tried,
        "evaluated": found.evaluated,
        "fallen": dict(found.fallen),
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
        "flags": candidate.flags(wish),
        "torchtitan_flags": titan_flags(candidate, wish),
    }


def _cells(outcome: Outcome) -> Iterator[str]:
    candidate = outcome.candidate
    chunks = f" x {candidate.virtual}" if candidate.schedule == "interleaved-1f1b" else ""
    chunks += ", balanced" if candidate.balanced else ""
    yield from (str(candidate.tensor), str(candidate.pipeline), str(candidate.context))
    yield str(candidate.data(outcome.wish))
    yield from (str(candidate.expert), str(candidate.microbatch), candidate.schedule + chunks, candidate.recompute)
    yield from (numbers.time(outcome.seconds, "s"), f"{float(outcome.tokens):.0f}")
    yield from (numbers.percent(outcome.utilisation), _bubble(outcome), _exposed(outcome))
    yield numbers.size(outcome.memory)
    yield str(outcome.device)


def _exposed(outcome: Outcome) -> str:
    """Mean over devices of the time in which they wait for a transfer on its way."""
    ran = outcome.evaluation
    ticks = shares(ran.timeline, ran.problem)[Share.COMMUNICATION]
    return numbers.time(ticks * ran.problem.time.tick, "s")


def _bubble(outcome: Outcome) -> str:
    return numbers.percent(outcome.evaluation.levels["execution"].bubble_ratio)


def _context(candidate: Candidate) -> str:
    return f"cp {candidate.context}, " if candidate.context > 1 else ""


def _named(candidate: Candidate) -> str:
    chunks = f" x {candidate.virtual}" if candidate.virtual > 1 else ""
    chunks += ", balanced layers" if candidate.balanced else ""
    return (
        f"tp {candidate.tensor}, pp {candidate.pipeline}, {_context(candidate)}microbatch {candidate.microbatch}, "
        f"{candidate.schedule}{chunks}, recompute {candidate.recompute}"
    )
