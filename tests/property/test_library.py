"""Every schedule of the library is complete and free of deadlock, and all engines agree on its times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from explorer.core.errors import Inapplicable
from explorer.core.problem import Communication
from explorer.evaluation.checker import slack, verify, verify_order
from explorer.evaluation.longest_path import evaluate
from schedules.registry import every
from tests.peers.simulator import columns, read, simulate
from tests.strategies import small_problem

SIZES = [(1, 1), (2, 2), (2, 4), (3, 6), (4, 2), (4, 8), (4, 10)]


@pytest.mark.parametrize("name", [named.name for named in every()])
def test_a_named_schedule_is_valid_and_all_agree_on_its_times(name: str) -> None:
    (build,) = [named for named in every() if named.name == name]
    built = 0
    for devices, microbatches in SIZES:
        try:
            schedule = build(devices, microbatches)
        except Inapplicable:
            continue
        built += 1
        assert verify_order(schedule) == []
        for mode in Communication:
            problem = replace(small_problem(schedule.placement), communication=mode, launch=1, posting=1)
            timeline = evaluate(schedule, problem)
            assert verify(timeline, problem) == []
            assert slack(timeline, problem) == []
            result = simulate(read(schedule, problem))
            for column, times in columns(schedule, result).items():
                assert getattr(timeline, column).tolist() == times
            assert timeline.makespan == result["makespan"]
    assert built, f"{name} fits none of the sizes"
