"""Makespans of public tools' own orders: the time that our schedule of that name takes must be the same.

``makespans.csv`` gives forward, fused backward and overlapped transfer time; the times were computed from the order
that the named tool produced. Left out are Chimera's cases whose last unit is not whole: there
chimera_pipeline_rank.py deals the rest differently and holds more than D activations (12 on 8 devices with 20
microbatches), while ours goes both ways and stays within D.
"""

import csv
from fractions import Fraction
from pathlib import Path

import pytest

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.problem import Communication
from explorer.evaluation.longest_path import evaluate

TABLE = Path(__file__).with_name("makespans.csv").read_text(encoding="utf-8")
ROWS = list(csv.DictReader(TABLE.splitlines()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['schedule']}-{row['devices']}-{row['microbatches']}")
def test_our_order_takes_as_long_as_the_tools(row: dict[str, str]) -> None:
    schedule = schedules.find(row["schedule"])(int(row["devices"]), int(row["microbatches"]))
    costs = AbstractCosts(
        forward=Fraction(row["forward"]),
        backward=Fraction(row["backward"]),
        comm_time=Fraction(row["latency"]),
        communication=Communication.LATENCY,
    )
    problem = costs.problem(schedule.placement)
    assert problem.time.value(evaluate(schedule, problem).makespan) == Fraction(row["makespan"]), row["source"]
