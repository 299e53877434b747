"""Costs as a table, the simplest thing that a user can paste."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from explorer import api
from explorer.config import measured
from explorer.core.errors import ExplorerError, Inapplicable

TABLE = "stage,F,B,activation,parameters\n0,1ms,2ms,1GiB,1000000\n1,2ms,4ms,2GiB,2000000\n"


def load(tmp_path: Path, text: str, **common: object) -> measured.MeasuredCosts:
    path = tmp_path / "costs.csv"
    path.write_text(text)
    return measured.load(path, **common)  # type: ignore[arg-type]


def test_times_and_sizes_are_those_of_the_table(tmp_path: Path) -> None:
    """GPipe, 2 microbatches: the second stage takes 2 x 6 ms, after 1 ms of the first and before its last 2 ms."""
    result = api.evaluate("gpipe", load(tmp_path, TABLE), 2, 2)
    assert result.makespan == Fraction(15, 1000)
    assert [device.peak_memory for device in result.devices] == [2 * 2**30 + 18 * 10**6, 4 * 2**30 + 36 * 10**6]


def test_halves_of_the_backward(tmp_path: Path) -> None:
    costs = load(tmp_path, "stage,F,I,W\n0,1ms,1ms,2ms\n1,1ms,1ms,2ms\n")
    assert api.evaluate("gpipe", costs, 2, 1).makespan == Fraction(8, 1000), "F, F, B, B: 1 + 1 + 3 + 3 ms"


def test_a_limit_in_bytes(tmp_path: Path) -> None:
    fits = api.evaluate("gpipe", load(tmp_path, TABLE, memory_limit="5GiB"), 2, 2)
    misses = api.evaluate("gpipe", load(tmp_path, TABLE, memory_limit="4GiB"), 2, 2)
    assert (fits.fits_memory, misses.fits_memory) == (True, False)
    without = "stage,F,B\n0,1,2\n"
    with pytest.raises(ExplorerError, match="in bytes, which need"):
        api.evaluate("gpipe", load(tmp_path, without, memory_limit="5GiB"), 1, 2)


def test_another_number_of_stages(tmp_path: Path) -> None:
    with pytest.raises(Inapplicable, match="measured for 2 stages"):
        api.evaluate("gpipe", load(tmp_path, TABLE), 4, 2)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begins with a line such as stage,F,B"),
        ("stage,F\n0,1\n", "costs.csv:1: a table of costs needs stage, F, and B"),
        ("stage,F,B,X\n", "costs.csv:1: columns may be stage"),
        ("stage,F,B,B\n", "once each"),
        ("stage,F,B\n", "a line for every stage"),
        ("stage,F,B\n1,1,2\n", "costs.csv:2: expected stage 0, got '1'"),
        ("stage,F,B\n0,1\n", "costs.csv:2: expected 3 values, got 2"),
        ("stage,F,B\n0,1,fast\n", "costs.csv:2: "),
        ("stage,F,B\n0,1,-2\n", "costs.csv:2: "),
        ("stage,F,B,activation\n0,1,2,3ms\n", "costs.csv:2: "),
        ("stage,F,B,parameters\n0,1,2,1.5\n", "a whole number"),
        ("stage,F,B,parameters\n0,1,2,999999999999999999\n", "pass 2^50 bytes"),
        ("stage,F,B,parameters\n0,1,2,1e400000000\n", "costs.csv:2: "),
        ("stage,F,B,parameters\n0,1,2,7B\n", "costs.csv:2: "),
        ('stage,F,B\n0,"1,2\n', "no table"),
    ],
)
def test_broken_tables_say_where(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ExplorerError) as caught:
        load(tmp_path, text)
    assert said in str(caught.value)
