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
from explorer.core.placement import loop, vee
from explorer.costs.layers import flops
from explorer.evaluation.results import Evaluation
from explorer.plan.candidates import SAME_LAYERS, Candidate, Pattern, Wish, candidates, illegal, shape, sparse

OVER = "over the memory of a device"
FEW = "with fewer microbatches than pipeline devices, tried only where nothing else fits"
MOST_DEVICES = 64
"""How many times as many devices are looked at where nothing fits."""
_KNOWN_WARM_UP = ("1f1b", "zb-h1", "interleaved-1f1b")
"""Schedules whose first device holds what `floor` says."""


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
    weighed
        How many of them were evaluated, or fell out with a reason: all but those left when interrupted.
    evaluated
        How many were evaluated.
    fallen
        Why others were not, and how many each time.
    illegal
        Why those that cannot run cannot, and how many each time.
    schedules
        Those that were tried.
    closest, enough
        If nothing fits: what misses by least, and what fits on more devices.
    interrupted
        Whether this is what was found until then.
    """

    best: tuple[Outcome, ...]
    tried: int
    weighed: int
    evaluated: int
    fallen: Counter[str]
    illegal: Counter[str]
    schedules: tuple[str, ...]
    closest: Outcome | None = None
    enough: Outcome | None = None
    interrupted: bool = False


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


@dataclass(frozen=True)
class Floor:
    """What no order of a setting's ops can do without.

    Parameters
    ----------
    memory
        Bytes that some device needs.
    seconds
        Of an iteration.
    """

    memory: int
    seconds: Fraction


def floor(candidate: Candidate, wish: Wish) -> Floor:
    """The least memory and time of a setting, without building its schedule.

    Time: all microbatches' work on the device that has most of it, without a gap; on the average one, where it is not
    known which stages a schedule puts together. Memory: the average device's weights, or the first's with what its
    warm-up holds. 1F1B and ZB-H1 hold as many microbatches there as there are devices, interleaved 1F1B one chunk more
    than its 2 (p - 1) + (v - 1) p of warm-up (arXiv:2104.04473, section 2.2; arXiv:2401.10241, section 2).
    """
    pipeline, virtual, count = candidate.pipeline, candidate.virtual, candidate.microbatches(wish)
    pattern = shape(candidate.schedule).pattern
    placement = vee(pipeline, count) if pattern is Pattern.VEE else loop(pipeline, count, virtual)
    chunks = candidate.costs(wish).workload(placement).chunks
    work = [chunk.seconds[Kind.F] + chunk.seconds[Kind.B] for chunk in chunks]
    memory, longest = sum(chunk.static for chunk in chunks) // pipeline, Fraction(sum(work), pipeline)
    if pattern is not Pattern.OTHER:
        longest = max(sum((work[chunk] for chunk in resident), Fraction(0)) for resident in placement.resident)
    if candidate.schedule in _KNOWN_WARM_UP:
        first = [chunks[chunk] for chunk in placement.resident[0]]
        inside = pipeline if virtual == 1 else 2 * (pipeline - 1) + (virtual - 1) * pipeline + 1
        held = min(inside, count * virtual) * min(chunk.activation for chunk in first)
        memory = max(memory, sum(chunk.static for chunk in first) + held)
    return Floor(memory, count * longest)


@dataclass
class _Search:
    """A plan in the making; what was found stays where it is interrupted."""

    wish: Wish
    top: int
    best: list[Outcome] = field(default_factory=list)
    closest: Outcome | None = None
    evaluated: int = 0
    fallen: Counter[str] = field(default_factory=Counter)
    illegal: Counter[str] = field(default_factory=Counter)
    heavy: list[tuple[int, Candidate]] = field(default_factory=list)

    @property
    def weighed(self) -> int:
        """How many settings were evaluated, or fell out with a reason."""
        return self.evaluated + self.fallen.total() - self.fallen[OVER]

    def sift(self, grid: Sequence[Candidate]) -> tuple[list[_Promising], list[_Promising]]:
        """Settings that may be among the best, the fastest first, and those of them that leave most devices idle."""
        promising: list[_Promising] = []
        idle: list[_Promising] = []
        for candidate in grid:
            least = _least(candidate, self.wish)
            if least == SAME_LAYERS:
                self.fallen[SAME_LAYERS] += 1
            elif isinstance(least, str):
                self.fallen["not legal"] += 1
                self.illegal[least] += 1
            elif least.memory > self.wish.room:
                self.fallen["over the memory of a device, whatever the order"] += 1
                self.heavy.append((least.memory, candidate))
            else:
                (idle if sparse(candidate, self.wish) else promising).append((least.seconds, candidate))
        return sorted(promising, key=_seconds), sorted(idle, key=_seconds)

    def weigh(self, promising: Sequence[_Promising], progress: Callable[[int], None]) -> None:
        """Evaluate what could be among the best.

        A setting whose least time is over that of the worst of the best so far could not.
        """
        for place, (seconds, candidate) in enumerate(promising):
            if len(self.best) == self.top and seconds >= self.best[-1].seconds:
                self.fallen["slower than the best, whatever the order"] += len(promising) - place
                break
            progress(place)
            try:
                outcome = evaluate(candidate, self.wish)
            except Inapplicable as error:
                self.fallen["the schedule does not exist for these sizes"] += 1
                self.illegal[str(error)] += 1
                continue
            except ExplorerError as error:
                self.fallen[str(error)] += 1
                continue
            self.evaluated += 1
            if outcome.fits:
                self.best = sorted([*self.best, outcome], key=lambda found: found.seconds)[: self.top]
            else:
                self.fallen[OVER] += 1
                self.closest = min((found for found in (self.closest, outcome) if found), key=lambda one: one.memory)


_Promising = tuple[Fraction, Candidate]
"""A setting with its least time."""


def _seconds(promising: _Promising) -> Fraction:
    return promising[0]


def _least(candidate: Candidate, wish: Wish) -> Floor | str:
    """The least that a setting needs, or why it cannot run."""
    try:
        return illegal(candidate, wish) or floor(candidate, wish)
    except ExplorerError as error:
        return str(error)


def plan(
    wish: Wish, grid: Sequence[Candidate], top: int = 10, progress: Callable[[int], None] = lambda done: None
) -> Plan:
    """The ``top`` best settings of a grid.

    Those with fewer microbatches than pipeline devices are tried only where no other fits. What was found until an
    interruption is the answer then.
    """
    search, enough, interrupted = _Search(wish, top), None, False
    try:
        promising, idle = search.sift(grid)
        search.weigh(promising, progress)
        if search.best:
            search.fallen[FEW] += len(idle)
        else:
            search.weigh(idle, progress)
        if not search.best:
            search.closest = _closest(search.heavy, wish, search.closest)
            enough = None if search.closest is None else enough_devices(wish)
    except KeyboardInterrupt:
        interrupted = True
    return Plan(
        tuple(search.best),
        len(grid),
        search.weighed,
        search.evaluated,
        +search.fallen,
        search.illegal,
        wish.schedules,
        None if search.best else search.closest,
        enough,
        interrupted,
    )


def _frugal(candidate: Candidate) -> bool:
    """Whether a setting needs less than otherwise equal ones, as a rule: it recomputes if it may, in small portions."""
    known = shape(candidate.schedule)
    recompute = "none" if known.splits else "full"
    return candidate.recompute == recompute and candidate.microbatch == 1 and candidate.virtual == known.stages


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


def enough_devices(wish: Wish, most: int = MOST_DEVICES) -> Outcome | None:
    """A setting that fits on 2, 4, ... ``most`` times as many devices, the fewest of them; None if none is found.

    Tried are frugal ones only.
    """
    factor = 2
    while factor <= most:
        try:
            larger = replace(wish, devices=wish.devices * factor)
        except UsageError:  # the system has no more
            return None
        for candidate in candidates(larger):
            if not _frugal(candidate):
                continue
            least = _least(candidate, larger)
            if isinstance(least, str) or least.memory > wish.room:
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
