"""The JSON that programs read: field names are a contract, additions are free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from explorer.core.units import as_number
from explorer.evaluation.checker import Violation
from explorer.evaluation.reasons import shares
from explorer.evaluation.results import LEVELS, Comparison, Evaluation, Level


def evaluation(result: Evaluation) -> dict[str, Any]:
    """An evaluation as plain JSON values; times in ``time_unit``, memory in bytes and device units."""
    problem, execution = result.problem, result.levels["execution"]
    return {
        "schedule": result.name,
        "parameters": dict(result.parameters),
        "costs": {
            "of": problem.title,
            "forward": as_number(result.case.forward),
            "input_grad": as_number(result.case.input_grad),
            "weight_grad": as_number(result.case.weight_grad),
            "backward": as_number(result.case.backward),
        },
        "communication": str(problem.communication),
        "gradient_sync": bool(result.timeline.syncs),
        "optimizer_step": bool(result.timeline.updates),
        "engine": result.engine,
        "confirmed_by": result.confirmed_by,
        "makespan": as_number(result.makespan),
        "longest_device_span": as_number(result.longest_device_span),
        "bubble_ratio": _number(execution.bubble_ratio),
        "lower_bound": None if result.bound is None else as_number(problem.time.value(result.bound.ticks)),
        "lower_bound_reason": None if result.bound is None else result.bound.reason,
        "gap": _number(result.gap),
        "fits_memory": result.fits_memory,
        "device_memory": problem.device_memory,
        "levels": {name: _level(result.levels[name]) for name in LEVELS},
        "devices": [
            {
                "device": device.device,
                "busy": as_number(device.busy),
                "idle": as_number(device.idle),
                "exposed_communication": as_number(device.exposed_communication),
                "overhead": as_number(device.overhead),
                "peak_activations": as_number(device.peak_activations),
                "resident_share": as_number(device.resident_share),
                "peak_memory": device.peak_memory,
                "static_memory": device.static_memory,
            }
            for device in result.devices
        ],
        "throughput": _number(result.throughput),
        "steady_state": _steady_state(result),
        "mean_device_time": {
            str(share): as_number(ticks * problem.time.tick)
            for share, ticks in shares(result.timeline, problem).items()
        },
        "critical_path": {str(part): as_number(time) for part, time in result.path_split.items()},
        "cautions": list(result.cautions),
        "time_unit": problem.time.unit,
        "exact": not problem.time.rounds,
        "quantisation_error": as_number(problem.rounding),
    }


def comparison(result: Comparison) -> dict[str, Any]:
    """A comparison as plain JSON values."""
    return {
        "rows": [evaluation(row) for row in result.rows],
        "asynchronous": [evaluation(row) for row in result.asynchronous],
        "ranking": {level: result.ranking(level) for level in LEVELS},
        "ranks": {level: result.ranks(level) for level in LEVELS},
        "inapplicable": dict(result.inapplicable),
    }


def timeline(result: Evaluation) -> dict[str, Any]:
    """An evaluation with the start and end of every op, transfer and synchronisation, in ``time_unit``."""
    value = result.problem.time.value
    ran = result.timeline
    columns = (ran.start, ran.end, ran.sent, ran.arrival)
    lines = []
    for device in range(result.schedule.devices):
        rows = result.schedule.rows(device)
        ops = []
        times = zip(*(column[rows.start : rows.stop].tolist() for column in columns), strict=True)
        for op, joined, (start, end, sent, arrival) in zip(
            result.schedule.ops(device),
            result.schedule.joined[rows.start : rows.stop].tolist(),
            times,
            strict=True,
        ):
            entry: dict[str, Any] = {
                "op": str(op),
                "start": as_number(value(start)),
                "end": as_number(value(end)),
            }
            if joined:
                entry["overlaps_with_previous"] = True
            if sent >= 0:
                entry["transfer"] = {"start": as_number(value(sent)), "arrival": as_number(value(arrival))}
            ops.append(entry)
        lines.append({"device": device, "ops": ops})
    path = [
        {
            "part": str(step.part),
            "op": None if step.row < 0 else str(result.schedule.op(step.row)),
            "device": None if step.row < 0 else int(result.schedule.device[step.row]),
            "start": as_number(value(step.start)),
            "end": as_number(value(step.end)),
        }
        for step in result.path
    ]
    syncs = [
        {
            "chunk": s.chunk,
            "devices": list(s.devices),
            "start": as_number(value(s.start)),
            "end": as_number(value(s.end)),
        }
        for s in ran.syncs
    ]
    updates = [
        {"device": u.device, "start": as_number(value(u.start)), "end": as_number(value(u.end))} for u in ran.updates
    ]
    return evaluation(result) | {
        "timeline": lines,
        "synchronisations": syncs,
        "optimizer_steps": updates,
        "critical_path_steps": path,
    }


def violations(found: Sequence[Violation]) -> dict[str, Any]:
    """The outcome of a check as plain JSON values."""
    return {
        "valid": not found,
        "violations": [{"kind": v.kind, "where": v.where, "message": v.message} for v in found],
    }


def _steady_state(result: Evaluation) -> dict[str, Any] | None:
    """Of schedules without a flush; None for the others."""
    steady, rule = result.steady, result.asynchrony
    if steady is None or rule is None:
        return None
    return {
        "period": as_number(steady.period),
        "repeats_after": steady.repeats_after,
        "reached_at": steady.reached_at,
        "utilisation": _numbers(steady.utilisation),
        "update_every": rule.update_every,
        "weight_versions": list(rule.weight_versions),
        "staleness": [list(span) for span in rule.staleness],
        "remark": rule.remark,
    }


def _level(level: Level) -> dict[str, Any]:
    return {
        "makespan": _number(level.makespan),
        "bubble_ratio": _number(level.bubble_ratio),
        "peak_activations": level.peak_activations and _numbers(level.peak_activations),
        "assumptions": level.remark,
    }


def _numbers(values: Iterable[Fraction]) -> list[int | float]:
    return [as_number(value) for value in values]


def _number(value: Fraction | int | None) -> int | float | None:
    return None if value is None else as_number(value)
