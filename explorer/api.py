"""The library's front: evaluate and compare schedules by name, by file or as values."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import schedules
from explorer.core.errors import (
    Deadlock,
    Disagreement,
    ExplorerError,
    Inapplicable,
    Incomplete,
    LimitTooSmall,
    UsageError,
)
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.case import case_of
from explorer.evaluation.contended import paths
from explorer.evaluation.longest_path import evaluate as longest_path
from explorer.evaluation.messages import Messages, told
from explorer.evaluation.messages import evaluate as in_order
from explorer.evaluation.results import Comparison, Evaluation, LowerBound, assess
from explorer.evaluation.steady import SteadyState, steady_state
from explorer.io import native, table
from schedules import user
from schedules.formula import Case, Formula
from schedules.registry import NamedSchedule

ENGINES = ("auto", "longest-path", "cp-sat")
BACKWARDS = ("split", "fused")

CONFIRM_UP_TO = 1500
"""Ops up to which ``auto`` has CP-SAT confirm the timeline; it takes well under a second there."""
CONFIRM_SHARED_UP_TO = 256
"""The same where transfers of several pairs of devices share something: every two of them make a row of the model."""
BYTES_PER_OP = 500
"""What an evaluation takes at its peak, all reports included (measured on 10^5 to 10^6 ops)."""


class Costs(Protocol):
    """What things cost, whatever the placement."""

    def problem(self, placement: Placement) -> Problem:
        """The costs on a placement's chunks and devices."""
        ...


def evaluate(
    subject: str | Schedule,
    costs: Costs,
    devices: int | None = None,
    microbatches: int | None = None,
    *,
    options: Mapping[str, object] | None = None,
    backward: str | None = None,
    engine: str = "auto",
    messages: str = Messages.INDEPENDENT,
) -> Evaluation:
    """Evaluate one schedule at three levels.

    Parameters
    ----------
    subject
        A schedule's name, a path to a file that holds one, or a schedule.
    costs
        What its ops and transfers take.
    devices, microbatches
        Needed for a name; for a file or a schedule they may be left out, else they must be its own.
    options
        The named schedule's own options.
    backward
        ``"split"`` replaces every B by I and W, ``"fused"`` every I directly followed by its W by B.
    engine
        One of `ENGINES`.
    messages
        In which order messages are served in mode ``link``, see `explorer.evaluation.messages`.

    Raises
    ------
    ExplorerError
        See `explorer.core.errors`.
    """
    if engine not in ENGINES:
        raise UsageError(f"no engine is called {engine!r}; known: {', '.join(ENGINES)}")
    if backward not in (None, *BACKWARDS):
        raise UsageError(f"backward must be one of {', '.join(BACKWARDS)}, got {backward!r}")
    options = dict(options or {})
    named = resolve(subject) if isinstance(subject, str) else None
    notes: tuple[str, ...] = ()
    if named is not None:
        if devices is None or microbatches is None:
            raise UsageError(f"{named.name} needs a number of devices and of microbatches")
        _require_memory(devices, microbatches, options)
        schedule = named(devices, microbatches, recipe=costs.problem, **options)
        name, shown = named.name, {**named.options, **options}
    else:
        if options:
            raise UsageError(f"a schedule from a file has no options, got {', '.join(options)}")
        schedule = subject if isinstance(subject, Schedule) else load(Path(subject))
        name, shown = (subject if isinstance(subject, str) else "schedule"), {}
        notes += _file_notes(name)
        _require_sizes(schedule, devices, microbatches)
    as_built = len(schedule)
    if backward:
        schedule = schedule.with_split_backward() if backward == "split" else schedule.with_fused_backward()
    problem = costs.problem(schedule.placement)
    case = case_of(problem, schedule.placement, options, split=schedule.splits_backward)
    asynchrony = named.asynchrony(case) if named else None
    if asynchrony is not None:
        require_one_step(problem, name)
    waits: tuple[str, ...] = ()
    if _discipline(messages, engine) is Messages.INDEPENDENT:
        timeline, used, confirmed_by = run(schedule, problem, engine)
    else:
        queued = in_order(schedule, problem, Messages(messages))
        timeline, used, confirmed_by = queued.timeline, "longest-path", None
        shown, waits = {**shown, "messages": messages}, told(queued, problem)
    return assess(
        name,
        {"devices": schedule.devices, "microbatches": schedule.microbatches, **shown},
        timeline,
        problem,
        case,
        _formula(named, case, changed=len(schedule) != as_built),
        engine=used,
        confirmed_by=confirmed_by,
        bound=_bound(timeline, problem),
        asynchrony=asynchrony,
        steady=_steady(named, schedule, problem, options, backward) if named and asynchrony else None,
        cautions=(*(named.cautions(case) if named else ()), *notes, *problem.notes, *waits),
    )


def compare(
    subjects: Sequence[tuple[str, Mapping[str, object]]],
    costs: Costs,
    devices: int,
    microbatches: int,
    *,
    backward: str | None = None,
    engine: str = "auto",
    messages: str = Messages.INDEPENDENT,
    progress: Callable[[str], None] = lambda name: None,
) -> Comparison:
    """Evaluate several schedules under the same costs.

    Parameters
    ----------
    subjects
        Names or files, each with its options.
    progress
        Called with each subject before it is evaluated.

    Raises
    ------
    Inapplicable
        If none of the schedules exists for this problem.
    LimitTooSmall
        If that is for the memory limit alone.
    """
    rows: list[Evaluation] = []
    inapplicable: dict[str, ExplorerError] = {}
    for subject, options in subjects:
        label = _label(subject, options)
        progress(label)
        try:
            row = evaluate(
                subject, costs, devices, microbatches,
                options=options, backward=backward, engine=engine, messages=messages,
            )  # fmt: skip
        except (Inapplicable, Incomplete, Deadlock) as reason:
            inapplicable[label] = reason
        else:
            rows.append(replace(row, name=label))
    if not rows:
        too_small = all(isinstance(why, LimitTooSmall) for why in inapplicable.values())
        reasons = "; ".join(f"{name}: {why}" for name, why in inapplicable.items())
        error = LimitTooSmall if too_small else Inapplicable
        raise error(f"none of the schedules exists for this problem: {reasons}")
    rows.sort(key=lambda row: (row.fits_memory is False, row.makespan))
    synchronous = [row for row in rows if row.steady is None]
    asynchronous = [row for row in rows if row.steady is not None]
    asynchronous.sort(key=lambda row: row.throughput or 0, reverse=True)
    return Comparison(tuple(synchronous), tuple(asynchronous), {name: str(why) for name, why in inapplicable.items()})


def run(schedule: Schedule, problem: Problem, engine: str = "auto") -> tuple[Timeline, str, str | None]:
    """Compute a timeline.

    Returns
    -------
    timeline, engine, confirmed_by
        What was computed, by what, and which other engine was found to agree.

    Raises
    ------
    Disagreement
        If two engines differ.
    """
    timeline = longest_path(schedule, problem)
    if engine == "cp-sat":
        from solvers.reading import difference
        from solvers.solve import evaluate as cp_sat

        solved = cp_sat(schedule, problem)
        fault = difference(timeline, solved)
        if fault is not None:
            raise Disagreement(f"CP-SAT and the longest path disagree: {fault}")
        return solved, "cp-sat", "longest-path"
    confirm_up_to = CONFIRM_SHARED_UP_TO if paths(problem, schedule.placement).resources else CONFIRM_UP_TO
    if engine == "longest-path" or len(schedule) > confirm_up_to:
        return timeline, "longest-path", None
    from solvers.solve import confirm

    confirm(timeline, problem)
    return timeline, "longest-path", "cp-sat"


def load(path: Path) -> Schedule:
    """Read a schedule from a file: ``.json`` (our own format) or ``.csv`` (a table of cells).

    Raises
    ------
    UsageError, Malformed
        If there is no such file, or it holds no schedule.
    """
    match path.suffix.lower():
        case ".json":
            return native.read(path)
        case ".csv":
            return table.read(path)
        case suffix:
            raise UsageError(
                f"{path}: schedules are read from .json and .csv files, not {suffix or 'files without suffix'}"
            )


def _discipline(messages: str, engine: str) -> Messages:
    if messages not in list(Messages):
        raise UsageError(f"messages cannot be served {messages!r}; known: {', '.join(Messages)}")
    if messages != Messages.INDEPENDENT and engine == "cp-sat":
        raise UsageError("the engine cp-sat serves messages independently; messages in order need longest-path")
    return Messages(messages)


def is_file(subject: str) -> bool:
    """Whether a subject names a file rather than a schedule."""
    return subject.lower().endswith((".json", ".csv")) or "/" in subject or "\\" in subject


def resolve(subject: str) -> NamedSchedule | None:
    """The schedule that a subject names; None where it names a file that holds one.

    A name is one of ours, one of an installed plug-in, or ``<path>.py:<function>``.

    Raises
    ------
    UsageError
        If there is none.
    """
    if user.is_reference(subject):
        return user.from_file(subject)
    if is_file(subject):
        return None
    if subject.lower() not in {named.name for named in schedules.every()}:
        user.install_plugins()
    return schedules.find(subject)


def known() -> tuple[NamedSchedule, ...]:
    """All schedules that have a name, those of installed plug-ins included."""
    user.install_plugins()
    return schedules.every()


def _label(subject: str, options: Mapping[str, object]) -> str:
    return subject + "".join(f":{key}={value}" for key, value in options.items())


def _file_notes(name: str) -> tuple[str, ...]:
    if not (name.lower().endswith(".csv") and table.holds_messages(Path(name))):
        return ()
    return ("the file's own sends and receives are passed over: what is evaluated is where PyTorch would post them",)


def _require_sizes(schedule: Schedule, devices: int | None, microbatches: int | None) -> None:
    for what, asked, has in (
        ("devices", devices, schedule.devices),
        ("microbatches", microbatches, schedule.microbatches),
    ):
        if asked is not None and asked != has:
            raise Inapplicable(f"the schedule has {has} {what}, not {asked}")


def _require_memory(devices: int, microbatches: int, options: Mapping[str, object]) -> None:
    """Refuse sizes that this machine cannot hold, before anything is built."""
    counts = [value for value in options.values() if isinstance(value, int)]
    ops = 2 * devices * microbatches * max([1, *counts])
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    if has is not None and ops * BYTES_PER_OP > has:
        raise UsageError(
            f"at least {ops} ops would need about {ops * BYTES_PER_OP / 2**30:.0f} GiB of memory, and this machine has "
            f"{has / 2**30:.0f}; choose fewer devices or microbatches"
        )


def _formula(named: NamedSchedule | None, case: Case, *, changed: bool) -> Formula:
    if named is None:
        return Formula.inapplicable("a schedule from a file has no closed form")
    if changed:
        return Formula.inapplicable("the closed form is that of the schedule's own backward, whole or split")
    return named.formula(case)


def _steady(
    named: NamedSchedule, schedule: Schedule, problem: Problem, options: Mapping[str, Any], backward: str | None
) -> SteadyState:
    def build(microbatches: int) -> Schedule:
        built = named(schedule.devices, microbatches, **options)
        return built.with_split_backward() if backward == "split" else built

    return steady_state(build, problem)


def require_one_step(problem: Problem, name: str) -> None:
    """Check that a schedule without a flush is not given an optimiser's step.

    Raises
    ------
    Inapplicable
        If it is: such a schedule updates its weights again and again, not once at the end.
    """
    if any(problem.optimizer):
        raise Inapplicable(f"{name} updates its weights within the run, not once at its end; leave the optimiser out")


def _bound(timeline: Timeline, problem: Problem) -> LowerBound:
    from solvers.bounds import schedule_bound

    bound = schedule_bound(problem, timeline.schedule)
    if timeline.makespan < bound.ticks:
        raise Disagreement(
            f"a makespan of {timeline.makespan} ticks refutes the bound of {bound.ticks}: {bound.reason}"
        )
    return LowerBound(bound.ticks, bound.reason)
