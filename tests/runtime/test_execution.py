"""Schedules run for real through PyTorch's runtime: right gradients, the table's order, the predicted time."""

import importlib.util
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import UsageError
from explorer.core.op import Kind
from explorer.core.placement import along, linear
from explorer.core.schedule import Schedule
from explorer.io import profile, pytorch
from explorer.io.check import check
from explorer.runtime.calibration import calibrate
from explorer.runtime.cluster import Cluster, RunFailed
from explorer.runtime.job import job_of, wall_problem
from explorer.runtime.measure import Measured, measure
from schedules.greedy import greedy
from solvers.optimum import optimum

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="running schedules needs PyTorch, the extra [torch]"
    ),
]

D, M = 4, 8
OP = Fraction(20, 1000)
MOST_OVER = 0.10
TRIES = 3
"""A machine that others use too may be late; it is never early."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(D) as cluster:
        yield cluster


def _uneven() -> Schedule:
    """Devices with one, two, one and three stages, the deepest stage's backward first."""
    placement = along([0, 1, 1, 2, 3, 3, 3], M)
    return greedy(placement, lambda op: (op.kind is Kind.F, op.microbatch, -op.stage), limit=2 * D)


def _solved() -> Schedule:
    """The best order that the solver finds for stages of unequal length."""
    placement = linear(D, M)
    costs = AbstractCosts(stage_factors=tuple(map(Fraction, (1, 2, 1, 1))), memory_limit="4")
    outcome = optimum(costs.problem(placement), placement, split=False, time_limit=5)
    return outcome.timeline.schedule


def _subject(name: str) -> Schedule:
    match name:
        case "uneven":
            return _uneven()
        case "solved":
            return _solved()
        case _:
            return schedules.find(name)(D, M)


def _run(cluster: Cluster, schedule: Schedule, *, talks: bool = False, latency: Fraction = Fraction(0)) -> Measured:
    prepared = pytorch.prepare(schedule).schedule
    problem = wall_problem(AbstractCosts().problem(schedule.placement), prepared, OP, latency)
    text = "".join((pytorch.with_communication if talks else pytorch.compute_only)(prepared))
    job, predicted = job_of(prepared, problem, text, talks)
    for _ in range(TRIES):
        measured = measure(cluster, job, predicted)
        assert measured.gradients_equal, measured.gradient_error
        assert measured.order_kept
        assert measured.excess >= 0
        if measured.excess <= MOST_OVER:
            break
    return measured


@pytest.mark.parametrize(
    "name", ["gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "hanayo", "dualpipe-v", "uneven", "solved"]
)
def test_a_schedule_runs_as_predicted(cluster: Cluster, name: str) -> None:
    measured = _run(cluster, _subject(name))
    assert measured.excess <= MOST_OVER
    assert (measured.lag >= -1e-6).all() or measured.schedule.overlaps
    assert (measured.end - measured.start >= (measured.predicted.end - measured.predicted.start) / 1e6 - 1e-6).all()


@pytest.mark.parametrize("name", ["1f1b", "zb-v"])
def test_our_sends_and_receives_run_as_predicted_with_late_deliveries(cluster: Cluster, name: str) -> None:
    measured = _run(cluster, _subject(name), talks=True, latency=Fraction(30, 1000))
    assert measured.excess <= MOST_OVER
    undelayed = wall_problem(AbstractCosts().problem(measured.schedule.placement), measured.schedule, OP, Fraction(0))
    assert measured.predicted.makespan > job_of(measured.schedule, undelayed, "", False)[1].makespan


def test_microbatches_that_the_last_stage_runs_in_another_order_keep_their_gradients(cluster: Cluster) -> None:
    schedule = schedules.find("gpipe")(D, M)
    shuffled = pytorch.renumbered(schedule, [3, 1, 2, 0, 7, 6, 5, 4])
    assert pytorch.last_stage_order(shuffled) != list(range(M))
    _run(cluster, shuffled)


def test_misordered_receives_corrupt_gradients_as_the_check_says(cluster: Cluster) -> None:
    schedule = schedules.find("gpipe")(D, M)
    sound = "".join(pytorch.with_communication(schedule))
    swapped = sound.replace("1RECV_F1,", "").replace("1RECV_F0,", "1RECV_F1,1RECV_F0,")
    assert {violation.kind for violation in check(swapped)} == {"misordered-message"}
    problem = wall_problem(AbstractCosts().problem(schedule.placement), schedule, Fraction(1, 1000), Fraction(0))
    measured = measure(cluster, *job_of(schedule, problem, swapped, True))
    assert not measured.gradients_equal
    assert measured.gradient_error > 1e-3


def test_a_run_that_hangs_is_ended_and_leaves_no_process() -> None:
    schedule = schedules.find("gpipe")(2, 2)
    text = "".join(pytorch.with_communication(schedule)).replace("0SEND_F1,", "")
    assert {violation.kind for violation in check(text)} == {"missing-message"}
    problem = wall_problem(AbstractCosts().problem(schedule.placement), schedule, Fraction(1, 1000), Fraction(0))
    job, predicted = job_of(schedule, problem, text, True)
    others = set(multiprocessing.active_children())
    with Cluster(2, timeout=2) as cluster:
        begin = time.monotonic()
        with pytest.raises(RunFailed, match="all processes were ended"):
            measure(cluster, job, predicted)
        assert time.monotonic() - begin < 15
        assert set(multiprocessing.active_children()) == others
        with pytest.raises(RunFailed, match="has ended"):
            measure(cluster, job, predicted)


def test_times_that_make_no_sense_are_refused() -> None:
    schedule = schedules.find("gpipe")(2, 2)
    problem = AbstractCosts().problem(schedule.placement)
    for op, latency in ((0, 0), (61, 0), (1, -1), (1, 61)):
        with pytest.raises(UsageError, match="at most 60 seconds"):
            wall_problem(problem, schedule, Fraction(op), Fraction(latency))
    with pytest.raises(UsageError, match="64 at most, not 65"):
        Cluster(65)


def test_the_profiler_trace_of_a_run_gives_its_costs_back(cluster: Cluster, tmp_path: Path) -> None:
    schedule = schedules.find("zb-h1")(D, M)
    latency = Fraction(10, 1000)
    problem = wall_problem(AbstractCosts().problem(schedule.placement), schedule, OP, latency)
    job, predicted = job_of(schedule, problem, "".join(pytorch.compute_only(schedule)), False)
    job = replace(job, profile=str(tmp_path))
    for _ in range(TRIES):
        measure(cluster, job, predicted)
        traces = sorted(tmp_path.iterdir())
        found = calibrate([profile.read(path, profile.pattern(None), place) for place, path in enumerate(traces)])
        if 0.9 <= found.explained <= 1.1:
            break
    assert found.schedule == schedule
    assert found.aligned
    assert 0.9 <= found.explained <= 1.1
    assert found.transfer is not None
    assert found.transfer.median == pytest.approx(float(latency) * 1e9, rel=0.2)
    for stage in found.stages:
        assert [kind.name for kind in stage] == ["F", "I", "W"]
        for estimate in stage.values():
            assert estimate.median == pytest.approx(float(OP) * 1e9, rel=0.15)


def test_what_is_no_number_is_never_equal() -> None:
    import torch

    from explorer.runtime.worker import _difference, _larger

    one, none, zero = torch.ones(2), torch.full((2,), float("nan")), torch.zeros(2)
    assert _difference(none, one) == _difference(one, none) == _difference(None, one) == float("inf")
    assert (_difference(one, one), _difference(zero, zero), _difference(one, zero)) == (0, 0, float("inf"))
    assert _larger(0.0, float("nan")) == float("inf")
