"""Strict configs: what ships loads, what is broken is refused at its place."""

from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.config import catalogue
from explorer.config.decode import decode, parse
from explorer.config.system import System
from explorer.core.errors import Malformed, UsageError

GOOD = """
description = "test"
[compute]
matrix = "100 TFLOP/s"
[memory]
size = "80 GiB"
bandwidth = "2 TB/s"
[links.network]
latency = "2 us"
bandwidth = "25 GB/s"
"""


def system(text: str) -> System:
    return decode(System, parse(text, "x.toml"), "x.toml")


def test_quantities_are_exact() -> None:
    read = system(GOOD)
    assert read.compute.matrix == 100 * 10**12
    assert read.memory.size == 80 * 1024**3
    assert read.links.network.latency == Fraction(2, 10**6)
    assert read.links.network.bandwidth == 25 * 10**9
    assert system(GOOD.replace("[memory]", "efficiency = 0.1\n[memory]")).compute.efficiency == Fraction(1, 10)
    assert system(GOOD.replace("25 GB/s", "200 Gbit/s")) == read


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("matrix =", "matrx =", r"x.toml: unknown key 'compute.matrx'; did you mean 'matrix'"),
        ("[memory]", "[memroy]", r"unknown key 'memroy'; did you mean 'memory'"),
        ('matrix = "100 TFLOP/s"', "", "the key 'compute.matrix' is missing"),
        ('"2 us"', '"2 GB"', "links.network.latency needs one of the units"),
        ('"2 us"', '"2"', "links.network.latency needs one of the units"),
        ('"2 us"', "2", "links.network.latency needs a unit"),
        ('"2 us"', '"soon"', "links.network.latency must be a number"),
        ('"2 us"', '"-2 us"', "latencies and overheads cannot be negative"),
        ('"25 GB/s"', '"0 GB/s"', "links.network: a link's bandwidth must be positive"),
        ('"test"', "7", "description must be text, got 7"),
        ("[memory]", "efficiency = 1.5\n[memory]", "compute.efficiency must be over 0 and at most 1"),
        ("[memory]", 'efficiency = "high"\n[memory]', "compute.efficiency must be a number"),
        ("[memory]", "efficiency = true\n[memory]", "compute.efficiency must be a number"),
        ("[compute]", "devices_per_node = 8.0\n[compute]", "devices_per_node must be a whole number"),
        ("[compute]", "devices_per_node = 8\n[compute]", r"nodes of several devices need a table \[links.node\]"),
        ("[compute]", "devices_per_node = 0\n[compute]", "devices_per_node must be at least 1"),
        ("[compute]", "links = 3\n[compute]", "not TOML|links must be a table"),
        ("[links.network]", "[links.network", r"not TOML: .*line \d+"),
        ('size = "80 GiB"', 'size = "80 GiB', r"not TOML: .*line \d+"),
    ],
)
def test_broken_systems_are_refused_by_name(old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(Malformed, match=message):
        system(GOOD.replace(old, new, 1))


def test_everything_that_ships_loads() -> None:
    assert {"paper-h100", "h100-sxm", "a100-sxm", "a100-pcie", "l40s-ethernet"} <= set(catalogue.names("systems"))
    for name in catalogue.names("systems"):
        assert catalogue.load_system(name).description
    for name in (file.removesuffix(".toml") for file in catalogue.files_of("models") if file.endswith(".toml")):
        assert catalogue.load_model(name).description


def test_the_users_file_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shipped = catalogue.load_system("h100-sxm")
    Path("h100-sxm.toml").write_text(GOOD)
    assert catalogue.load_system("h100-sxm") == catalogue.load_system("h100-sxm.toml") != shipped
    assert catalogue.load_system(str(tmp_path / "h100-sxm.toml")).description == "test"


def test_unknown_names_list_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no system is called 'h100'; did you mean .*'h100-sxm'"):
        catalogue.load_system("h100")
    with pytest.raises(UsageError, match="no model is called 'zzz'; known: deepseek-v3, gpt3-175b"):
        catalogue.load_model("zzz")
    with pytest.raises(UsageError, match="there is no file"):
        catalogue.load_model(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "the key 'description' is missing"), (b"\xff", "no UTF-8 text")]
)
def test_files_that_hold_no_system(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    with pytest.raises(Malformed, match=message):
        catalogue.load_system(str(path))


def test_systems_know_which_link_joins_two_devices() -> None:
    nodes = catalogue.load_system("h100-sxm")
    assert [nodes.link_names[nodes.link(0, to)] for to in (1, 7, 8)] == ["node", "node", "network"]
    flat = catalogue.load_system("paper-h100")
    assert flat.link_names[flat.link(0, 1)] == "network"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "9" * 5000, "x.toml: a number has thousands of digits"),
        ("x = " + "[" * 20000, "x.toml: nested too deeply"),
        ("x = 1\nx = 2\ny = 3", r"not TOML: .*line 2"),
    ],
)
def test_text_that_is_no_toml(text: str, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        parse(text, "x.toml")


@pytest.mark.parametrize("number", ["9223372036854775808", "0x" + "f" * 5000, "-9223372036854775809"])
def test_integers_beyond_64_bits_are_refused(number: str) -> None:
    for line in (f"devices_per_node = {number}\n", f"description = {number}\n"):
        rest = GOOD.replace('description = "test"\n', "") if line.startswith("description") else GOOD
        with pytest.raises(Malformed, match="beyond 64 bits"):
            system(line + rest)


def test_a_file_cut_short_is_refused_or_whole() -> None:
    """Cut anywhere: until the last required value is complete, it is refused; nothing but `Malformed` is raised."""
    read = 0
    for length in range(len(GOOD)):
        try:
            system(GOOD[:length])
        except Malformed:
            continue
        read += 1
        assert GOOD[:length].endswith('"25 GB/s"')
    assert read == 1


_VALUES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.decimals(),
    st.booleans(),
    st.text(max_size=20),
    st.sampled_from(["1e30 B/s", "1e-30 s", "80 GiB", "1/3 TFLOP/s", "0 s", "-1 s"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["latency", "bandwidth", "size", "matrix", "é"]), st.text(max_size=9), max_size=3),
)


@given(st.sampled_from([(), ("compute",), ("memory",), ("links",), ("links", "network")]), st.data())
def test_any_value_in_any_place_is_read_or_refused(path: tuple[str, ...], data: st.DataObject) -> None:
    table = parse(GOOD, "x.toml")
    place = table
    for key in path:
        place = place[key]
    place[data.draw(st.sampled_from([*place, "efficiency", "latency", "devices_per_node", "node"]))] = data.draw(
        _VALUES
    )
    try:
        assert isinstance(decode(System, table, "x.toml"), System)
    except Malformed as error:
        assert str(error).startswith("x.toml: ")


def test_what_ships_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert catalogue.load_system("Paper-H100") == catalogue.load_system(catalogue.DEFAULT_SYSTEM)
    assert catalogue.load_model(catalogue.DEFAULT_MODEL).blocks == 128


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 5000, "no system is called"),
        ("", "no system is called ''"),
        (".", "is a folder"),
        ("some/where", "there is no file some/where$"),
    ],
)
def test_names_that_are_no_file(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        catalogue.load_system(name)


def test_a_model_in_place_of_a_system_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text((files("configs") / "models" / "llama3-8b.toml").read_text("utf-8"), "utf-8")
    with pytest.raises(Malformed, match="unknown key 'blocks'"):
        catalogue.load_system(str(path))
