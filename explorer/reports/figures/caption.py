"""What stands above and below a picture: what was evaluated, under which costs, with which outcome."""

from __future__ import annotations

import numpy as np

from explorer.evaluation.results import Evaluation
from explorer.reports import numbers, tables


def title(result: Evaluation) -> str:
    """The schedule and its parameters."""
    shown = ", ".join(f"{key} {value}" for key, value in result.parameters.items() if value is not None)
    return f"{result.name}: {shown}" if shown else result.name


def caption(result: Evaluation) -> str:
    """Costs, communication mode, makespan, bubble ratio and memory, in sentences."""
    makespan = numbers.time(result.makespan, result.problem.time.unit)
    bubble = numbers.percent(result.levels["execution"].bubble_ratio)
    said = [costs(result), f"Makespan {makespan}, bubble ratio {bubble}.", f"{memory(result)}."]
    return " ".join(said)


def costs(result: Evaluation) -> str:
    """What is computed, sent and synchronised, and in which mode, in sentences."""
    said = tables.costs(result)
    said = f"{said[0].upper()}{said[1:]}. Communication: {result.problem.communication}"
    if result.timeline.syncs:
        spans = np.array([sync.end - sync.start for sync in result.timeline.syncs])
        time = result.problem.time
        low, high = (numbers.time(time.value(int(end)), time.unit) for end in (spans.min(), spans.max()))
        said += f"; gradient synchronisation {low if low == high else f'{low} to {high}'} a chunk"
    if result.timeline.updates:
        longest = max(update.end - update.start for update in result.timeline.updates)
        said += f"; optimiser step {numbers.time(result.problem.time.value(longest), result.problem.time.unit)} at most"
    return said + "."


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
