"""What stands above and below a picture: what was evaluated, under which costs, with which outcome."""

from __future__ import annotations

import numpy as np

from explorer.core.op import KINDS
from explorer.core.placement import IntArray
from explorer.core.problem import Communication
from explorer.evaluation.results import Evaluation
from explorer.reports import numbers
from explorer.reports.figures.palette import NAMES


def title(result: Evaluation) -> str:
    """The schedule and its parameters."""
    shown = ", ".join(f"{key} {value}" for key, value in result.parameters.items() if value is not None)
    return f"{result.name}: {shown}" if shown else result.name


def caption(result: Evaluation) -> str:
    """Costs, communication mode, makespan and bubble ratio, in sentences."""
    said = [f"Per op: {operations(result)}.", f"{communication(result)}."]
    makespan = numbers.time(result.makespan, result.problem.time.unit)
    bubble = numbers.percent(result.levels["execution"].bubble_ratio)
    said += [f"Makespan {makespan}, bubble ratio {bubble}.", f"{memory(result)}."]
    return " ".join(said)


def operations(result: Evaluation) -> str:
    """What the ops that occur take, such as ``forward 1, backward 2``."""
    schedule, problem = result.schedule, result.problem
    durations = problem.durations[problem.profile_of[schedule.microbatch], schedule.chunk, schedule.kind]
    said = [f"{NAMES[k]} {_range(result, durations[schedule.kind == k])}" for k in KINDS if (schedule.kind == k).any()]
    if problem.launch:
        said.append(f"launch {_range(result, np.array([problem.launch]))}")
    return ", ".join(said)


def communication(result: Evaluation) -> str:
    """The mode, and what transfers and synchronisations take."""
    problem, timeline = result.problem, result.timeline
    said = f"Communication: {problem.communication}"
    moved = timeline.sent >= 0
    if problem.communication is not Communication.NONE and moved.any():
        schedule = result.schedule
        whole = problem.transfer_times().delay[problem.profile_of[schedule.microbatch[moved]], schedule.chunk[moved]]
        used = _used_links(result)
        said += f", {_range(result, whole[:, used])} a transfer"
    if timeline.syncs:
        spans = np.array([sync.end - sync.start for sync in timeline.syncs])
        said += f"; gradient synchronisation {_range(result, spans)} a chunk"
    return said


def memory(result: Evaluation) -> str:
    """The highest peak, in bytes where they are modelled, and the limit."""
    peaks = [device.peak_memory for device in result.devices if device.peak_memory is not None]
    units = max(device.peak_activations for device in result.devices)
    said = (
        f"Highest peak of memory: {numbers.size(max(peaks))}" if peaks else f"Most activations: {numbers.plain(units)}"
    )
    limit, has = result.problem.memory_limit, result.problem.device_memory
    if limit is not None:
        return said + f" (limit {limit.text})"
    return said + (f" (a device has {numbers.size(has)})" if peaks and has is not None else "")


def _used_links(result: Evaluation) -> IntArray:
    """The kinds of link between devices that follow each other on some route."""
    columns = result.schedule.placement.columns.device
    before, after = columns[:, :-1].ravel(), columns[:, 1:].ravel()
    some = (before >= 0) & (after >= 0) & (before != after)
    link = result.problem.network.link
    there, back = link[before[some], after[some]], link[after[some], before[some]]
    return np.unique(np.concatenate((there, back)))


def _range(result: Evaluation, ticks: IntArray) -> str:
    """One time, or the shortest and the longest."""
    time = result.problem.time
    low, high = (numbers.time(time.value(int(end)), time.unit) for end in (ticks.min(), ticks.max()))
    return low if low == high else f"{low} to {high}"
