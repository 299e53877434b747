"""How fast a fixed schedule is evaluated, beside a general graph library and a plain Python loop, in one run.

    python benchmarks/evaluator.py [devices] [microbatches]

Prints operations a second and ratios. "evaluate" goes from orders to start times, completeness included; "in all" also
builds the schedule and the problem.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction

import numpy as np

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.metrics import producers


def best(run: Callable[[], object], times: int = 9) -> float:
    """Shortest of several runs, in seconds."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return min(found)


def plain_loop(schedule: Schedule, problem: Problem) -> int:
    """A longest path in plain Python over dictionaries: the makespan without transfer times."""
    end: dict[tuple[int, int, int], int] = {}
    orders = [schedule.ops(device) for device in range(schedule.devices)]
    cost = problem.durations[0, 0].tolist()
    place, clock, last = [0] * len(orders), [0] * len(orders), schedule.placement.stages - 1
    moved = True
    while moved:
        moved = False
        for device, order in enumerate(orders):
            while place[device] < len(order):
                stage, kind, microbatch = order[place[device]]
                if kind == 0:
                    needed = (stage - 1, 0, microbatch) if stage else None
                else:
                    needed = (stage + 1, 3, microbatch) if stage < last else (stage, 0, microbatch)
                if needed is not None and needed not in end:
                    break
                start = max(clock[device], end[needed] if needed else 0)
                clock[device] = end[stage, int(kind), microbatch] = start + cost[kind]
                place[device] += 1
                moved = True
    return max(clock)


def graph_library(schedule: Schedule, problem: Problem) -> Callable[[], int]:
    """The same as a weighted graph in rustworkx; building the graph is not timed."""
    import rustworkx

    graph = rustworkx.PyDiGraph()
    graph.add_nodes_from(range(len(schedule) + 1))
    cost = problem.durations[0, 0]
    edges = []
    heads = set(schedule.offsets[:-1].tolist())
    for row, source in enumerate(producers(schedule).tolist()):
        before = [] if row in heads else [row - 1]
        before += [source] if source >= 0 else []
        edges += [(b, row, int(cost[schedule.kind[b]])) for b in before]
    edges += [(int(last) - 1, len(schedule), int(cost[schedule.kind[last - 1]])) for last in schedule.offsets[1:]]
    graph.add_edges_from(edges)
    return lambda: int(rustworkx.dag_longest_path_length(graph, weight_fn=lambda _s, _t, weight: weight))


def main() -> None:
    """Measure and print."""
    devices, microbatches = (int(a) for a in sys.argv[1:3]) if len(sys.argv) > 2 else (64, 8192)
    begin = time.perf_counter()
    schedule = schedules.find("1f1b")(devices, microbatches)
    problem = AbstractCosts(forward=Fraction(1)).problem(schedule.placement)
    building = time.perf_counter() - begin
    evaluate(schedule, problem, compile=True)
    tracemalloc.start()
    timeline = evaluate(schedule, problem, compile=True)
    peak = tracemalloc.get_traced_memory()[1] + sum(
        getattr(schedule, name).nbytes for name in ("stage", "kind", "microbatch", "joined")
    )
    tracemalloc.stop()
    ours = best(lambda: evaluate(schedule, problem, compile=True))
    print(f"1f1b, {devices} devices, {microbatches} microbatches: {len(schedule)} ops, makespan {timeline.makespan}")
    print(f"evaluate           {len(schedule) / ours / 1e6:8.2f} M ops/s   ({ours * 1e3:.1f} ms, after warm-up)")
    print(f"in all             {len(schedule) / (ours + building) / 1e6:8.2f} M ops/s   (schedule and problem built)")
    print(f"memory             {peak / len(schedule):8.1f} bytes an op at the peak, the schedule's table included")
    small = schedules.find("1f1b")(devices, max(microbatches // 16, 1))
    costs = AbstractCosts(forward=Fraction(1)).problem(small.placement)
    base = best(lambda: evaluate(small, costs, compile=True))
    spans = {evaluate(small, costs).makespan}
    for name, run in (
        ("evaluate, plain", lambda: evaluate(small, costs, compile=False).makespan),
        ("plain Python loop", lambda: plain_loop(small, costs)),
        ("rustworkx", graph_library(small, costs)),
    ):
        spans.add(run())
        took = best(run, 2)
        print(f"{name:18} {len(small) / took / 1e6:8.2f} M ops/s   {took / base:6.1f} times as long ({len(small)} ops)")
    if len(spans) > 1:
        raise SystemExit(f"the makespans differ: {spans}")
    assert np.array_equal(evaluate(small, costs, compile=True).start, evaluate(small, costs, compile=False).start)


if __name__ == "__main__":
    main()
