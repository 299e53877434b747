"""Files: what is written is read back, and what is broken is named at its place."""

import json
from fractions import Fraction

import pytest

import schedules
from explorer import api
from explorer.core.errors import Inapplicable, Malformed, UsageError
from explorer.core.files import write_text
from explorer.core.op import B, F, Overlapped
from explorer.core.placement import Hop, Placement, along
from explorer.core.schedule import Schedule
from explorer.io import native, table


@pytest.fixture
def replicas() -> Schedule:
    """Two routes in opposite directions with unequal chunks: more than a table can say."""
    down, up = (Hop(0, 0), Hop(1, 1)), (Hop(0, 1), Hop(1, 0))
    placement = Placement((down, up), (0, 1), (Fraction(1, 3), Fraction(2, 3)))
    orders = [[F(0, 0), F(1, 1), B(1, 1), B(0, 0)], [F(0, 1), F(1, 0), B(1, 0), B(0, 1)]]
    return Schedule.from_orders(placement, orders)


@pytest.fixture
def overlapped() -> Schedule:
    order = [F(0, 0), F(1, 0), Overlapped(F(0, 1), B(1, 0)), B(0, 0), F(1, 1), B(1, 1), B(0, 1)]
    return Schedule.from_orders(along([0, 0], 2), [order])


def test_native_format_is_lossless(replicas: Schedule, overlapped: Schedule) -> None:
    for schedule in (replicas, overlapped, schedules.find("1f1b")(3, 5).with_split_backward()):
        assert native.decode(json.loads(json.dumps(native.encode(schedule)))) == schedule


def test_table_reads_what_it_writes(overlapped: Schedule) -> None:
    for schedule in (overlapped, schedules.find("1f1b")(3, 5)):
        assert table.parse("".join(table.write(schedule))) == schedule


def test_table_refuses_several_routes(replicas: Schedule) -> None:
    with pytest.raises(Inapplicable, match="one route only"):
        list(table.write(replicas))


def test_table_ignores_empty_cells_spaces_and_lines() -> None:
    spaced = table.parse("0F0, 0F1,,0B0 ,,0B1\n\n,1F0,1B0,1F1,1B1\n")
    assert spaced == table.parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0B0\n1F0,1BW0\n", r"x:2:5: '1BW0' is not an op; expected <stage><F|I|W|B><microbatch>"),
        ("0F0x,0B0\n", "x:1:1: '0F0x' is not an op"),
        ("0F0,  0B\n", "x:1:7: '0B' is not an op"),
        ("0F0,-1B0\n", "x:1:5: '-1B0' is not an op"),
        ("(0F0;0B0)OVERLAP\n", "x:1:1: .* is not an op"),
        ("0F0,0B0\n0F1,0B1\n", "x:2:1: stage 0 stands on device 0 too"),
        ("0F0,0B0\n2F0,2B0\n", "stage 1 is missing: stages must be 0 to 2"),
        ("", "x: the table holds no op"),
        (",,\n", "x: the table holds no op"),
        ("0F0,0B0\n,,\n", "a device has no op"),
        ("0F99999999,0B0\n", "microbatches must be 0, 1, 2"),
    ],
)
def test_table_points_at_faults(text: str, message: str) -> None:
    with pytest.raises(Malformed, match=message.replace("|", r"\|")):
        table.parse(text, "x")


def _broken(**changes: object) -> object:
    good = native.encode(schedules.find("1f1b")(2, 2))
    return {key: value for key, value in (good | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], 'expected an object with "format"'),
        (_broken(format="other"), 'expected an object with "format"'),
        (_broken(version=99), "version 99 is not one"),
        (_broken(routes=None), "the key 'routes' is missing"),
        (_broken(routes=[[[0]]]), "not a schedule"),
        (_broken(routes=[[[0, -1], [1, 1]]]), "-1 is not an index"),
        (_broken(routes=[[[0, 0.5], [1, 1]]]), "0.5 is not an index"),
        (_broken(shares=["1/0", "1"]), "not a schedule"),
        (_broken(orders=[["0F0", "0Q0"], []]), r"orders\[0\]\[1\]: '0Q0' is not an op"),
        (_broken(orders=[["0F0", 3], []]), "not a schedule"),
    ],
)
def test_native_format_names_faults(data: object, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        native.decode(data)


def test_truncated_file_is_named_with_line_and_column(tmp_path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(json.dumps(native.encode(schedules.find("1f1b")(2, 2)))[:40])
    with pytest.raises(Malformed, match=r"cut\.json:1:\d+: not JSON"):
        api.load(path)


def test_files_that_are_no_schedules(tmp_path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        api.load(tmp_path / "missing.json")
    with pytest.raises(UsageError, match=r"read from \.json and \.csv files, not \.txt"):
        api.load(tmp_path / "x.txt")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        api.load(tmp_path / "folder.csv")
    (tmp_path / "binary.csv").write_bytes(b"0F0\xff\xfe")
    with pytest.raises(Malformed, match="byte 3 is no UTF-8"):
        api.load(tmp_path / "binary.csv")


def test_a_result_file_holds_its_schedule(tmp_path) -> None:
    schedule = schedules.find("1f1b")(2, 3)
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"status": "proved", "schedule": native.encode(schedule)}))
    assert api.load(path) == schedule


def test_nothing_is_written_half(tmp_path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("before")

    def parts():
        yield "0F0,"
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        write_text(path, parts())
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]
    with pytest.raises(UsageError, match="cannot be written"):
        write_text(tmp_path / "no" / "folder.csv", ["x"])
