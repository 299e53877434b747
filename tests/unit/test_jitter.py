"""Jitter: what must not change, what is known in closed form, and what a schedule loses."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import UsageError
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.evaluation.jitter import Jitter, makespans, read, spread
from explorer.evaluation.longest_path import evaluate
from tests.property.test_evaluator import Instance
from tests.strategies import instances


def case(name: str, devices: int, microbatches: int, **costs: object) -> tuple[Schedule, Problem]:
    schedule = schedules.find(name)(devices, microbatches)
    return schedule, AbstractCosts(**costs).problem(schedule.placement)  # type: ignore[arg-type]


@settings(max_examples=40)
@given(instances(shared=True))
def test_without_jitter_nothing_changes(instance: Instance) -> None:
    schedule, problem = instance
    expected = float(problem.time.value(evaluate(schedule, problem).makespan))
    assert makespans(schedule, problem, Jitter(draws=2)).tolist() == pytest.approx([expected] * 2)


def test_the_seed_decides() -> None:
    schedule, problem = case("1f1b", 4, 8)
    one, two, other = (makespans(schedule, problem, Jitter(ops=0.2, draws=20, seed=seed)) for seed in (1, 1, 2))
    assert one.tolist() == two.tolist() != other.tolist()


def test_one_device_adds_up() -> None:
    """64 forwards of 1 and backwards of 2 with lognormal factors of mean 1: known mean and deviation of the sum."""
    schedule, problem = case("1f1b", 1, 64)
    found = makespans(schedule, problem, Jitter(ops=0.3, draws=4000))
    variance = (np.exp(0.3**2) - 1) * 64 * (1**2 + 2**2)
    assert found.mean() == pytest.approx(192, abs=4 * np.sqrt(variance / 4000))
    assert found.std() == pytest.approx(np.sqrt(variance), rel=0.1)


def test_a_straggler_slows_its_device_only() -> None:
    schedule, problem = case("1f1b", 1, 8)
    assert makespans(schedule, problem, Jitter(straggler=2, draws=3)).tolist() == pytest.approx([48] * 3)
    schedule, problem = case("gpipe", 4, 64)
    slow = makespans(schedule, problem, Jitter(straggler=2, draws=20))
    calm = float(evaluate(schedule, problem).makespan)
    assert (slow >= 2 * 64 * 3).all() and (slow <= 2 * calm).all()


@pytest.mark.parametrize("mode", [Communication.LATENCY, Communication.LINK, Communication.BLOCKING])
def test_transfers_vary_in_every_mode(mode: Communication) -> None:
    schedule, problem = case("1f1b", 4, 8, comm_time=Fraction(1), communication=mode)
    found = makespans(schedule, problem, Jitter(transfers=0.5, draws=50))
    assert found.std() > 0
    assert (
        makespans(schedule, replace(problem, communication=Communication.NONE), Jitter(transfers=0.5, draws=5)).std()
        == 0
    )


def test_what_has_slack_loses_less() -> None:
    """Eager 1F1B takes in more microbatches ahead of time than 1F1B, so late transfers cost it less."""
    lost = {}
    for name in ("1f1b", "eager-1f1b"):
        found = spread(*case(name, 8, 64, comm_time=Fraction(1, 4)), Jitter(transfers=1.0, draws=200))
        lost[name] = found.mean / found.undisturbed - 1
        assert found.undisturbed < found.median < found.high <= found.highest
    assert lost["eager-1f1b"] < lost["1f1b"]


def test_spreads_are_read_by_name() -> None:
    assert read("ops=0.1, straggler=1.5,draws=10") == Jitter(ops=0.1, straggler=1.5, draws=10)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("op=0.1", "jitter has ops, transfers, devices, straggler, draws, seed, each as NAME=VALUE; got 'op=0.1'"),
        ("ops", "jitter's ops must be a number, got ''"),
        ("draws=1.5", "jitter's draws must be a number"),
        ("ops=-1", "the spread of ops must be between 0 and 3"),
        ("ops=nan", "the spread of ops must be between 0 and 3"),
        ("straggler=0.5", "the straggler's factor"),
        ("draws=0", "draws must be between 1"),
        ("seed=-1", "the seed cannot be negative"),
    ],
)
def test_wrong_jitter(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(text)


def test_compare_shows_who_is_brittle() -> None:
    words = [sys.executable, "-m", "explorer", "compare", "1f1b", "zb-v", "-D", "4", "-M", "8", "--forward", "1"]
    words += ["--jitter", "ops=0.2,draws=50"]
    assert (
        "Under jitter: ops 0.2; 50 draws, seed 0"
        in subprocess.run(words, capture_output=True, text=True, check=True).stdout
    )
    said = json.loads(subprocess.run([*words, "--json"], capture_output=True, text=True, check=True).stdout)
    assert {row["schedule"] for row in said["rows"]} == set(said["jitter"])
    assert said["jitter"]["1f1b"]["undisturbed"] == 33 < said["jitter"]["1f1b"]["mean"]
