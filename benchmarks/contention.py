"""How fast a fixed schedule is evaluated when every transfer contends with those of other pairs of devices.

    python benchmarks/contention.py [devices] [microbatches]

Prints operations a second, after warm-up: nothing shared, a port each way for every 4 devices, one bus for all.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from fractions import Fraction

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate

Shared = tuple[tuple[str, frozenset[tuple[int, int]]], ...]


def sharings(devices: int) -> dict[str, Shared]:
    """By what it stands for, what directed pairs share."""
    pairs = [(i, j) for i in range(devices) for j in range(devices) if i != j]
    ports = tuple(
        (f"{way} of devices {first} to {first + 3}", frozenset(p for p in pairs if p[end] // 4 == first // 4))
        for first in range(0, devices, 4)
        for end, way in enumerate(("out", "in"))
    )
    return {"nothing": (), "ports of 4 devices": ports, "one bus": (("bus", frozenset(pairs)),)}


def rate(schedule: Schedule, problem: Problem) -> tuple[float, int]:
    """Operations a second, the best of five, and the makespan."""
    evaluate(schedule, problem, compile=True)
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        timeline = evaluate(schedule, problem, compile=True)
        best = min(best, time.perf_counter() - begin)
    return len(schedule) / best, timeline.makespan


def main() -> None:
    """Measure and print."""
    devices, microbatches = (int(a) for a in sys.argv[1:3]) if len(sys.argv) > 2 else (64, 8192)
    costs = AbstractCosts(forward=Fraction(1), comm_time=Fraction(1, 8), communication=Communication.LINK)
    for name in ("1f1b", "gpipe"):
        schedule = schedules.find(name)(devices, microbatches)
        problem = costs.problem(schedule.placement)
        for what, shared in sharings(devices).items():
            per_second, makespan = rate(schedule, replace(problem, network=replace(problem.network, shared=shared)))
            print(
                f"{name:6} {devices} devices, {microbatches} microbatches, {len(schedule)} ops, shared: {what:20} "
                f"{per_second / 1e6:6.2f} M ops/s   makespan {float(problem.time.value(makespan)):g}"
            )


if __name__ == "__main__":
    main()
