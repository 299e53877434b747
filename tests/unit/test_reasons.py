"""Why a schedule wins: shares that add up, and sentences that name what differs."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given

import schedules
from explorer.api import compare
from explorer.config.recipe import AbstractCosts
from explorer.core.problem import Communication
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.reasons import Share, shares
from explorer.reports.reasons import why
from tests.property.test_evaluator import Instance
from tests.strategies import instances


@given(instances(shared=True))
def test_shares_add_up_and_none_is_negative(instance: Instance) -> None:
    schedule, problem = instance
    timeline = evaluate(schedule, problem)
    found = shares(timeline, problem)
    assert sum(found.values()) == timeline.makespan
    assert min(found.values()) >= 0


def test_gpipe_by_hand() -> None:
    """4 devices: forwards begin at 0, 1, 2, 3, backwards end 6, 4, 2, 0 before the end; device d waits for the rest."""
    schedule = schedules.find("gpipe")(4, 8)
    problem = AbstractCosts().problem(schedule.placement)
    found = shares(evaluate(schedule, problem), problem)
    assert found[Share.WORK] == 24 and found[Share.WARM_UP] == Fraction(0 + 1 + 2 + 3, 4)
    assert found[Share.DRAIN] == Fraction(6 + 4 + 2 + 0, 4)
    assert found[Share.COMMUNICATION] == found[Share.SYNCHRONISATION] == found[Share.OVERHEAD] == 0


def said(*names: str, **costs: object) -> str:
    result = compare([(name, {}) for name in names], AbstractCosts(**costs), 4, 16, engine="longest-path")  # type: ignore[arg-type]
    return why(result) or ""


def test_sentences() -> None:
    text = said("gpipe", "1f1b", comm_time=Fraction(1))
    assert text.startswith("gpipe takes ") and "less exposed communication" in text
    assert text.endswith("it holds 16 activations at its peak, 1f1b 4.")
    assert "less drain" in said("1f1b", "zb-h1")
    assert "less gradient synchronisation" in said("1f1b", "chimera", sync_time=Fraction(9))
    assert said("gpipe", "1f1b") == ""
    assert said("1f1b") == ""


@pytest.mark.parametrize("mode", list(Communication))
def test_every_mode(mode: Communication) -> None:
    assert said("gpipe", "zb-h1", comm_time=Fraction(1, 2), communication=mode)
