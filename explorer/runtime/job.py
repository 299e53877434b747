"""What is to be run, on which clock, and what is predicted for it; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from explorer.core.errors import Inapplicable, UsageError
from explorer.core.op import Kind
from explorer.core.problem import Communication, Network, Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.core.units import TimeBase
from explorer.evaluation.longest_path import evaluate

MICROSECONDS = TimeBase(Fraction(1, 10**6), "s", rounds=True)
OpKey = tuple[int, Kind, int]
"""Stage, kind and microbatch."""


@dataclass(frozen=True)
class Job:
    """One schedule to run, as the workers get it.

    Parameters
    ----------
    text
        A file for PyTorch's runtime.
    talks
        Whether it holds sends and receives, or PyTorch adds them.
    home
        The device of each stage.
    microbatches
        How many.
    seconds
        How long each op takes.
    latency
        Seconds by which deliveries between devices are delayed.
    profile
        The folder for the profiler's trace of the measured step, one a rank; none if empty.
    """

    text: str
    talks: bool
    home: tuple[int, ...]
    microbatches: int
    seconds: Mapping[OpKey, float]
    latency: float
    profile: str = ""


def wall_problem(problem: Problem, schedule: Schedule, mean_op: Fraction, latency: Fraction) -> Problem:
    """The costs on this machine's clock: durations in the problem's proportions, rounded to microseconds.

    Transfers take the emulated latency only, launches and gradient synchronisation nothing: loopback is fast, and each
    stage has one rank.

    Parameters
    ----------
    mean_op
        Seconds that an op of the schedule takes on average.
    latency
        Seconds by which deliveries are delayed.

    Raises
    ------
    Inapplicable
        If all ops take no time.
    UsageError
        If the times are not positive, or too long to wait for.
    """
    if not 0 < mean_op <= 60 or not 0 <= latency <= 60:
        raise UsageError("ops must take more than 0 and at most 60 seconds, and latency at most 60 seconds")
    ticks = problem.durations[problem.profile_of[schedule.microbatch], schedule.chunk, schedule.kind]
    if not ticks.sum():
        raise Inapplicable("all ops of this schedule take no time, so there is nothing to measure")
    scale = mean_op * len(ticks) / int(ticks.sum())
    scaled = [MICROSECONDS.ticks(int(ticks) * scale) for ticks in problem.durations.ravel()]
    devices = problem.devices
    return replace(
        problem,
        time=MICROSECONDS,
        durations=np.array(scaled, np.int64).reshape(problem.durations.shape),
        network=Network(
            names=("loopback",),
            link=np.zeros((devices, devices), np.int64),
            latency=np.array([MICROSECONDS.ticks(latency)], np.int64),
            occupancy=np.zeros((*problem.durations.shape[:2], 1), np.int64),
        ),
        communication=Communication.LATENCY,
        sync=np.zeros_like(problem.sync),
        optimizer=(),
        launch=0,
        posting=0,
        overlap=Fraction(1),
        memory_limit=None,
        rounding=Fraction(1, 2 * 10**6),
    )


def job_of(schedule: Schedule, problem: Problem, text: str, talks: bool) -> tuple[Job, Timeline]:
    """What the workers must do, and what is predicted; ``problem`` is a `wall_problem`."""
    ticks = problem.durations[problem.profile_of[schedule.microbatch], schedule.chunk, schedule.kind]
    columns = (schedule.stage, schedule.kind, schedule.microbatch, ticks)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    job = Job(
        text,
        talks,
        tuple(hop.device for hop in schedule.placement.routes[0]),
        schedule.microbatches,
        {(stage, Kind(kind), microbatch): length / 1e6 for stage, kind, microbatch, length in rows},
        int(problem.network.latency[0]) / 1e6,
    )
    return job, evaluate(schedule, problem)
