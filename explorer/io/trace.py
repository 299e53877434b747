"""Timelines as Chrome traces (JSON), which Perfetto and ``chrome://tracing`` open; written as a stream.

A process a device, with a track for its ops, tracks for the transfers that it sends to each other device, one for its
gradient synchronisations, arrows from op to transfer to consumer, and counters of the memory held. Times are in
microseconds; an abstract unit of time is shown as a millisecond. The format is the Trace Event Format that Chromium
defines (docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from explorer.core.dataflow import Product, flow
from explorer.core.op import KINDS
from explorer.core.placement import IntArray
from explorer.core.problem import Problem, Stash
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.evaluation.kernel import PRODUCT
from explorer.evaluation.memory import levels

_CATEGORIES = ("forward", "input gradient", "weight gradient", "backward")
_SYNC_TRACK = 1
_STEP_TRACK = 2
_LINK_TRACKS = 3


def write(timeline: Timeline, problem: Problem) -> Iterator[str]:
    """The parts of the file, an event a line."""
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    yield from _separated(_events(timeline, problem))
    yield "\n]}\n"


def _separated(events: Iterator[str]) -> Iterator[str]:
    first = next(events)
    yield first
    for event in events:
        yield ",\n" + event


def _events(timeline: Timeline, problem: Problem) -> Iterator[str]:
    clock = _clock(problem)
    consumer = consumers(timeline.schedule)
    for device in range(timeline.schedule.devices):
        yield _named("process_name", device, 0, f"device {device}")
        yield _named("thread_name", device, 0, "ops")
        yield from _ops(timeline, device, clock)
        yield from _transfers(timeline, device, consumer, clock)
        yield from _counters(timeline, problem, device, clock)
    for sync in timeline.syncs:
        for device in sync.devices:
            yield _slice(f"gradients of chunk {sync.chunk}", "sync", device, _SYNC_TRACK, clock(sync.start, sync.end))
    for device in sorted({device for sync in timeline.syncs for device in sync.devices}):
        yield _named("thread_name", device, _SYNC_TRACK, "gradient synchronisation")
    for update in timeline.updates:
        yield _slice("optimiser step", "optimizer", update.device, _STEP_TRACK, clock(update.start, update.end))
        yield _named("thread_name", update.device, _STEP_TRACK, "optimiser")


def _clock(problem: Problem) -> Callable[[int, int], tuple[float, float]]:
    """From ticks to the start and the duration of a slice."""
    microseconds = problem.time.tick * (10**6 if problem.time.unit == "s" else 1000)
    over, under = microseconds.numerator, microseconds.denominator
    return lambda start, end: (start * over / under, (end - start) * over / under)


def _ops(timeline: Timeline, device: int, clock: Callable[[int, int], tuple[float, float]]) -> Iterator[str]:
    schedule = timeline.schedule
    rows = schedule.rows(device)
    part = slice(rows.start, rows.stop)
    columns = (schedule.stage, schedule.kind, schedule.microbatch, schedule.chunk, timeline.start, timeline.end)
    for stage, kind, microbatch, chunk, start, end in zip(*(c[part].tolist() for c in columns), strict=True):
        begin, length = clock(start, end)
        yield (
            f'{{"ph":"X","name":"{stage}{KINDS[kind].name}{microbatch}","cat":"{_CATEGORIES[kind]}","pid":{device},'
            f'"tid":0,"ts":{begin},"dur":{length},'
            f'"args":{{"stage":{stage},"microbatch":{microbatch},"chunk":{chunk}}}}}'
        )


def _transfers(
    timeline: Timeline, device: int, consumer: IntArray, clock: Callable[[int, int], tuple[float, float]]
) -> Iterator[str]:
    """The transfers that a device sends, on as many tracks a target as run at the same time, with their arrows."""
    schedule = timeline.schedule
    rows = schedule.rows(device)
    sends = np.flatnonzero(timeline.sent[rows.start : rows.stop] >= 0) + rows.start
    lanes: dict[tuple[int, int], int] = {}  # (target, lane) to when it is free again
    tracks: dict[tuple[int, int], int] = {}
    sends = sends[np.argsort(timeline.sent[sends], kind="stable")]
    users = consumer[sends]
    columns = (sends, timeline.start[sends], timeline.sent[sends], timeline.arrival[sends])
    ends = (schedule.device[users], timeline.start[users])
    for row, made, sent, arrival, target, used in zip(*(c.tolist() for c in (*columns, *ends)), strict=True):
        lane = 0
        while lanes.get((target, lane), -1) > sent:
            lane += 1
        lanes[target, lane] = arrival
        track = tracks.setdefault((target, lane), _LINK_TRACKS + len(tracks))
        begin, length = clock(sent, arrival)
        op = schedule.op(row)
        what = "activation" if PRODUCT[op.kind] == Product.ACTIVATION else "gradient"
        yield _slice(f"{what} of {op}", "transfer", device, track, (begin, length))
        yield _arrow("s", row, device, 0, clock(made, made)[0])
        yield _arrow("t", row, device, track, begin)
        yield _arrow("f", row, target, 0, clock(used, used)[0])
    for (target, lane), track in tracks.items():
        yield _named("thread_name", device, track, f"to device {target}" + (f" ({lane + 1})" if lane else ""))


def consumers(schedule: Schedule) -> IntArray:
    """(ops,) The row on another device, or the same, that waits for each row's product; -1 for none and for W."""
    columns, stages = schedule.placement.columns, schedule.placement.stages
    needs = flow(schedule.placement).needs
    wanted = needs[columns.route_of[schedule.microbatch], schedule.kind, schedule.stage]
    wanted = np.where(schedule.kind == 2, -1, wanted)  # W takes its I's product where it was made
    user = np.full(len(Product) * stages * schedule.microbatches, -1, np.int64)
    waits = np.flatnonzero(wanted >= 0)
    user[wanted[waits] * schedule.microbatches + schedule.microbatch[waits]] = waits
    product = np.array(PRODUCT, np.int64)[schedule.kind]
    place = (product * stages + schedule.stage) * schedule.microbatches + schedule.microbatch
    return np.where(product < len(Product), user[np.where(product < len(Product), place, 0)], -1)


def _counters(
    timeline: Timeline, problem: Problem, device: int, clock: Callable[[int, int], tuple[float, float]]
) -> Iterator[str]:
    measures: list[tuple[str, Stash]] = [("activations held", problem.stash)]
    if problem.bytes is not None:
        measures.append(("activation bytes", problem.bytes))
    rows = timeline.schedule.rows(device)
    part = slice(rows.start, rows.stop)
    for name, stash in measures:
        during, after = levels(timeline.schedule, problem, stash)
        columns = (timeline.start, during, timeline.end, after)
        last = -1
        for start, held, end, left in zip(*(column[part].tolist() for column in columns), strict=True):
            for moment, level in ((start, held), (end, left)):
                if level != last:
                    yield _counter(name, device, clock(moment, moment)[0], level * stash.unit)
                    last = level


def _named(kind: str, device: int, track: int, name: str) -> str:
    return f'{{"ph":"M","name":"{kind}","pid":{device},"tid":{track},"args":{{"name":"{name}"}}}}'


def _slice(name: str, category: str, device: int, track: int, when: tuple[float, float]) -> str:
    begin, length = when
    return f'{{"ph":"X","name":"{name}","cat":"{category}","pid":{device},"tid":{track},"ts":{begin},"dur":{length}}}'


def _arrow(phase: str, number: int, device: int, track: int, moment: float) -> str:
    bound = ',"bp":"e"' if phase == "f" else ""
    what = f'"ph":"{phase}","name":"transfer","cat":"flow","id":{number}{bound}'
    return f'{{{what},"pid":{device},"tid":{track},"ts":{moment}}}'


def _counter(name: str, device: int, moment: float, value: Fraction) -> str:
    return f'{{"ph":"C","name":"{name}","pid":{device},"ts":{moment},"args":{{"held":{float(value)}}}}}'
