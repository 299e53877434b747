"""How far the search gets: proofs, gaps and seconds on the tables of docs/optimising.md.

    python benchmarks/optimise.py [table ...] [--time-limit S] [--workers N] [--every K]

Tables: grid, limits, v, uneven, long, zero-bubble, small (the default, a minute), solvers. Costs F/I/W = 10/11/9, half
of an activation freed by I, unless a table says otherwise. ``--every K`` runs one instance of K. The table ``solvers``
sets the search beside a plain CP-SAT model and a HiGHS model with the same symmetry, windows, bounds and seed.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from random import Random

from ortools.linear_solver import pywraplp

from explorer.config.recipe import AbstractCosts
from explorer.core.op import Kind
from explorer.core.placement import Placement, linear, vee
from explorer.core.problem import Problem
from explorer.evaluation.longest_path import evaluate
from solvers.model import PARTS, REDUNDANT, build
from solvers.optimise import named_schedules
from solvers.optimum import one_by_one
from solvers.orders.known import listed
from solvers.outcome import Found, Infeasible, Proved
from solvers.scope import Objective, searching
from solvers.search import Answer, search
from solvers.shop import Shop
from solvers.solve import solve
from solvers.windows import windows

COSTS = AbstractCosts(
    forward=Fraction(10), input_grad=Fraction(11), weight_grad=Fraction(9), freed_at_input=Fraction(1, 2)
)


@dataclass(frozen=True)
class Instance:
    """One row of a table."""

    name: str
    placement: Placement
    costs: AbstractCosts
    split: bool = True
    objective: Objective = Objective.MAKESPAN


def instance(placement: Placement, limit: int, transfer: int = 0, *, split: bool = True) -> Instance:
    """Costs 10/11/9 under a limit."""
    costs = replace(COSTS, memory_limit=str(limit), comm_time=Fraction(transfer))
    kind = "split" if split else "fused"
    size = f"D{placement.devices} M{placement.microbatches}"
    return Instance(f"{kind} {size} c={transfer} limit {limit}", placement, costs, split)


def grid() -> Iterator[Instance]:
    """126: linear; limits D/2, D and 2D, the last where there are more microbatches than devices."""
    for split in (True, False):
        for devices in (4, 8, 16):
            for times in (1, 2, 4) if devices < 16 else (1, 2):
                for transfer in (0, 3, 10):
                    for limit in (devices // 2, devices, 2 * devices):
                        if limit < 2 * devices or times > 1:
                            yield instance(linear(devices, times * devices), limit, transfer, split=split)


def limits() -> Iterator[Instance]:
    """Tight limits at two sizes."""
    yield instance(linear(8, 16), 4, 3)
    yield instance(linear(16, 32), 8, 3)


def v() -> Iterator[Instance]:
    """Two chunks a device, down and back up."""
    for limit in range(2, 9):
        yield instance(vee(4, 8), limit)
    yield instance(vee(8, 16), 6)


def uneven() -> Iterator[Instance]:
    """Stages uneven by up to 20%, costs about 1000 ticks."""
    random = Random(1)
    factors = tuple(Fraction(random.randint(80, 120), 100) for _ in range(16))
    costs = replace(
        COSTS, forward=Fraction(1000), input_grad=Fraction(1100), weight_grad=Fraction(900), stage_factors=factors
    )
    for limit in (8, 16):
        yield Instance(f"uneven D16 M32 limit {limit}", linear(16, 32), replace(costs, memory_limit=str(limit)))


def long() -> Iterator[Instance]:
    """Many microbatches."""
    for limit in (16, 8):
        yield instance(linear(16, 1024), limit)


def small() -> Iterator[Instance]:
    """A minute's worth."""
    for transfer in (0, 3):
        for split in (True, False):
            yield instance(linear(4, 8), 2, transfer, split=split)
            yield instance(linear(8, 16), 4, transfer, split=split)
    yield instance(vee(4, 8), 3)
    for limit in (2, 3):
        costs = AbstractCosts(backward=Fraction(2), memory_limit=str(limit))
        yield Instance(f"F=I=W=1 D4 M8 limit {limit}, held until W", linear(4, 8), costs)


FREED = {18500: "0.634", 29700: "0.565"}
"""The share that I frees, by the forward's microseconds (34h + 5as stored, 32h until W; see docs/optimising.md)."""


def zero_bubble(path: Path) -> Iterator[tuple[Instance, Fraction]]:
    """Rows of a table of published heuristic schedules with their longest device span: ``--zero-bubble-table``."""
    with path.open() as lines:
        for row in csv.DictReader(lines):
            if not row["memory_limit_activations"] or row["schedule"] not in ("ZB-1p", "ZB-2p"):
                continue
            forward = int(row["F_us"])
            share = FREED[min(FREED, key=lambda known: abs(known - forward))] if int(row["p"]) == 8 else "0.565"
            costs = AbstractCosts(
                forward=Fraction(forward), input_grad=Fraction(row["B_input_us"]), weight_grad=Fraction(row["W_us"]),
                comm_time=Fraction(row["comm_us"]), memory_limit=row["memory_limit_activations"],
                freed_at_input=Fraction(share),
            )  # fmt: skip
            name = f"{row['schedule']} p{row['p']} m{row['m']} F {forward}"
            placement = linear(int(row["p"]), int(row["m"]))
            yield Instance(name, placement, costs, True, Objective.SPAN), Fraction(row["longest_device_span_us"])


TABLES = {"grid": grid, "limits": limits, "v": v, "uneven": uneven, "long": long, "small": small}


def run(one: Instance, limit: float, workers: int) -> Answer:
    """Search an instance with the named schedules as seeds."""
    problem = one.costs.problem(one.placement)
    known = named_schedules(one.costs.problem, one.placement, {}, one.objective)
    return search(
        problem, one.placement, split=one.split, known=known, objective=one.objective, time_limit=limit, workers=workers
    )


def figures(answer: Answer) -> tuple[str, int, int, float]:
    """Status, best, bound, and the gap in percent."""
    outcome = answer.outcome
    if isinstance(outcome, Infeasible) or answer.bound is None:
        return "infeasible", 0, 0, 0.0
    status = "proved" if isinstance(outcome, Proved) else "found"
    return status, outcome.ticks, answer.bound.ticks, 100 * (1 - answer.bound.ticks / max(1, outcome.ticks))


def table(name: str, instances: list[Instance], limit: float, workers: int) -> None:
    """Run a table and sum it up."""
    print(f"\n{name}: {len(instances)} instances, {limit:g} s each, {workers} workers")
    proved = without = 0
    worst, seconds = 0.0, []
    for one in instances:
        answer = run(one, limit, workers)
        status, ticks, bound, gap = figures(answer)
        searched = answer.bound is not None and "CP-SAT" in answer.bound.reason
        proved += status == "proved"
        without += status == "proved" and not searched
        worst = max(worst, gap)
        seconds.append(answer.seconds)
        print(
            f"  {one.name:42} {status:7} {ticks:9} bound {bound:9} gap {gap:5.2f}%  {answer.seconds:6.2f} s  "
            f"{answer.found_by}",
            flush=True,
        )
    middle = sorted(seconds)[len(seconds) // 2]
    share = 100 / len(instances)
    print(
        f"  proved {proved * share:.0f}%, by a bound alone {without * share:.0f}%; worst gap {worst:.2f}%; "
        f"median {middle:.2f} s"
    )


def spans(path: Path, limit: float, workers: int, every: int) -> None:
    """The published heuristic's span beside ours."""
    print(f"\nzero-bubble: longest device spans, {limit:g} s each")
    for one, theirs in list(zero_bubble(path))[::every]:
        answer = run(one, limit, workers)
        status, ticks, _, gap = figures(answer)
        ours = one.costs.problem(one.placement).time.value(ticks)
        print(
            f"  {one.name:32} {status:7} ours {float(ours):12.0f}  theirs {float(theirs):12.0f}  "
            f"{100 * float(ours / theirs - 1):+.2f}%  gap {gap:.2f}%  {answer.seconds:.1f} s",
            flush=True,
        )


def plain_model(problem: Problem, placement: Placement, limit: float) -> tuple[str, int, float]:
    """CP-SAT without symmetry breaking, precedences for memory, windows or seed."""
    begin = time.perf_counter()
    scope = replace(searching(problem, placement, split=True), identical_in_order=False, windows=())
    outcome = solve(build(problem, scope, [p for p in PARTS if p not in REDUNDANT]), time_limit=limit)
    ticks = outcome.ticks if isinstance(outcome, Proved | Found) else 0
    return type(outcome).__name__.lower(), ticks, time.perf_counter() - begin


def highs_model(problem: Problem, placement: Placement, limit: float) -> tuple[str, int, float]:
    """A mixed integer program: an order variable for each pair of ops of a device that windows leave open.

    It has the symmetry, the heads and tails, the memory precedences and the seed's makespan that the search has; one
    stage a device.
    """
    begin = time.perf_counter()
    shop = Shop.of(problem, placement, True)
    seeds = [one_by_one(placement, True), *(schedule for _, schedule in listed(shop))]
    horizon = min(evaluate(schedule, problem).makespan for schedule in seeds)
    known, solver = windows(shop), pywraplp.Solver.CreateSolver("HIGHS")
    solver.SetTimeLimit(int(limit * 1000))
    busy, source = shop.column("busy").tolist(), shop.source.tolist()
    start = [
        solver.NumVar(int(known.head[n]), horizon - int(known.tail[n]), "") for n in range(len(shop))
    ]  # fmt: skip
    makespan = solver.NumVar(known.longest, horizon, "")
    for n in range(len(shop)):
        solver.Add(makespan >= start[n] + int(known.tail[n]))
        if source[n] >= 0:
            solver.Add(start[n] >= start[source[n]] + shop.classes[int(shop.class_of[n])].lag)
    before: dict[tuple[int, int], pywraplp.Variable] = {}
    for device in range(placement.devices):
        for a, b in combinations(shop.on(device).tolist(), 2):
            if shop.class_of[a] == shop.class_of[b]:
                if b == a + 1:
                    solver.Add(start[b] >= start[a] + busy[a])
                continue
            before[a, b] = order = solver.IntVar(0, 1, "")
            before[b, a] = 1 - order
            for one, other, literal in ((a, b, order), (b, a, 1 - order)):
                slack = horizon - int(known.tail[one]) + busy[one] - int(known.head[other])
                if slack > 0:
                    solver.Add(start[other] >= start[one] + busy[one] - slack * (1 - literal))
        _memory_rows(solver, shop, device, before)
    solver.Minimize(makespan)
    status = solver.Solve()
    names = {pywraplp.Solver.OPTIMAL: "proved", pywraplp.Solver.FEASIBLE: "found"}
    ticks = round(solver.Objective().Value()) if status in names else 0
    return names.get(status, "unknown"), ticks, time.perf_counter() - begin


def _memory_rows(
    solver: pywraplp.Solver, shop: Shop, device: int, before: dict[tuple[int, int], pywraplp.Variable]
) -> None:
    """Before F_n either I_(j+1) or the W that memory then needs; see `solvers.model.memory`."""
    forward, first, last = (
        next(c for c in shop.of_device[device] if shop.classes[c].kind is kind) for kind in (Kind.F, Kind.I, Kind.W)
    )
    held, by_first = shop.classes[forward].held, shop.classes[first].freed
    by_last, space, count = held - by_first, int(shop.space[device]), len(shop.members[0])
    for n in range(1, count + 1):
        f = int(shop.first[forward]) + n - 1
        for j in range(n):
            excess = n * held - space - j * by_first
            if excess <= 0:
                break
            w = math.ceil(Fraction(excess, by_last)) if by_last else n
            rows = [before[int(shop.first[first]) + j, f]]
            if w <= j:
                rows.append(before[int(shop.first[last]) + w - 1, f])
            solver.Add(sum(rows[1:], rows[0]) >= 1)


def solvers(limit: float) -> None:
    """Ten small cases: ours, CP-SAT plain, HiGHS."""
    cases = [(4, m, k, c) for m, k in ((6, 4), (8, 3), (8, 4), (10, 4), (12, 4)) for c in (0, 3)]
    print(f"\nsolvers: {len(cases)} cases, linear, split, D4, {limit:g} s each, one worker")
    ratios = []
    for devices, microbatches, memory, transfer in cases:
        one = instance(linear(devices, microbatches), memory, transfer)
        problem = one.costs.problem(one.placement)
        answer = search(problem, one.placement, split=True, time_limit=limit)
        status, ticks, _, _ = figures(answer)
        plain, highs = plain_model(problem, one.placement, limit), highs_model(problem, one.placement, limit)
        for other in (plain, highs):
            if other[0] == status == "proved":
                assert other[1] == ticks, (one.name, ticks, other)
        ratios.append(highs[2] / max(answer.seconds, 1e-3))
        print(
            f"  {one.name:30} ours {status} {ticks} {answer.seconds:6.2f} s; plain {plain[0]} {plain[1]} "
            f"{plain[2]:6.2f} s; HiGHS {highs[0]} {highs[1]} {highs[2]:6.2f} s",
            flush=True,
        )
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"  HiGHS takes {mean:.0f} times as long in geometric mean (its time limit counts where it proves nothing)")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=["small"])
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--zero-bubble-table", type=Path)
    given = parser.parse_args()
    for name in given.tables:
        if name == "solvers":
            solvers(given.time_limit)
        elif name == "zero-bubble":
            if given.zero_bubble_table is None:
                parser.error("the table zero-bubble needs --zero-bubble-table FILE.csv")
            spans(given.zero_bubble_table, given.time_limit, given.workers, given.every)
        else:
            table(name, list(TABLES[name]())[:: given.every], given.time_limit, given.workers)


if __name__ == "__main__":
    main()
