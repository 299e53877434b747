"""Evaluates settings, the most promising first, and keeps the reasons of those that fall out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import schedules
from explorer import api
from explorer.core.errors import ExplorerError, Inapplicable, UsageError
from explorer.core.op import Kind
from explorer.core.placement import Placement, loop, vee
from explorer.costs.layers import flops
from explorer.evaluation.results import Evaluation
from explorer.plan.candidates import IN_A_V, Candidate, Wish, candidates, illegal

OVER = "over the memory of a device"
_ROUND = ("1f1b", "zb-h1", "interleaved-1f1b")
"""Schedules that go round the devices, and whose first device holds what `least_memory` says."""


@dataclass(frozen=True)
class Outcome:
    """A setting, evaluated.

    Parameters
    ----------
    seconds
        Of an iteration, the optimiser's step included.
    memory
        Bytes at the peak of the device that needs most.
    device
        Which one.
    """

    candidate: Candidate
    wish: Wish
    evaluation: Evaluation
    seconds: Fraction
    memory: int
    device: int

    @property
    def fits(self) -> bool:
        """Whether it stays within the devices' memory."""
        return self.memory <= self.wish.room

    @property
    def tokens(self) -> Fraction:
        """Tokens a second and device."""
        return self.wish.global_batch * self.wish.sequence / (self.seconds * self.wish.devices)

    @property
    def utilisation(self) -> Fraction:
        """Model FLOPs utilisation: arXiv:2204.02311, appendix B; nothing that is recomputed counts."""
        wish = self.wish
        work = flops(wish.architecture, self.candidate.training(wish), wish.global_batch)
        return work / (self.seconds * wish.devices * wish.system.compute.matrix)


@dataclass(frozen=True)
class Plan:
    """What is best, and why the rest is not.

    Parameters
    ----------
    best
        Settings that fit, by time of an iteration.
    tried
        How many settings the grid has.
    evaluated
        How many were evaluated.
    fallen
        Why others were not, and how many each time.
    closest
        If nothing fits: what misses by least.
    illegal
        Why those that are not legal are not, and how many each time.
    schedules
        Those that were tried.
    """

    best: tuple[Outcome, ...]
    tried: int
    evaluated: int
    fallen: Counter[str]
    closest: Outcome | None = None
    illegal: Counter[str] = field(default_factory=Counter)
    schedules: tuple[str, ...] = ()


def evaluate(candidate: Candidate, wish: Wish) -> Outcome:
    """One setting.

    Raises
    ------
    ExplorerError
        If the schedule does not exist for it.
    """
    result = api.evaluate(
        candidate.schedule,
        candidate.costs(wish),
        candidate.pipeline,
        candidate.microbatches(wish),
        options=candidate.options,
        engine="longest-path",
    )
    peaks = [report.peak_memory or 0 for report in result.devices]
    most = max(peaks)
    return Outcome(candidate, wish, result, result.makespan, most, peaks.index(most))


def least_seconds(candidate: Candidate, wish: Wish) -> Fraction:
    """No order takes less: all microbatches' work on the device that has most of it, without a gap.

    On the average device, where it is not known which stages a schedule puts together.
    """
    placement = _placement(candidate, wish)
    work = [chunk.seconds[Kind.F] + chunk.seconds[Kind.B] for chunk in candidate.costs(wish).workload(placement).chunks]
    if candidate.schedule not in (*_ROUND, *IN_A_V):
        return candidate.microbatches(wish) * Fraction(sum(work), candidate.pipeline)
    busiest = max(sum(work[chunk] for chunk in resident) for resident in placement.resident)
    return candidate.microbatches(wish) * Fraction(busiest)


def _placement(candidate: Candidate, wish: Wish) -> Placement:
    """In a V down and up again, else round and round."""
    pipeline, count = candidate.pipeline, candidate.microbatches(wish)
    return vee(pipeline, count) if candidate.schedule in IN_A_V else loop(pipeline, count, candidate.virtual)


def least_memory(candidate: Candidate, wish: Wish) -> int:
    """Bytes that some device needs: the average one's weights, or the first's with what its warm-up holds.

    1F1B and ZB-H1 hold as many microbatches there as there are devices, interleaved 1F1B one chunk more than its
    2 (p - 1) + (v - 1) p of warm-up (arXiv:2104.04473, section 2.2; arXiv:2401.10241, section 2).
    """
    pipeline, virtual, placement = candidate.pipeline, candidate.virtual, _placement(candidate, wish)
    chunks = candidate.costs(wish).workload(placement).chunks
    average = sum(chunk.static for chunk in chunks) // pipeline
    if candidate.schedule not in _ROUND:
        return average
    first = [chunks[chunk] for chunk in placement.resident[0]]
    inside = pipeline if virtual == 1 else 2 * (pipeline - 1) + (virtual - 1) * pipeline + 1
    held = min(inside, candidate.microbatches(wish) * virtual) * min(chunk.activation for chunk in first)
    return max(average, sum(chunk.static for chunk in first) + held)


def plan(
    wish: Wish, grid: Sequence[Candidate], top: int = 10, progress: Callable[[int], None] = lambda done: None
) -> Plan:
    """The ``top`` best settings of a grid.

    A setting whose least time is over that of the worst of the best so far is not evaluated: it could not be among
    them.
    """
    fallen: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    promising: list[tuple[Fraction, Candidate]] = []
    heavy: list[tuple[int, Candidate]] = []
    for candidate in grid:
        if (reason := illegal(candidate, wish)) is not None:
            fallen["not legal"] += 1
            reasons[reason] += 1
        elif (needed := least_memory(candidate, wish)) > wish.room:
            fallen["over the memory of a device, whatever the order"] += 1
            heavy.append((needed, candidate))
        else:
            promising.append((least_seconds(candidate, wish), candidate))
    promising.sort(key=lambda pair: pair[0])
    best: list[Outcome] = []
    closest: Outcome | None = None
    evaluated = 0
    for place, (least, candidate) in enumerate(promising):
        if len(best) == top and least >= best[-1].seconds:
            fallen["slower than the best, whatever the order"] += len(promising) - place
            break
        progress(place)
        try:
            outcome = evaluate(candidate, wish)
        except Inapplicable:
            fallen["the schedule does not exist for these sizes"] += 1
            continue
        except ExplorerError as error:
            fallen[str(error)] += 1
            continue
        evaluated += 1
        if outcome.fits:
            best = sorted([*best, outcome], key=lambda found: found.seconds)[:top]
        else:
            fallen[OVER] += 1
            closest = min((found for found in (closest, outcome) if found), key=lambda found: found.memory)
    if not best:
        closest = _closest(heavy, wish, closest)
    return Plan(tuple(best), len(grid), evaluated, fallen, None if best else closest, reasons, wish.schedules)


def _closest(heavy: Sequence[tuple[int, Candidate]], wish: Wish, found: Outcome | None) -> Outcome | None:
    """What needs least memory, of ``found`` and of settings whose weights alone are too much.

    Of settings that are otherwise equal, whole layers recomputed and the smallest microbatch need least.
    """
    frugal = [(needed, one) for needed, one in heavy if one.recompute == "full" and one.microbatch == 1]
    for needed, candidate in sorted(frugal or heavy, key=lambda pair: pair[0]):
        if found is not None and needed >= found.memory:
            break
        try:
            outcome = evaluate(candidate, wish)
        except ExplorerError:
            continue
        found = min((one for one in (found, outcome) if one), key=lambda one: one.memory)
    return found


def enough_devices(wish: Wish, most: int = 64) -> Outcome | None:
    """A setting that fits on 2, 4, ... ``most`` times as many devices, the fewest of them; None if none does."""
    factor = 2
    while factor <= most:
        try:
            larger = replace(wish, devices=wish.devices * factor)
        except UsageError:  # the system has no more
            return None
        for candidate in candidates(larger):
            frugal = candidate.recompute == "full" and candidate.microbatch == 1 and not candidate.balanced
            if not frugal or candidate.schedule == "interleaved-1f1b" or illegal(candidate, larger) is not None:
                continue
            if least_memory(candidate, larger) > wish.room:
                continue
            try:
                outcome = evaluate(candidate, larger)
            except ExplorerError:
                continue
            if outcome.fits:
                return outcome
        factor *= 2
    return None


def known(names: Sequence[str]) -> tuple[str, ...]:
    """Names of schedules, checked.

    Raises
    ------
    UsageError
        If there is none of that name; the message says which are near.
    """
    return tuple(schedules.find(name).name for name in names)
