"""How long the optimiser's step takes, and what it does to makespan, bound and files."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from explorer.config import catalogue
from explorer.config.modelled import ModelledCosts
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import UsageError
from explorer.core.placement import linear
from explorer.costs.problem import TransformerCosts, architecture_of
from explorer.costs.training import Training
from explorer.evaluation.jitter import Jitter, makespans
from explorer.evaluation.longest_path import evaluate
from explorer.io.problem import decode, digest, encode
from schedules.chimera import chimera
from schedules.one_f_one_b import one_f_one_b
from solvers.optimum import optimum
from solvers.outcome import Proved

PLACEMENT = linear(4, 4)
COSTS = AbstractCosts(optimizer_step=Fraction(3))


def test_a_step_is_as_long_as_what_a_device_holds() -> None:
    assert COSTS.problem(PLACEMENT).steps == (3, 3, 3, 3)
    assert COSTS.problem(chimera(4, 4).placement).steps == (6, 6, 6, 6)
    assert AbstractCosts().problem(PLACEMENT).steps == (0, 0, 0, 0)
    with pytest.raises(UsageError, match="optimizer step cannot be negative"):
        AbstractCosts(optimizer_step=Fraction(-1))


def test_equal_steps_move_makespan_and_bound_alike() -> None:
    schedule = one_f_one_b(4, 6)
    without, problem = AbstractCosts().problem(schedule.placement), COSTS.problem(schedule.placement)
    before, after = evaluate(schedule, without), evaluate(schedule, problem)
    assert after.makespan == before.makespan + 3 and (after.start == before.start).all()
    best = [optimum(one, schedule.placement, split=True) for one in (without, problem)]
    assert all(isinstance(outcome, Proved) for outcome in best)
    assert best[1].ticks == best[0].ticks + 3


def test_a_long_step_on_the_last_device_hides_behind_the_drain() -> None:
    """The last stage of 1F1B is done before the first: a step that fits there costs nothing."""
    schedule = one_f_one_b(4, 6)
    problem = AbstractCosts().problem(schedule.placement)
    whole = evaluate(schedule, problem).makespan
    ahead = whole - int(evaluate(schedule, problem).free[schedule.rows(3).stop - 1])
    assert ahead > 0
    for ticks in (ahead, ahead + 2):
        longer = replace(problem, optimizer=(0, 0, 0, ticks))
        assert evaluate(schedule, longer).makespan == whole + max(0, ticks - ahead)


def test_the_bytes_of_mixed_precision_adam() -> None:
    """Of 18 bytes a parameter 12 are read and written, 4 of the gradient read and 2 of the weight written: 30."""
    model, system = catalogue.load_model("paper-128x4096"), catalogue.load_system("paper-h100")
    costs = ModelledCosts(model, system, optimizer=True)
    chunks = costs.workload(PLACEMENT).chunks
    rate = system.memory.bandwidth * system.memory.efficiency
    expected = [chunk.weights // 2 * 30 / rate for chunk in chunks]
    assert costs.optimizer_times(PLACEMENT, chunks) == expected
    problem = costs.problem(PLACEMENT)
    assert all(abs(problem.time.value(t) - e) <= problem.rounding for t, e in zip(problem.steps, expected, strict=True))
    assert not any(replace(costs, optimizer=False).problem(PLACEMENT).steps)


def test_a_distributed_optimizer_spreads_the_step() -> None:
    model, system = catalogue.load_model("gpt3-175b"), catalogue.load_system("paper-h100")
    architecture, _ = architecture_of(model, "gpt3-175b")
    alone, spread = (
        TransformerCosts(architecture, Training(2048, data=4, distributed_optimizer=on), system, optimizer=True)
        for on in (False, True)
    )
    whole, part = (max(costs.problem(PLACEMENT).steps) for costs in (alone, spread))
    assert whole > 0 and abs(whole - 4 * part) <= 4
    seconds = [costs.optimizer_times(PLACEMENT, costs.workload(PLACEMENT).chunks) for costs in (alone, spread)]
    assert seconds[0] == [4 * part for part in seconds[1]]


def test_files_keep_steps_and_copies() -> None:
    problem = replace(COSTS, copies=2).problem(PLACEMENT)
    again = decode(encode(problem))
    assert (again.optimizer, again.copies) == (problem.optimizer, 2)
    digests = {digest(one, PLACEMENT) for one in (problem, replace(problem, copies=1), replace(problem, optimizer=()))}
    assert len(digests) == 3


def test_a_straggler_steps_slowly_too() -> None:
    schedule = one_f_one_b(1, 1)
    problem = COSTS.problem(schedule.placement)
    slow = makespans(schedule, problem, Jitter(straggler=2.0, ops=0, transfers=0, devices=0, draws=3))
    assert slow == pytest.approx(2 * evaluate(schedule, problem).makespan * float(problem.time.tick))
