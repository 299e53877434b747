"""Closed forms of split schedules under uneven costs, and makespans and memory of public tools' own orders.

``library_makespans.csv`` gives costs of one op, the makespan, the longest device span and the peak in activations of an
op, computed from the order that the named tool produced. ``overlap`` is the time of an F&B pair over the sum of its
ops. Left out, because the tool does something else:

- a transfer time between I and W on one device (Victarry's zb1p, DualPipe and DualPipeV with latency);
- DualPipeV whose last backwards are not fused, interleaving whose first device runs no backward ahead of forwards
  (minPP);
- ZB-V with fewer than 2D-1 microbatches in tools that search (ColossalAI, sail-sg): they are shorter;
- V-Min and V-Half of sail-sg where ours are shorter: see below.
"""

import csv
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Inapplicable
from explorer.core.problem import Communication
from explorer.core.schedule import Schedule
from explorer.evaluation.case import case_of
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import peaks

TABLE = Path(__file__).parents[1] / "golden" / "library_makespans.csv"
ROWS = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))


def measured(schedule: Schedule, costs: AbstractCosts) -> tuple[Fraction, Fraction, list[Fraction]]:
    problem = costs.problem(schedule.placement)
    timeline = evaluate(schedule, problem)
    held = [int(peak) * problem.stash.unit for peak in peaks(schedule, problem, problem.stash)]
    return problem.time.value(timeline.makespan), problem.time.value(int(timeline.spans.max())), held


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['schedule']}-{row['devices']}-{row['microbatches']}")
def test_our_order_takes_as_long_and_holds_as_much_as_the_tools(row: dict[str, str]) -> None:
    options = {name: int(value) for name, _, value in (part.partition("=") for part in row["options"].split())}
    schedule = schedules.find(row["schedule"])(int(row["devices"]), int(row["microbatches"]), **options)
    costs = AbstractCosts(
        **{name: Fraction(row[name]) for name in ("forward", "input_grad", "weight_grad", "overlap")},
        comm_time=Fraction(row["latency"]),
        communication=Communication.LATENCY,
        per_stage=True,
    )
    makespan, span, held = measured(schedule, costs)
    assert (makespan, span) == (Fraction(row["makespan"]), Fraction(row["span"])), row["source"]
    if row["peak"]:
        assert max(held) == Fraction(row["peak"]), row["source"]


def split_costs(forward: int, input_grad: int, weight_grad: int, overlap: Fraction = Fraction(1)) -> AbstractCosts:
    return AbstractCosts(
        forward=Fraction(forward),
        input_grad=Fraction(input_grad),
        weight_grad=Fraction(weight_grad),
        overlap=overlap,
    )


@pytest.mark.parametrize("name", ["zb-h1", "zb-h2", "zb-v", "interleaved-zb", "v-min", "v-half", "v-zb"])
def test_closed_forms_hold_whatever_f_i_and_w_take(name: str) -> None:
    timed = spanned = 0
    for devices, per_device in product((1, 2, 3, 5), (Fraction(1, 2), 1, 2, 3, 4)):
        microbatches = max(1, int(devices * per_device))
        try:
            schedule = schedules.find(name)(devices, microbatches)
        except Inapplicable:
            continue
        for forward, input_grad, weight_grad in product((1, 2, 3), (1, 2, 5), (1, 2, 4)):
            costs = split_costs(forward, input_grad, weight_grad)
            formula = schedules.find(name).formula(case_of(costs.problem(schedule.placement), schedule.placement, {}))
            makespan, span, held = measured(schedule, costs)
            where = (devices, microbatches, forward, input_grad, weight_grad)
            if formula.makespan is not None:
                timed += 1
                assert (*where, makespan) == (*where, formula.makespan)
                work = microbatches * (forward + input_grad + weight_grad)
                assert formula.bubble_ratio == 1 - work / makespan
            if formula.longest_device_span is not None:
                spanned += 1
                assert (*where, span) == (*where, formula.longest_device_span)
            if formula.peak_activations is not None:
                assert (*where, held) == (*where, list(formula.peak_activations))
    assert bool(timed) == (not name.startswith("v-"))
    assert bool(spanned) == (name in ("zb-h1", "zb-h2", "zb-v"))


@pytest.mark.parametrize("overlap", [Fraction(1), Fraction(5, 6), Fraction(2, 3)])
@pytest.mark.parametrize(("name", "sizes"), [("dualpipe", (2, 4, 6, 8)), ("dualpipe-v", (1, 2, 3, 4))])
def test_the_bubble_of_dualpipe(name: str, sizes: tuple[int, ...], overlap: Fraction) -> None:
    for devices in sizes:
        for microbatches in (2 * devices, 2 * devices + 2, 4 * devices):
            schedule = schedules.find(name)(devices, microbatches)
            for forward, weight_grad in ((1, 1), (2, 1), (3, 1), (3, 2)):
                costs = split_costs(forward, forward, weight_grad, overlap)
                case = case_of(costs.problem(schedule.placement), schedule.placement, {})
                formula = schedules.find(name).formula(case)
                makespan, _, held = measured(schedule, costs)
                assert (formula.makespan, list(formula.peak_activations or ())) == (makespan, held)
                if overlap == 1:  # the published (D/2-1)(F&B + B - 3W), in what one op takes
                    share = 1 if name == "dualpipe" else Fraction(1, 2)
                    depth = devices // 2 if name == "dualpipe" else devices
                    both, backward = 2 * forward + weight_grad, forward + weight_grad
                    bubble = (depth - 1) * share * (both + backward - 3 * weight_grad)
                    assert formula.bubble_ratio == bubble / makespan


@pytest.mark.parametrize(
    ("name", "idle", "activations"),
    [
        ("zb-h1", lambda d: d - 1, lambda d: d),
        ("zb-h2", lambda d: 0, lambda d: 2 * d - 1),
        ("zb-v", lambda d: 0, lambda d: d),
    ],
)
def test_the_zero_bubble_papers_table_at_equal_costs(name, idle, activations) -> None:
    """Bubble by the longest device span, and activations, where F, I and W take equally long (arXiv:2401.10241)."""
    for devices in range(2, 9):
        microbatches = 3 * devices
        _, span, held = measured(schedules.find(name)(devices, microbatches), split_costs(1, 1, 1))
        assert (span - 3 * microbatches, max(held)) == (idle(devices), activations(devices))


@pytest.mark.parametrize(
    ("name", "most"),
    [("v-min", lambda d: (d + 4) // 3), ("v-half", lambda d: (d + 2) // 2), ("v-zb", lambda d: d)],
)
def test_building_blocks_keep_to_their_memory(name, most) -> None:
    """The limits of arXiv:2405.15362; V-ZB's drain is that of ZB-V, but its span keeps a bubble of (D-1)//2 ops."""
    for devices in range(2, 11):
        makespan, span, held = measured(schedules.find(name)(devices, 4 * devices), split_costs(2, 2, 2))
        assert held == [most(devices)] * devices
        if name == "v-zb":
            assert (makespan - 24 * devices, span - 24 * devices) == (devices - 1, (devices - 1) // 2)


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "theirs", "ours"),
    [("v-half", 4, 4, 34, 29), ("v-min", 2, 2, 15, 13), ("v-min", 2, 4, 27, 25), ("v-min", 8, 16, 123, 121)],
)
def test_pulling_every_op_forward_is_shorter_than_only_warm_up_and_drain(
    name: str, devices: int, microbatches: int, theirs: int, ours: int
) -> None:
    """Against sail-sg/zero-bubble at 39f2c18, in chunk units; theirs holds 3 chunks on two devices, ours 4."""
    makespan, _, held = measured(schedules.find(name)(devices, microbatches), split_costs(2, 2, 2))
    assert makespan == ours < theirs
    assert 2 * max(held) <= {2: 4, 4: 6, 8: 8}[devices]
