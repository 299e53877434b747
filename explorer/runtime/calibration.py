"""Costs from traces: what each stage's ops and the transfers between devices take, and how well that explains them.

An op that found its input there took as long as its label says. One that was begun before its input had come (runtimes
wait inside the op) shows what the transfer and the op take together, from the end of what made the input. A device
that stood idle until an op began shows the transfer alone. Medians are taken of each; which ops waited depends on what
transfers take, so this is done several times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from explorer.config.measured import KEYS, MeasuredCosts, StageTimes
from explorer.core.errors import Incomplete, Malformed
from explorer.core.op import Kind, Op
from explorer.core.placement import along
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.longest_path import evaluate
from explorer.io.profile import Profile, Ran

NANOSECONDS = Fraction(1, 10**9)
_PASSES = 4
_IDLE = 20_000
"""Nanoseconds between two ops from which a device counts as having waited."""


class Estimate(NamedTuple):
    """A time, in nanoseconds.

    Attributes
    ----------
    median, low, high
        The quartiles: low and high bound the middle half of the samples.
    uncertainty
        The standard error of the median, 1.25 sigma / sqrt(n), with sigma = 1.48 times the median absolute deviation;
        None for a single sample, of which nothing is known.
    samples
        How many.
    waited
        Whether every sample waited for its input: then a transfer's median has been taken off.
    """

    median: float
    low: float
    high: float
    uncertainty: float | None
    samples: int
    waited: bool = False


@dataclass(frozen=True, eq=False)
class Calibration:
    """What traces say.

    Parameters
    ----------
    schedule
        The order that they show.
    stages
        For each stage, an estimate of each kind that was seen.
    transfer
        Of one message between devices; None where the clocks do not agree or no op waited.
    aligned
        Whether the ranks' clocks agree: no op ends before its input is made.
    makespans
        Nanoseconds of each step, from the first op's start to the last one's end; the longest rank's where not aligned.
    predicted
        The timeline of the schedule with these costs.
    """

    schedule: Schedule
    stages: tuple[dict[Kind, Estimate], ...]
    transfer: Estimate | None
    aligned: bool
    makespans: tuple[int, ...]
    predicted: Timeline

    @property
    def explained(self) -> float:
        """The predicted makespan, as a share of the steps' median."""
        return float(self.predicted.makespan / np.median(self.makespans))


Step = list[list[Ran]]
"""What each device ran, by start."""


def calibrate(profiles: Sequence[Profile]) -> Calibration:
    """Estimate costs.

    Parameters
    ----------
    profiles
        One a rank, in any order if they say which rank they are.

    Raises
    ------
    Malformed
        If the traces together do not show whole steps of one schedule; the message says what is missing.
    """
    profiles = _by_rank(profiles)
    steps = _steps(profiles)
    home = _homes(steps[0])
    schedule = _schedule(steps[0], home)
    aligned = all(_agree(step, home) for step in steps)
    known = 0.0
    for number in range(_PASSES):
        stages, transfer = _estimates(steps, home, aligned, known, first=number == 0)
        known = transfer.median if transfer else 0.0
    problem = costs(stages, transfer).problem(schedule.placement)
    makespans = tuple(_makespan(step, aligned) for step in steps)
    return Calibration(schedule, stages, transfer, aligned, makespans, evaluate(schedule, problem))


def _estimates(
    steps: Sequence[Step], home: list[int], aligned: bool, known: float, *, first: bool
) -> tuple[tuple[dict[Kind, Estimate], ...], Estimate | None]:
    """Stages and transfers, given about how many nanoseconds a transfer takes.

    At ``first`` nothing is known, and some ops that seem to have found their input there have waited for the end of its
    transfer: the shortest is then the one that surely did not.
    """
    work, together, transfers = _samples(steps, home, aligned, known)
    stages: tuple[dict[Kind, Estimate], ...] = tuple({} for _ in home)
    for (stage, kind), samples in work.items():
        stages[stage][kind] = _estimate(samples)
    for (stage, kind), samples in together.items():
        if kind in stages[stage]:
            alone = min(work[stage, kind]) if first else stages[stage][kind].median
            transfers += [sample - alone for sample in samples]
    transfer = _estimate(transfers) if transfers else None
    for stage, kind in together.keys() - work.keys():
        taken = transfer.median if transfer else 0.0
        always = _estimate([sample - taken for sample in together[stage, kind]])
        stages[stage][kind] = always._replace(waited=True)
    return tuple(dict(sorted(stage.items())) for stage in stages), transfer


def costs(stages: Sequence[dict[Kind, Estimate]], transfer: Estimate | None) -> MeasuredCosts:
    """The estimates as costs, to the nanosecond."""
    times = [
        StageTimes(**{KEYS[kind]: round(estimate.median) * NANOSECONDS for kind, estimate in stage.items()})
        for stage in stages
    ]
    return MeasuredCosts(tuple(times), _not_negative(transfer) * NANOSECONDS, NANOSECONDS)


def toml(found: Calibration) -> Iterator[str]:
    """A costs file, with what is known of its precision as comments."""
    yield "# measured from traces by `explorer calibrate`; quartiles and standard errors in brackets\n"
    yield 'resolution = "1 ns"\n'
    comment = f"  # {_said(found.transfer)}" if found.transfer else "  # no op was seen to wait for a message"
    yield f'transfer = "{_not_negative(found.transfer)} ns"{comment}\n'
    for number, stage in enumerate(found.stages):
        yield f"\n[[stage]]  # {number}\n"
        for kind, estimate in stage.items():
            yield f'{KEYS[kind]} = "{round(estimate.median)} ns"  # {_said(estimate)}\n'


def _said(estimate: Estimate) -> str:
    said = f"[{estimate.low:.0f}, {estimate.high:.0f}] {_error(estimate)}, n = {estimate.samples}"
    return said + ", all waited" if estimate.waited else said


def _not_negative(transfer: Estimate | None) -> int:
    return max(0, round(transfer.median)) if transfer else 0


def _by_rank(profiles: Sequence[Profile]) -> list[Profile]:
    ranks = [profile.rank for profile in profiles]
    world = max(profile.world for profile in profiles)
    if world > len(profiles) and -1 not in ranks:
        missing = next(rank for rank in range(world) if rank not in ranks)
        raise Malformed(
            f"the traces are of a run of {world} ranks, and rank {missing} is missing; give one trace a rank"
        )
    if -1 in ranks or len(set(ranks)) < len(ranks):
        return list(profiles)
    return sorted(profiles, key=lambda profile: profile.rank)


def _steps(profiles: Sequence[Profile]) -> list[Step]:
    """Cut each rank's ops into steps: the n-th time that an op is seen belongs to step n."""
    steps: list[Step] = []
    for device, profile in enumerate(profiles):
        seen: dict[Op, int] = defaultdict(int)
        for ran in profile.ran:
            step = seen[ran.op]
            seen[ran.op] += 1
            if step == len(steps):
                steps.append([[] for _ in profiles])
            steps[step][device].append(ran)
        if len(set(seen.values())) > 1:
            fewest = min(seen, key=lambda op: seen[op])
            raise Malformed(
                f"the trace holds a step in part: {fewest} is seen {seen[fewest]} times, other ops "
                f"{max(seen.values())} times",
                profile.name,
            )
    if not all(all(step) for step in steps):
        raise Malformed(f"the ranks' traces hold different numbers of steps, {len(steps)} at most")
    return steps


def _homes(step: Step) -> list[int]:
    homes: dict[int, int] = {}
    for device, ops in enumerate(step):
        for ran in ops:
            if homes.setdefault(ran.op.stage, device) != device:
                raise Malformed(f"stage {ran.op.stage} runs on ranks {homes[ran.op.stage]} and {device}")
    missing = next((stage for stage in range(len(homes)) if stage not in homes), None)
    if missing is not None:
        raise Malformed(f"no trace shows stage {missing} of {max(homes) + 1}; give one trace a rank")
    return [homes[stage] for stage in range(len(homes))]


def _schedule(step: Step, home: list[int]) -> Schedule:
    microbatches, ran_ops = 1 + max(ran.op.microbatch for ops in step for ran in ops), sum(map(len, step))
    if microbatches > ran_ops:
        raise Malformed(f"microbatches must be 0, 1, 2, ...; {microbatches - 1} is the highest of {ran_ops} ops")
    schedule = Schedule.from_orders(along(home, microbatches), [[ran.op for ran in ops] for ops in step])
    try:
        schedule.require_complete()
    except Incomplete as error:
        raise Malformed(f"the traces show no whole step: {error}") from None
    return schedule


def _producer(op: Op, home: list[int], ends: dict[Op, int]) -> int | None:
    """When what an op needs from another device was made; None if it needs nothing from there."""
    other = op.stage + (-1 if op.kind == Kind.F else 1)
    if op.kind == Kind.W or not 0 <= other < len(home) or home[other] == home[op.stage]:
        return None
    kinds = (Kind.F,) if op.kind == Kind.F else (Kind.B, Kind.I)
    return next((ends[made] for kind in kinds if (made := Op(other, kind, op.microbatch)) in ends), None)


def _ends(step: Step) -> dict[Op, int]:
    return {ran.op: ran.end for ops in step for ran in ops}


def _agree(step: Step, home: list[int]) -> bool:
    ends = _ends(step)
    needed = ((ran.end, _producer(ran.op, home, ends)) for ops in step for ran in ops)
    return all(made is None or made <= end for end, made in needed)


_ByOp = dict[tuple[int, Kind], list[float]]


def _samples(steps: Sequence[Step], home: list[int], aligned: bool, known: float) -> tuple[_ByOp, _ByOp, list[float]]:
    """For each stage and kind what ops took alone, and with a transfer; and transfers alone."""
    work: _ByOp = defaultdict(list)
    together: _ByOp = defaultdict(list)
    transfers: list[float] = []
    for step in steps:
        ends = _ends(step)
        for ops in step:
            idle_from = ops[0].start
            for ran in ops:
                made = _producer(ran.op, home, ends) if aligned else None
                key = (ran.op.stage, ran.op.kind)
                if made is not None and made + known > ran.start:
                    together[key].append(ran.end - made)
                else:
                    work[key].append(ran.end - ran.start)
                    if made is not None and made > idle_from and ran.start > idle_from + _IDLE:
                        transfers.append(ran.start - made)
                idle_from = ran.end
    return dict(work), dict(together), transfers


def _error(estimate: Estimate) -> str:
    return "of one sample" if estimate.uncertainty is None else f"+- {estimate.uncertainty:.0f}"


def _estimate(samples: Sequence[float]) -> Estimate:
    low, median, high = np.percentile(samples, [25, 50, 75])
    deviation = float(np.median(np.abs(np.asarray(samples) - median)))
    error = 1.2533 * 1.4826 * deviation / len(samples) ** 0.5 if len(samples) > 1 else None
    return Estimate(float(median), float(low), float(high), error, len(samples))


def _makespan(step: Step, aligned: bool) -> int:
    if aligned:
        return max(ran.end for ops in step for ran in ops) - min(ran.start for ops in step for ran in ops)
    return max(ops[-1].end - ops[0].start for ops in step)
