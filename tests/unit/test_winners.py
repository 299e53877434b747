"""Maps: who wins where, by how much, and where levels disagree."""

from __future__ import annotations

import pandas as pd
import pytest

from explorer.core.errors import UsageError
from explorer.sweep.winners import magnitude, winners

ROWS = [
    # schedule, microbatches, bandwidth, formula, table, execution
    ("a", 8, "10 GB/s", 10, 10, 14),
    ("b", 8, "10 GB/s", 11, 11, 12),
    ("c", 8, "10 GB/s", None, 9, 15),
    ("a", 16, "10 GB/s", 20, 20, 20),
    ("b", 16, "10 GB/s", 20, 21, 20),
    ("a", 8, "900 MB/s", 10, 10, 30),
]


def table(**more: object) -> pd.DataFrame:
    names = ("schedule", "microbatches", "bandwidth", "formula_makespan", "table_makespan", "makespan")
    rows = [
        {**dict(zip(names, row, strict=True)), "status": "done", "asynchronous": False, "fits_limit": True}
        for row in ROWS
    ]
    return pd.DataFrame(rows).assign(**more)  # type: ignore[arg-type]


def test_winners_margins_and_disagreements() -> None:
    found = winners(table(), "bandwidth", "microbatches")
    assert found.columns == ("900 MB/s", "10 GB/s") and found.rows == (8, 16)
    cell = found.cells["10 GB/s", 8]
    assert cell.winners == {"formula": ("a",), "table": ("c",), "execution": ("b",)}
    assert cell.margin == pytest.approx(14 / 12 - 1)
    assert cell.differing == {"formula": 1, "table": 1}  # c < a < b by table, b < a < c in execution
    assert cell.overturned == {"formula", "table"}
    tie = found.cells["10 GB/s", 16]
    assert tie.winners["execution"] == ("a", "b") and tie.margin == 0
    assert tie.differing == {"formula": 0, "table": 1}
    assert tie.overturned == frozenset()
    alone = found.cells["900 MB/s", 8]
    assert alone.margin is None and alone.differing == {"formula": None, "table": None}
    assert ("900 MB/s", 16) not in found.cells


def test_only_what_fits_and_flushes_takes_part() -> None:
    full = table()
    for column, value in (("fits_limit", False), ("asynchronous", True), ("status", "inapplicable")):
        full[column] = full[column].where(full.schedule != "b", value)
        assert winners(full, "bandwidth", "microbatches").cells["10 GB/s", 8].winners["execution"] == ("a",)
        full = table()


def test_other_axes_must_be_fixed() -> None:
    twice = pd.concat([table(devices=4), table(devices=8)])
    with pytest.raises(UsageError, match=r"devices has several values \(4, 8\): choose one with --where devices=VALUE"):
        winners(twice, "bandwidth", "microbatches")
    assert winners(twice, "bandwidth", "microbatches", {"devices": "8"}).cells
    with pytest.raises(UsageError, match="no point with devices = 5; it has 4, 8"):
        winners(twice, "bandwidth", "microbatches", {"devices": "5"})


@pytest.mark.parametrize(
    ("x", "y", "level", "message"),
    [
        ("bandwith", "microbatches", "execution", "no axis 'bandwith'; did you mean 'bandwidth'"),
        ("bandwidth", "bandwidth", "execution", "two different axes"),
        ("bandwidth", "schedule", "execution", "no axis 'schedule'"),
        ("bandwidth", "microbatches", "tables", "no level is called 'tables'; did you mean 'table'"),
    ],
)
def test_maps_that_are_none(x: str, y: str, level: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        winners(table(), x, y, None, level)


def test_values_sort_by_magnitude() -> None:
    values = ["1 GB/s", "500 MB/s", "free", "2 us", 3, "1/4", "none", "1e3"]
    assert sorted(values, key=magnitude) == ["2 us", "1/4", 3, "1e3", "500 MB/s", "1 GB/s", "free", "none"]


def test_values_are_given_as_grids_write_them() -> None:
    """TOML writes true, and 2 where a point of another grid without that axis has made the column one of floats."""
    flags = pd.concat([table(fsdp=True), table(fsdp=False)])
    assert winners(flags, "bandwidth", "microbatches", {"fsdp": "true"}).cells
    with pytest.raises(UsageError, match=r"fsdp has several values \(false, true\)"):
        winners(flags, "bandwidth", "microbatches")
    gaps = pd.concat([table(tensor_parallel=2), table()])
    assert winners(gaps, "bandwidth", "microbatches", {"tensor_parallel": "2"}).cells


def test_a_missing_value_is_told_with_those_chosen_before() -> None:
    mixed = pd.concat([table(recompute="none", fsdp=True), table(recompute="full", fsdp=False)])
    with pytest.raises(UsageError, match=r"no point with fsdp = false and recompute = none; it has full$"):
        winners(mixed, "bandwidth", "microbatches", {"fsdp": "false", "recompute": "none"})
