"""Closed forms against evaluated tables: each schedule's own, and facts from its source or from proved optima."""

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import pytest

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Inapplicable, UsageError
from explorer.core.problem import Communication, Problem
from explorer.core.schedule import Schedule
from explorer.evaluation.case import case_of
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import peaks
from schedules.formula import Case

COSTS = ((1, 1), (1, 2), (2, 3), (1, 3))
"""Forward and backward times."""

VARIANTS: tuple[tuple[str, dict[str, object]], ...] = (
    *((schedule.name, {}) for schedule in schedules.every()),
    ("gpipe", {"reverse": True}),
    ("chimera", {"pipes": 2}),
    ("chimera", {"pipes": 3}),
    ("chimera", {"scaling": "double-forward"}),
    ("chimera", {"scaling": "double-forward", "pipes": 2}),
    ("hanayo", {"waves": 2}),
    ("hanayo", {"waves": 3}),
    ("interleaved-1f1b", {"chunks": 3}),
    ("asymmetric-chimera", {"split": "2:3"}),
    ("asymmetric-chimera", {"variant": "direction-split"}),
    ("asymmetric-chimera", {"variant": "direction-split", "split": "3:1"}),
    ("asymmetric-chimera", {"variant": "rotated"}),
)

WITHOUT_FORMULA = {
    "asymmetric-chimera",
    "asymmetric-chimera split=2:3",
    "asymmetric-chimera variant=direction-split",
    "asymmetric-chimera variant=direction-split split=3:1",
    "zb-auto",
}


class Run(NamedTuple):
    makespan: Fraction
    span: Fraction
    peaks: list[Fraction]


def costs(schedule: Schedule, forward: int, backward: int, comm: int = 0, mode: str = "none") -> Problem:
    return AbstractCosts(
        forward=Fraction(forward),
        backward=Fraction(backward),
        comm_time=Fraction(comm),
        communication=Communication(mode),
    ).problem(schedule.placement)


def case(name: str, devices: int, microbatches: int, forward: int = 1, backward: int = 2, **options: object) -> Case:
    schedule = schedules.find(name)(devices, microbatches, **options)
    return case_of(costs(schedule, forward, backward), schedule.placement, options)


def run(schedule: Schedule, forward: int, backward: int, comm: int = 0, mode: str = "none") -> Run:
    problem = costs(schedule, forward, backward, comm, mode)
    timeline = evaluate(schedule, problem)
    held = [problem.stash.unit * int(peak) for peak in peaks(schedule, problem, problem.stash)]
    return Run(problem.time.value(timeline.makespan), problem.time.value(int(timeline.spans.max())), held)


def idle(
    name: str, devices: int, microbatches: int, forward: int = 1, backward: int = 2, **options: object
) -> Fraction:
    schedule = schedules.find(name)(devices, microbatches, **options)
    return run(schedule, forward, backward).makespan - microbatches * (forward + backward)


def sizes(devices: int) -> list[int]:
    return sorted(
        {1, 2, 4, devices - 2, devices - 1, devices, devices + 1, *range(devices, 4 * devices + 1, devices)} - {0}
    )


def label(variant: tuple[str, Mapping[str, object]]) -> str:
    name, options = variant
    return " ".join([name, *(f"{key}={value}" for key, value in options.items())])


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_where_a_formula_speaks_the_table_agrees(variant: tuple[str, dict[str, object]]) -> None:
    name, options = variant
    named = schedules.find(name)
    compared = 0
    for devices in (2, 3, 4, 6, 8, 12):
        for microbatches in sizes(devices):
            try:
                schedule = named(devices, microbatches, **options)
            except Inapplicable:
                continue
            for forward, backward in COSTS:
                table = run(schedule, forward, backward)
                formula = named.formula(case_of(costs(schedule, forward, backward), schedule.placement, options))
                where = (devices, microbatches, forward, backward)
                assert formula.assumptions, where
                compared += formula.makespan is not None or formula.peak_activations is not None
                if formula.makespan is not None:
                    assert (*where, table.makespan) == (*where, formula.makespan)
                if formula.longest_device_span is not None:
                    assert (*where, table.span) == (*where, formula.longest_device_span)
                if formula.peak_activations is not None:
                    assert (*where, table.peaks) == (*where, list(formula.peak_activations))
    assert compared or label(variant) in WITHOUT_FORMULA


@pytest.mark.parametrize("devices", range(2, 13))
def test_gpipe_and_1f1b_idle_alike_and_hold_n_and_at_most_d_minus_s(devices: int) -> None:
    for microbatches in sizes(devices):
        for forward, backward in COSTS:
            for name in ("gpipe", "1f1b"):
                bubble = idle(name, devices, microbatches, forward, backward)
                assert bubble == (devices - 1) * (forward + backward)
        held = {name: run(schedules.find(name)(devices, microbatches), 1, 2).peaks for name in ("gpipe", "1f1b")}
        assert held["gpipe"] == [microbatches] * devices
        assert held["1f1b"] == [min(microbatches, devices - s) for s in range(devices)]


@pytest.mark.parametrize("devices", range(2, 13))
def test_gpipe_and_1f1b_differ_where_transfers_overlap_compute(devices: int) -> None:
    for microbatches in range(devices, 4 * devices + 1, devices):
        gpipe, one_f_one_b = (schedules.find(name)(devices, microbatches) for name in ("gpipe", "1f1b"))
        for forward, backward, comm in ((1, 2, 1), (2, 3, 1), (1, 1, 1), (4, 8, 3)):
            ideal = (microbatches + devices - 1) * (forward + backward)
            round_trip = 2 * (devices - 1)
            overlapped = run(gpipe, forward, backward, comm, "latency").makespan
            assert overlapped == ideal + round_trip * comm
            overlapped = run(one_f_one_b, forward, backward, comm, "latency").makespan
            assert overlapped == ideal + comm * (round_trip * microbatches // devices + 2 * devices - 4)
            blocking = run(gpipe, forward, backward, comm, "blocking").makespan
            assert blocking == ideal + 2 * (microbatches + devices - 2) * comm
            if devices >= 3:
                assert run(one_f_one_b, forward, backward, comm, "blocking").makespan == blocking - comm


def test_a_latency_of_one_forward_costs_1f1b_46_of_157() -> None:
    gpipe, one_f_one_b = (schedules.find(name)(4, 32) for name in ("gpipe", "1f1b"))
    assert [run(schedule, 1, 2, 1, "latency").makespan for schedule in (gpipe, one_f_one_b)] == [111, 157]


@pytest.mark.parametrize("devices", range(2, 13, 2))
def test_chimera_idles_as_concatenated_units_do(devices: int) -> None:
    for pipes in (f for f in range(1, devices // 2 + 1) if devices // 2 % f == 0):
        way = devices // pipes - 2
        for units in (1, 2, 3, 4):
            for forward, backward in COSTS:
                bubble = idle("chimera", devices, units * devices, forward, backward, pipes=pipes)
                assert bubble == way * backward + (units - 1) * way * (backward - forward)
        held = run(schedules.find("chimera")(devices, devices, pipes=pipes), 1, 2).peaks
        assert min(held) == devices - devices // (2 * pipes) + 1
        assert max(held) == devices
        if pipes == 1:
            assert [d for d, peak in enumerate(held) if peak == devices] == [devices // 2 - 1, devices // 2]


@pytest.mark.parametrize("devices", range(2, 13, 2))
def test_the_published_ratio_of_chimera_takes_equal_forwards_and_backwards(devices: int) -> None:
    for microbatches in (devices, 2 * devices, 4 * devices):
        published = Fraction(devices - 2, 2 * microbatches + devices - 2)
        named = schedules.find("chimera")
        assert named.formula(case("chimera", devices, microbatches, 1, 1)).bubble_ratio == published
        if devices > 2:
            assert named.formula(case("chimera", devices, microbatches, 1, 2)).bubble_ratio != published


@pytest.mark.parametrize("devices", range(4, 13, 2))
def test_forward_doubling_removes_the_bubbles_between_units_for_twice_the_activations(devices: int) -> None:
    single = run(schedules.find("chimera")(devices, devices), 1, 2).peaks
    for units in (1, 2, 3):
        microbatches = 2 * devices * units
        doubled = schedules.find("chimera")(devices, microbatches, scaling="double-forward")
        result = run(doubled, 1, 2)
        assert result.makespan - 3 * microbatches == 3 * (devices // 2 - 1)
        assert result.peaks == [2 * peak for peak in single]


@pytest.mark.parametrize("devices", range(4, 13, 2))
def test_chimera_warns_exactly_where_1f1b_is_faster(devices: int) -> None:
    for units in range(1, 7):
        warned = schedules.find("chimera").cautions(case("chimera", devices, units * devices))
        slower = idle("chimera", devices, units * devices) > idle("1f1b", devices, units * devices)
        assert bool(warned) == slower == (units > 1 + Fraction(devices + 1, devices - 2))


@pytest.mark.parametrize("devices", range(2, 13))
@pytest.mark.parametrize("waves", [1, 2, 4])
def test_hanayo_idles_for_2_d_minus_1_backwards_of_a_chunk(devices: int, waves: int) -> None:
    chunks = 2 * waves
    for forward, backward in COSTS:
        bubble = idle("hanayo", devices, devices, forward, backward, waves=waves)
        assert bubble * chunks == 2 * (devices - 1) * backward
    formula = schedules.find("hanayo").formula(case("hanayo", devices, devices, waves=waves))
    assert formula.bubble_ratio == Fraction(2 * devices - 2, 3 * devices * waves + 2 * devices - 2)


@pytest.mark.parametrize("waves", [1, 2])
@pytest.mark.parametrize("devices", [2, 3, 4, 6, 8])
def test_hanayo_says_what_it_loses_beyond_as_many_microbatches_as_devices(devices: int, waves: int) -> None:
    named = schedules.find("hanayo")
    for microbatches in (2 * devices, 3 * devices, 4 * devices):
        (warning,) = named.cautions(case("hanayo", devices, microbatches, waves=waves))
        best = 3 * microbatches + Fraction(3 * (devices - 1), 2 * waves)
        measured = run(named(devices, microbatches, waves=waves), 1, 2).makespan
        assert f"{float(measured / best - 1):.0%} longer" in warning
    assert named.cautions(case("hanayo", devices, devices, waves=waves)) == ()
    assert named.cautions(case("hanayo", devices, devices + 1, waves=waves))


def test_hanayo_with_8_microbatches_on_4_devices_takes_65_where_57_would_do() -> None:
    assert 2 * run(schedules.find("hanayo")(4, 8), 1, 2).makespan == 65


@pytest.mark.parametrize(("devices", "mirrored", "rotated"), [(4, 16, 15), (6, 26, 24), (8, 36, 33), (10, 46, 42)])
def test_rotated_replicas_reach_the_proved_optima(devices: int, mirrored: int, rotated: int) -> None:
    chimera = schedules.find("chimera")(devices, devices)
    ours = schedules.find("asymmetric-chimera")(devices, devices, variant="rotated")
    assert [run(schedule, 1, 2).makespan for schedule in (chimera, ours)] == [mirrored, rotated]
    assert run(chimera, 1, 1).makespan == run(ours, 1, 1).makespan
    assert max(run(ours, 1, 2).peaks) == devices


@pytest.mark.parametrize("devices", range(4, 13, 2))
def test_a_block_split_moves_activations_off_the_first_device_but_not_the_peak(devices: int) -> None:
    chimera = schedules.find("chimera")(devices, devices)
    split = schedules.find("asymmetric-chimera")(devices, devices, split="1:2")
    for forward, backward in COSTS:
        slower = run(split, forward, backward).makespan > run(chimera, forward, backward).makespan
        assert slower == (2 * forward > backward), "a heavy forward is longer than a light backward"
    even, uneven = run(chimera, 1, 2).peaks, run(split, 1, 2).peaks
    assert uneven[0] < even[0]
    assert max(uneven) == max(even)


@pytest.mark.parametrize("devices", [4, 6, 8])
def test_equal_directions_by_list_scheduling_idle_as_one_unit_of_chimera(devices: int) -> None:
    for microbatches in (devices, 2 * devices, 3 * devices):
        schedule = schedules.find("asymmetric-chimera")(devices, microbatches, variant="direction-split", split="1:1")
        result = run(schedule, 1, 2)
        assert result.makespan == 3 * microbatches + 2 * (devices - 2)
        assert max(result.peaks) <= devices


@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "options", "message"),
    [
        ("chimera", 5, 8, {}, "even number of devices"),
        ("chimera", 8, 8, {"pipes": 3}, "1, 2, 4 would do"),
        ("chimera", 4, 7, {}, "6 or 8 would do"),
        ("chimera", 4, 6, {"scaling": "double-forward"}, "4 or 8 would do"),
        ("chimera", 8, 10, {"pipes": 2}, "8 or 12 would do"),
        ("asymmetric-chimera", 4, 4, {"variant": "direction-split"}, "3 or 6 would do"),
        ("asymmetric-chimera", 4, 6, {"variant": "rotated"}, "4 or 8 would do"),
        ("hanayo", 4, 4, {"waves": 0}, "at least 1 wave"),
    ],
)
def test_a_refusal_says_which_size_would_do(
    name: str, devices: int, microbatches: int, options: dict[str, object], message: str
) -> None:
    with pytest.raises(Inapplicable, match=message):
        schedules.find(name)(devices, microbatches, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("chimera", {"scaling": "triple"}),
        ("asymmetric-chimera", {"variant": "diagonal"}),
        ("asymmetric-chimera", {"split": "1:0"}),
        ("asymmetric-chimera", {"split": "1:2x"}),
    ],
)
def test_an_unknown_value_is_a_usage_error(name: str, options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        schedules.find(name)(4, 4, **options)
