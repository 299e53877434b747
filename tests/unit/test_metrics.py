"""Measures against timelines worked out by hand: 1F1B on 2 devices with 2 microbatches, F = 1, B = 2.

With transfers that take 1 and overlap:

    0: F0 F1 . . . . B0 B0 . B1 B1       time 0 to 11
    1: . . F0 B0 B0 F1 B1 B1

Device 0 waits in [2, 6) and [8, 9); B0 is on its way in [5, 6), B1 in [8, 9). Device 1 waits in [0, 2), F0 being on its
way in [1, 2).
"""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.op import B, F, Overlapped
from explorer.core.placement import along
from explorer.core.problem import Communication
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.metrics import Part, bubble_ratio, critical_path, device_figures, producers, split, work


def case(mode: str, comm_time: int, **changes: int):
    schedule = schedules.find("1f1b")(2, 2)
    costs = AbstractCosts(forward=Fraction(1), comm_time=Fraction(comm_time), communication=Communication(mode))
    problem = replace(costs.problem(schedule.placement), **changes)
    return evaluate(schedule, problem), problem


@pytest.mark.parametrize(
    ("mode", "comm_time", "makespan", "exposed"),
    [
        ("none", 1, 9, [0, 0]),
        ("latency", 1, 11, [2, 1]),
        # Sends keep device 0 twice and device 1 twice; waits: device 0 in [5, 6) and [9, 10), device 1 in [1, 2).
        ("blocking", 1, 12, [4, 3]),
        # F1 queues behind F0 until 4 and arrives at 7; waits: device 0 in [7, 10) and [12, 13), device 1 in [1, 4).
        ("link", 3, 15, [4, 3]),
    ],
)
def test_exposed_communication(mode: str, comm_time: int, makespan: int, exposed: list[int]) -> None:
    timeline, problem = case(mode, comm_time)
    assert timeline.makespan == makespan
    figures = device_figures(timeline, problem)
    assert figures.busy.tolist() == [6, 6]
    assert figures.idle.tolist() == [makespan - 6] * 2
    assert figures.exposed_communication.tolist() == exposed
    assert bubble_ratio(timeline, problem) == 1 - Fraction(12, 2 * makespan)


@pytest.mark.parametrize(
    ("mode", "comm_time", "compute", "communication"),
    [("none", 0, 9, 0), ("latency", 1, 9, 2), ("blocking", 1, 9, 3), ("link", 3, 9, 6)],
)
def test_critical_path_has_no_gap(mode: str, comm_time: int, compute: int, communication: int) -> None:
    timeline, problem = case(mode, comm_time)
    path = critical_path(timeline, problem)
    assert path[0].start == 0
    assert path[-1].end == timeline.makespan
    assert all(before.end == after.start for before, after in pairwise(path))
    parts = split(path, problem)
    assert (parts[Part.COMPUTE], parts[Part.COMMUNICATION]) == (compute, communication)


def test_overheads_are_no_work() -> None:
    # Launching costs 1 an op and posting 1 a send. Device 0: F0 [0,2) post, F1 [3,5) post; device 1: F0 [3,5), B0
    # [5,8) post, F1 [9,11), B1 [11,14) post. Device 0: B0 [9,12), B1 [15,18).
    timeline, problem = case("none", 0, launch=1, posting=1)
    assert timeline.makespan == 18
    figures = device_figures(timeline, problem)
    assert figures.overhead.tolist() == [6, 6]
    assert figures.busy.tolist() == [6, 6]
    # The message of B1 leaves device 1 when its posting is done, at 15: in [14, 15) it is on its way.
    assert figures.exposed_communication.tolist() == [2, 1]
    parts = split(critical_path(timeline, problem), problem)
    assert sum(parts.values()) == 18
    assert parts[Part.COMPUTE] == 9


def test_an_overlapped_pair_works_once() -> None:
    order = [F(0, 0), F(1, 0), Overlapped(F(0, 1), B(1, 0)), B(0, 0), F(1, 1), B(1, 1), B(0, 1)]
    schedule = Schedule.from_orders(along([0, 0], 2), [order])
    problem = AbstractCosts(forward=Fraction(1), overlap=Fraction(2, 3), per_stage=True).problem(schedule.placement)
    timeline = evaluate(schedule, problem)
    # F = 1 and B = 2; the pair takes 2 of 3: in all 4 x 1 + 4 x 2 - 1 = 11.
    assert problem.time.value(timeline.makespan) == 11
    assert problem.time.value(int(work(schedule, problem).sum())) == 11
    assert bubble_ratio(timeline, problem) == 0


def test_producers_are_the_data_predecessors() -> None:
    schedule = schedules.find("1f1b")(2, 2)  # rows: 0F0 0F1 0B0 0B1 | 1F0 1B0 1F1 1B1
    assert producers(schedule).tolist() == [-1, -1, 5, 7, 0, 4, 1, 6]
    split_backward = schedule.with_split_backward()  # 0F0 0F1 0I0 0W0 0I1 0W1 | 1F0 1I0 1W0 1F1 1I1 1W1
    assert producers(split_backward).tolist() == [-1, -1, 7, 2, 10, 4, 0, 6, 7, 1, 9, 10]


def test_spans_run_from_first_start_to_last_end() -> None:
    timeline, _ = case("latency", 1)
    assert timeline.spans.tolist() == [11, 6]
    assert np.max(timeline.spans) == 11
