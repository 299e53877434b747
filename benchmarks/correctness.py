"""Whether all ways to the optimum agree on random tiny cases of every placement and mode; see docs/optimising.md.

    python benchmarks/correctness.py [--each N] [--seed S]

For each kind of placement and each communication mode, N cases (43 by default, 1032 in all), for both objectives: the
best of all orders, each run by the simulator of the tests; the optimum of the plain CP-SAT model, without symmetry
breaking, heads and tails or a seed; that of the search's own model; and every bound. Exit code 1 if any do not agree.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from explorer.core.problem import Communication
from solvers.scope import Objective
from tests.solver.agreement import compare
from tests.solver.brute import every_run
from tests.solver.cases import SHAPES, comparable_case


def main() -> int:
    """Compare, and print a line for each kind of placement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=43)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    wrong = 0
    for place, kind in enumerate(SHAPES):
        begin, cases, orders, infeasible, bracketed = time.perf_counter(), 0, 0, 0, dict.fromkeys(Objective, 0)
        for turn, mode in enumerate(Communication):
            for index in range(given.each):
                seed = ((given.seed * len(SHAPES) + place) * len(Communication) + turn) * given.each + index
                placement, problem, split = comparable_case(seed, kind, mode)
                runs = list(every_run(placement, problem, split))
                cases, orders = cases + 1, orders + len(runs)
                for objective in Objective:
                    found = compare(placement, problem, split, objective, runs)
                    infeasible += not found.feasible and objective is Objective.MAKESPAN
                    bracketed[objective] += found.bracketed and found.feasible
                    wrong += len(found.wrong)
                    for text in found.wrong:
                        print(f"  {kind}, {mode}, seed {seed}, {objective}: {text}")
        print(
            f"{kind:10} {cases} cases, {orders} orders, {infeasible} infeasible, waiting can help: "
            + ", ".join(f"{count} ({objective})" for objective, count in bracketed.items())
            + f"; {time.perf_counter() - begin:.0f} s",
            flush=True,
        )
    print(f"{wrong} disagreements")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
