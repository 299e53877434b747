"""No schedule drops, repeats or locks up an op, and where one does not exist it says which sizes would do."""

import re

import pytest

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Inapplicable, UsageError
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate

VARIANTS: list[tuple[str, dict[str, object]]] = [
    ("eager-1f1b", {}),
    ("interleaved-1f1b", {}),
    ("interleaved-1f1b", {"chunks": 1}),
    ("interleaved-1f1b", {"chunks": 3, "group": 5}),
    ("interleaved-zb", {}),
    ("interleaved-zb", {"chunks": 3}),
    ("looped-bfs", {}),
    ("looped-bfs", {"chunks": 3}),
    *((name, {}) for name in ("zb-h1", "zb-h2", "zb-v", "v-min", "v-half", "v-zb", "dualpipe", "dualpipe-v")),
    ("zb-auto", {}),
    ("zb-auto", {"objective": "span"}),
    ("pipedream", {}),
    ("pipedream-2bw", {"accumulate": 8}),
    ("local-accumulation", {"accumulate": 2}),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=lambda part: str(part))
def test_every_op_is_there_once_and_none_waits_for_ever(name: str, options: dict[str, object]) -> None:
    built = 0
    for devices in (1, 2, 3, 4, 6):
        for microbatches in range(1, 4 * devices + 1):
            try:
                schedule = schedules.find(name)(devices, microbatches, **options)
            except Inapplicable:
                continue
            built += 1
            assert (schedule.devices, schedule.microbatches) == (devices, microbatches)
            evaluate(schedule, AbstractCosts().problem(schedule.placement))
    assert built


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("interleaved-1f1b", {}),
        ("interleaved-1f1b", {"group": 7}),
        ("interleaved-zb", {}),
        ("dualpipe", {}),
        ("dualpipe-v", {}),
    ],
    ids=lambda part: str(part),
)
def test_a_refusal_names_numbers_of_microbatches_that_would_do(name: str, options: dict[str, object]) -> None:
    refused = 0
    for devices in (2, 4, 6):
        for microbatches in range(1, 4 * devices + 1):
            try:
                schedules.find(name)(devices, microbatches, **options)
            except Inapplicable as error:
                refused += 1
                advice = re.search(r"(?:(\d+) or )?(\d+) would do", str(error))
                assert advice, error
                for number in filter(None, advice.groups()):
                    assert schedules.find(name)(devices, int(number), **options).microbatches == int(number)
    assert refused


@pytest.mark.parametrize(
    ("name", "devices", "options", "message"),
    [
        ("dualpipe", 3, {}, "needs an even number of devices, got 3; 4 would do"),
        ("interleaved-1f1b", 4, {"group": 3}, "groups of at least 4 microbatches"),
        ("interleaved-1f1b", 4, {"chunks": 0}, "at least 1 chunk"),
        ("looped-bfs", 4, {"chunks": 0}, "at least 1 chunk"),
        ("pipedream-2bw", 4, {"accumulate": 3}, "at least 4 microbatches an update, got 3"),
        ("local-accumulation", 4, {"accumulate": 0}, "at least 1 microbatch an update"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, devices: int, options: dict[str, object], message: str) -> None:
    with pytest.raises(Inapplicable, match=message):
        schedules.find(name)(devices, 16, **options)


def test_one_chunk_interleaved_is_1f1b() -> None:
    for microbatches in (4, 8, 12):
        assert schedules.find("interleaved-1f1b")(4, microbatches, chunks=1) == schedules.find("1f1b")(4, microbatches)


def without_weights(schedule: Schedule) -> list[list[str]]:
    return [[str(op) for op in schedule.ops(d) if op.kind.letter != "W"] for d in range(schedule.devices)]


def test_zb_h1_runs_forwards_and_input_gradients_as_1f1b_does() -> None:
    for devices in (2, 3, 5):
        for microbatches in range(1, 4 * devices):
            one_f_one_b = schedules.find("1f1b")(devices, microbatches).with_split_backward()
            assert without_weights(schedules.find("zb-h1")(devices, microbatches)) == without_weights(one_f_one_b)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("interleaved-1f1b", "group", "four"),
        ("interleaved-1f1b", "chunks", None),
        ("interleaved-1f1b", "chunks", True),
        ("pipedream-2bw", "accumulate", 4.5),
    ],
)
def test_an_option_that_counts_takes_whole_numbers(name: str, option: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"option {option} of {name} must be a whole number, got {value!r}"):
        schedules.find(name)(4, 8, **{option: value})
