"""Running a schedule and holding what was measured against what was predicted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from explorer.core.op import Op
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.core.timeline import Timeline
from explorer.io import pytorch
from explorer.runtime.cluster import Cluster
from explorer.runtime.job import Job, job_of, wall_problem

if TYPE_CHECKING:
    from explorer.runtime.worker import Record

LATE = 0.1
"""Share of the prediction from which a run is too late to say much about the schedule."""
TOLERANCE = 1e-9
"""Largest relative difference from the unsplit model's gradients and losses, in 64-bit floats."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One measured step.

    Parameters
    ----------
    predicted
        In microseconds.
    start, end
        (ops,) seconds from the start of the first op; row i is row i of the schedule.
    orders
        Each device's ops in the order in which they ran.
    gradient_error, loss_error
        The largest relative difference from the unsplit model.
    """

    predicted: Timeline
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    orders: tuple[tuple[Op, ...], ...]
    gradient_error: float
    loss_error: float

    @property
    def schedule(self) -> Schedule:
        """What ran."""
        return self.predicted.schedule

    @property
    def makespan(self) -> float:
        """Measured, in seconds."""
        return float(self.end.max())

    @property
    def predicted_makespan(self) -> float:
        """In seconds."""
        return self.predicted.makespan / 1e6

    @property
    def excess(self) -> float:
        """By how much of the prediction the measurement is longer."""
        return self.makespan / self.predicted_makespan - 1

    @property
    def lag(self) -> NDArray[np.float64]:
        """(ops,) seconds by which each op ended later than predicted."""
        return self.end - self.predicted.end / 1e6

    @property
    def gradients_equal(self) -> bool:
        """Whether gradients and losses are those of the unsplit model, up to rounding."""
        return max(self.gradient_error, self.loss_error) <= TOLERANCE

    @property
    def order_kept(self) -> bool:
        """Whether every device ran its ops in the schedule's order."""
        return all(tuple(self.schedule.ops(device)) == order for device, order in enumerate(self.orders))


def run(
    schedule: Schedule,
    problem: Problem,
    *,
    mean_op: Fraction,
    latency: Fraction = Fraction(0),
    timeout: float = 30.0,
    talking: str | None = None,
    profile: str = "",
) -> tuple[Measured, tuple[str, ...]]:
    """Run a schedule on processes of its own.

    Parameters
    ----------
    problem
        Costs, of which the proportions of durations are kept.
    mean_op
        Seconds that an op takes on average.
    latency
        Seconds by which deliveries between devices are delayed.
    timeout
        Seconds after which processes give up waiting for one another.
    talking
        The text of a file with sends and receives, to be run as it stands; PyTorch adds them otherwise.
    profile
        A folder for PyTorch's profiler to write a trace of each rank to; none if empty.

    Returns
    -------
    Measured, tuple of str
        And what a reader must know.

    Raises
    ------
    Inapplicable
        If PyTorch cannot run the schedule, for the reason said.
    RunFailed
        If the run breaks off or does not end in time.
    """
    prepared = pytorch.prepare(schedule)
    problem = replace(problem, profile_of=problem.profile_of[prepared.numbers])
    wall = wall_problem(problem, prepared.schedule, mean_op, latency)
    text = "".join(pytorch.compute_only(prepared.schedule)) if talking is None else talking
    job, predicted = job_of(prepared.schedule, wall, text, talking is not None)
    job = replace(job, profile=profile)
    with Cluster(schedule.devices, timeout) as cluster:
        measured = measure(cluster, job, predicted)
    notes = prepared.notes[1:]  # the first tells where stages go, which is settled here
    if schedule.overlaps:
        notes += (
            "PyTorch runs the two of an overlapped pair one after the other, the first without waiting for the "
            "input of the second: it may be faster than predicted",
        )
    if measured.excess > LATE:
        notes += (
            f"this machine was late by {measured.excess:.0%}: it is busy, or ops of {float(mean_op) * 1e3:g} ms are "
            "short against what it needs between them; run again, or with a longer --op-time",
        )
    return measured, notes


def measure(cluster: Cluster, job: Job, predicted: Timeline) -> Measured:
    """Run a job on a cluster of as many devices.

    Raises
    ------
    RunFailed
        If the run breaks off or does not end in time.
    """
    return _merged(predicted, cluster.run(job))


def _merged(predicted: Timeline, records: list[Record]) -> Measured:
    schedule = predicted.schedule
    times = {ran.op: (ran.start, ran.end) for record in records for ran in record.ran}
    rows = [times[schedule.op(row)] for row in range(len(schedule))]
    start, end = np.array(rows, np.float64).T
    pairs = np.flatnonzero(schedule.joined)  # the two of an overlapped pair run one after the other
    start[pairs] = start[pairs - 1] = np.minimum(start[pairs], start[pairs - 1])
    end[pairs] = end[pairs - 1] = np.maximum(end[pairs], end[pairs - 1])
    origin = start.min()
    return Measured(
        predicted,
        start - origin,
        end - origin,
        tuple(tuple(Op(*ran.op) for ran in record.ran) for record in records),
        max(record.gradient_error for record in records),
        max(record.loss_error for record in records),
    )
