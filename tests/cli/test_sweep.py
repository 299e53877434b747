"""Sweeps: grids, stores that survive kills and company, tables of results."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from explorer.api import compare
from explorer.cli.sweep import _subjects
from explorer.core.errors import ExplorerError, Malformed, UsageError
from explorer.sweep import cluster, frame
from explorer.sweep import grid as grids
from explorer.sweep.costs import costs_of
from explorer.sweep.point import address, version
from explorer.sweep.run import Progress, sweep
from explorer.sweep.store import Store

SMALL = """
schedules = ["gpipe", "1f1b", "chimera", "hanayo:waves=2"]
devices = [2, 4]
microbatches = {from = 4, to = 16, factor = 2}
[costs]
forward = 1
comm_time = ["0", "1/4", "1"]
"""
SUBJECTS = {name: (name, {}) for name in ("gpipe", "1f1b", "chimera")} | {"hanayo:waves=2": ("hanayo", {"waves": 2})}


def grid(tmp_path: Path, text: str = SMALL) -> grids.Grid:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return grids.load(path)


def run(grid: grids.Grid, path: Path) -> Progress:
    with Store(path, version()) as store:
        return sweep(grid, SUBJECTS, store, workers=0)


def test_degrees_that_do_not_divide_are_points_without_a_result(tmp_path: Path) -> None:
    """Llama 3 8B has 8 key-value heads: 3 does not divide them, and the other points are computed all the same."""
    text = (
        'schedules = ["1f1b"]\ndevices = 2\nmicrobatches = 4\n[costs]\nmodel = "llama3-8b"\n'
        'system = "h100-sxm"\ntensor_parallel = [1, 2, 3]\n'
    )
    run(grid(tmp_path, text), tmp_path / "s.sqlite")
    table = frame.load(tmp_path / "s.sqlite").set_index("tensor_parallel")
    assert table.status.to_dict() == {1: "done", 2: "done", 3: "inapplicable"}
    assert "does not divide 32 attention heads" in table.reason[3]
    with pytest.raises(Malformed, match="global_batch"):
        grid(tmp_path, text + "global_batch = 64\n")


def test_points_are_what_compare_says(tmp_path: Path) -> None:
    small = grid(tmp_path)
    assert run(small, tmp_path / "s.sqlite") == Progress(72, 0, 72)
    table = frame.load(tmp_path / "s.sqlite")
    assert len(table) == 72
    here = table[(table.devices == 4) & (table.microbatches == 8) & (table.comm_time == "1/4")].set_index("schedule")
    costs = costs_of((("comm_time", "1/4"), ("forward", 1)))
    for row in compare(
        [(name, options) for name, options in SUBJECTS.values()], costs, 4, 8, engine="longest-path"
    ).rows:
        found = here.loc[row.name]
        assert found.status == "done"
        assert found.makespan == float(row.makespan)
        assert found.table_makespan == float(row.levels["table"].makespan or 0)
        assert found.peak_activations == float(max(row.levels["table"].peak_activations or [0]))
        assert pd.isna(found.formula_makespan) == (row.levels["formula"].makespan is None)


def test_what_is_known_is_not_computed_again(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    assert run(grid(tmp_path), store).computed == 72
    assert run(grid(tmp_path), store) == Progress(72, 72, 0)
    more = SMALL.replace('"1"]', '"1", "2"]')
    assert run(grid(tmp_path, more), store) == Progress(96, 72, 24)


def test_addresses_follow_the_meaning_of_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "configs/systems/h100-sxm.toml").read_text()
    point = grids.Point("1f1b", 4, 8, (("system", "mine.toml"),))
    Path("mine.toml").write_text(text)
    first = address(point)
    Path("mine.toml").write_text(text.replace("989 TFLOP/s", "990 TFLOP/s"))
    code = f"from explorer.sweep.point import *; print(address({point!r}))"
    code = code.replace("Point(", "__import__('explorer.sweep.grid', fromlist=['']).Point(")
    changed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert len(changed) == len(first) and changed != first


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "explorer", *map(str, words)]


def counts(path: Path) -> tuple[int, int]:
    with sqlite3.connect(path) as db:
        return tuple(db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("results", "claims"))  # type: ignore[return-value]


LARGER = SMALL.replace("to = 16, factor = 2", "to = 64, step = 4").replace("[2, 4]", "[8, 16]")


def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path: Path) -> None:
    size = grid(tmp_path, LARGER).size
    store = tmp_path / "grid.sqlite"
    process = subprocess.Popen(command("sweep", tmp_path / "grid.toml", "--workers", "2"), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not store.exists() or not _has_results(store)):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    had, claimed = counts(store)
    assert 0 < had < size, "killed too late or too early to show anything"
    again = subprocess.run(
        command("sweep", tmp_path / "grid.toml", "--workers", "0", "--json"), capture_output=True, text=True, check=True
    )
    said = json.loads(again.stdout)
    assert (said["points"], said["known"], said["computed"]) == (size, had, size - had)
    assert claimed <= 2 * 2 * 16, "more was in flight than the workers' batches"
    assert counts(store) == (size, 0)


def _has_results(store: Path) -> bool:
    try:
        return counts(store)[0] > 0
    except sqlite3.OperationalError:
        return False


def test_interrupted_it_says_so_and_gives_its_claims_back(tmp_path: Path) -> None:
    grid(tmp_path, LARGER)
    store = tmp_path / "grid.sqlite"
    words = command("sweep", tmp_path / "grid.toml", "--workers", "2")
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not store.exists() or not _has_results(store)):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and said.strip().endswith("explorer: interrupted")
    assert counts(store)[0] > 0 and counts(store)[1] == 0


def test_two_at_once_share_the_work(tmp_path: Path) -> None:
    size = grid(tmp_path, LARGER).size
    words = command("sweep", tmp_path / "grid.toml", "--workers", "0", "--json")
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [json.loads(process.communicate(timeout=120)[0]) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all(each["known"] + each["computed"] + each["elsewhere"] == size for each in said)
    assert sum(each["computed"] for each in said) == size, "something was computed twice"
    assert counts(tmp_path / "grid.sqlite") == (size, 0)


def test_a_claim_is_respected_while_its_owner_lives(tmp_path: Path) -> None:
    with Store(tmp_path / "s.sqlite", "1") as mine:
        assert mine.claim(["a", "b"]) == ["a", "b"]
        assert mine.claim(["b", "c"]) == ["c"]
        code = (
            "import sys, time; from pathlib import Path; from explorer.sweep.store import Store; "
            "s = Store(Path(sys.argv[1]), '1'); print(s.claim(['c', 'd']), flush=True); time.sleep(60)"
        )
        words = [sys.executable, "-c", code, str(tmp_path / "s.sqlite")]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "['d']"
        assert mine.claim(["d"]) == []
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
        assert mine.claim(["d"]) == ["d"]
        mine.record([("a", {"x": 1}, {"y": 2})])
        assert mine.claim(["a"]) == []
        assert list(mine.rows()) == [({"x": 1}, {"y": 2})]


def test_stores_that_cannot_be_used(tmp_path: Path) -> None:
    def refused(path: Path, version: str = "2", create: bool = True) -> str:
        with pytest.raises(ExplorerError) as error:
            Store(path, version, create=create)
        return str(error.value)

    Store(tmp_path / "s.sqlite", "1").close()
    assert "was written by version 1, this is 2" in refused(tmp_path / "s.sqlite")
    (tmp_path / "text.sqlite").write_text("no database at all, but long enough to be looked at as if it were one" * 20)
    assert "no store of sweeps, or it is damaged" in refused(tmp_path / "text.sqlite")
    with sqlite3.connect(tmp_path / "other.sqlite") as db:
        db.execute("CREATE TABLE x (y)")
    assert "but no store of sweeps" in refused(tmp_path / "other.sqlite")
    assert "cannot be used" in refused(tmp_path / "no" / "folder.sqlite")
    assert "there is no store" in refused(tmp_path / "none.sqlite", create=False)
    with sqlite3.connect(tmp_path / "s.sqlite") as db:
        db.execute("PRAGMA user_version = 7")
    assert "has layout 7" in refused(tmp_path / "s.sqlite", "1")


def test_a_store_with_a_damaged_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path, "1") as store:
        store.record((f"{n:032}", {"x": n}, {"y": "z" * 200}) for n in range(200))
    data = bytearray(path.read_bytes())
    data[5 * 4096 : 7 * 4096] = b"\xff" * (2 * 4096)
    path.write_bytes(data)
    with pytest.raises(Malformed, match="damaged"):
        Store(path, "1")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="cannot be used"):
        Store(tmp_path / "s.sqlite", "1")


def test_huge_grids_are_refused_with_their_size(tmp_path: Path) -> None:
    huge = grid(
        tmp_path, SMALL.replace("to = 16, factor = 2", "to = 300000003").replace("devices = [2, 4]", "devices = 2")
    )
    assert huge.size == 4 * 300_000_000 * 3
    with pytest.raises(UsageError, match="the grid has 3,600,000,000 points, more than 1,000,000"):
        next(huge.points())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("devices =", "device =", "unknown key 'device'; did you mean 'devices'"),
        ("devices = [2, 4]", "", "the key 'devices' is missing"),
        ("[2, 4]", "[2, 2]", "devices names a value twice"),
        ("[2, 4]", "[]", "devices must be a whole number"),
        ("[2, 4]", "[0]", "devices must be a whole number"),
        ("[2, 4]", "true", "devices must be a whole number"),
        ("from = 4, to = 16", "from = 4, until = 16", "a range of microbatches has"),
        ("from = 4, to = 16", "from = 40, to = 16", "the range of microbatches holds nothing"),
        ("factor = 2", "factor = 1", "the range of microbatches holds nothing"),
        ("comm_time", "comtime", "unknown key 'costs.comtime'; did you mean 'comm_time'"),
        ('["0", "1/4", "1"]', "[]", "costs.comm_time has no value"),
        ('["0", "1/4", "1"]', "{from = 1, to = 2, points = 3}", "costs.comm_time must be a value or a list"),
        ("[costs]", "[[costs]]", r"costs must be a table \[costs\]"),
    ],
)
def test_broken_grids_are_refused_by_name(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(Malformed, match=message):
        grid(tmp_path, SMALL.replace(old, new, 1))


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ((("forward", "1"), ("system", "h100-sxm")), "forward gives abstract costs and system modelled ones"),
        ((("communication", "links"),), "no communication mode is called 'links'"),
        ((("forward", "1s"), ("backward", "2")), "give either all times a unit"),
        ((("embeddings", "yes"),), "embeddings must be true or false"),
        ((("sync_on_links", 1),), "sync_on_links must be true or false"),
        ((("sync_on_links", True), ("communication", "none")), "mode link, not in mode none"),
        ((("data_parallel", "2"),), "data_parallel must be a whole number"),
    ],
)
def test_wrong_costs(costs: tuple[tuple[str, object], ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        costs_of(costs)


def test_ranges_of_quantities(tmp_path: Path) -> None:
    text = SMALL.replace(
        'forward = 1\ncomm_time = ["0", "1/4", "1"]', 'bandwidth = {from = "100 MB/s", to = "10 GB/s", points = 3}'
    )
    assert grid(tmp_path, text).costs["bandwidth"] == ("0.1 GB/s", "1 GB/s", "10 GB/s")


def test_results_go_to_files(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(SMALL)
    words = command("sweep", tmp_path / "grid.toml", "--workers", "0", "--output", tmp_path / "out.csv")
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said.startswith("72 points, 0 of them known before")
    assert len(pd.read_csv(tmp_path / "out.csv")) == 72
    wrong = subprocess.run([*words[:-1], "out.xls"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr) == (2, "explorer: --output must end in .csv or .parquet, got out.xls\n")


def test_a_map_of_a_sweep(tmp_path: Path) -> None:
    run(grid(tmp_path), tmp_path / "grid.sqlite")
    words = command("map", tmp_path / "grid.toml", "--x", "comm_time", "--where", "devices=4")
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "Fastest by execution" in shown and "another wins in execution" in shown
    said = json.loads(subprocess.run([*words, "--json"], capture_output=True, text=True, check=True).stdout)
    assert {(cell["comm_time"], cell["microbatches"]) for cell in said["cells"]} == {
        (time, count) for time in ("0", "1/4", "1") for count in (4, 8, 16)
    }
    cell = next(cell for cell in said["cells"] if (cell["comm_time"], cell["microbatches"]) == ("0", 8))
    assert cell["margin"] == 0 or len(cell["winners"]["execution"]) == 1
    wrong = subprocess.run(command("map", tmp_path / "none.sqlite"), capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr.count("there is no store")) == (2, 1)


def test_searches_stand_beside_the_named_schedules(tmp_path: Path) -> None:
    text = 'schedules = ["1f1b", "zb-h1", "optimize:time_limit=20"]\ndevices = 2\nmicrobatches = [2, 3]\n'
    text += "costs.forward = 1\n"
    (tmp_path / "grid.toml").write_text(text)
    subprocess.run(command("sweep", tmp_path / "grid.toml", "--workers", "0"), capture_output=True, check=True)
    table = frame.load(tmp_path / "grid.sqlite").set_index(["schedule", "microbatches"])
    for microbatches in (2, 3):
        best = table.loc["optimize:time_limit=20", microbatches]
        assert best.proved and best.bound == best.makespan
        assert best.makespan <= min(table.loc[name, microbatches].makespan for name in ("1f1b", "zb-h1"))


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("optimize:place=v", "optimize has no option 'place'; did you mean 'placement'"),
        ("optimize:placement=w", "no placement is called 'w'"),
        ("optimize:time_limit=0", "time_limit must be over 0"),
        ("optimize:size=1.5", "size must be a whole number"),
        ("optimize:fused=maybe", "fused must be true or false"),
        ("1f2b", "no schedule is called '1f2b'"),
        ("x.json", "a sweep needs schedules that exist for many sizes"),
    ],
)
def test_schedules_that_no_sweep_has(tmp_path: Path, schedule: str, message: str) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(f'schedules = "{schedule}"\ndevices = 2\nmicrobatches = 2\n')
    with pytest.raises(UsageError, match=message):
        _subjects(grids.load(path))


def test_a_sweep_in_which_nothing_can_be_evaluated(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(
        'schedules = "chimera"\ndevices = 4\nmicrobatches = [3, 5]\ncosts.forward = 1\n'
    )
    subprocess.run(command("sweep", tmp_path / "grid.toml", "--workers", "0"), capture_output=True, check=True)
    table = frame.load(tmp_path / "grid.sqlite")
    assert table.status.tolist() == ["inapplicable"] * 2 and table.reason.str.contains("chimera").all()
    words = command("map", tmp_path / "grid.toml", "--x", "devices")
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (said.returncode, "could be evaluated: " in said.stderr) == (2, True)
    Store(tmp_path / "empty.sqlite", version()).close()
    with pytest.raises(UsageError, match="holds no result yet"):
        frame.load(tmp_path / "empty.sqlite")


CLUSTER = """
import os, signal, sys, time
from distributed import Client, LocalCluster

def pid():
    return os.getpid()

if __name__ == "__main__":
    options = dict(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        print(cluster.scheduler_address, *client.run(pid).values(), flush=True)
        sys.stdin.read()
"""


def test_a_cluster_that_loses_a_worker(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    size = grid(tmp_path, LARGER).size
    (tmp_path / "cluster.py").write_text(CLUSTER)
    words = [sys.executable, str(tmp_path / "cluster.py")]
    host = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert host.stdin is not None and host.stdout is not None
    try:
        address, *pids = host.stdout.readline().split()
        there = address.replace("tcp://", "dask://")
        words = command("sweep", tmp_path / "grid.toml", "--cluster", there, "--json")
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        store = tmp_path / "grid.sqlite"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None and not (store.exists() and _has_results(store)):
            time.sleep(0.01)
        assert counts(store)[0] < size, "killed too late to show anything"
        os.kill(int(pids[0]), signal.SIGKILL)
        said, _ = process.communicate(timeout=120)
        assert json.loads(said)["computed"] == size
        assert counts(store) == (size, 0)
    finally:
        host.communicate("", timeout=60)


@pytest.mark.parametrize(
    ("address", "message"),
    [("ray://here:1", "a cluster is given as dask://HOST:PORT"), ("dask://127.0.0.1:9", "no scheduler answers at")],
)
def test_clusters_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, address: str, message: str) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(cluster, "PATIENCE", 1)
    with pytest.raises(UsageError, match=message), cluster.connected(address):
        pass


def test_every_point_has_a_row_of_its_own(tmp_path: Path) -> None:
    """3 divides neither model's heads on either system: the same reason is that of every such point.

    And a transfer of 0 means what one of 0.0 means, but they are two points.
    """
    text = (
        'schedules = ["1f1b"]\ndevices = 2\nmicrobatches = 4\n[costs]\nmodel = ["llama3-8b", "mixtral-8x7b"]\n'
        'system = ["h100-sxm", "paper-h100"]\ntensor_parallel = [1, 3]\nrecompute = ["none", "full"]\n'
    )
    assert run(grid(tmp_path, text), tmp_path / "s.sqlite") == Progress(16, 0, 16)
    table = frame.load(tmp_path / "s.sqlite")
    assert len(table[["model", "system", "tensor_parallel", "recompute"]].drop_duplicates()) == 16
    assert (table.status == "inapplicable").sum() == 8
    assert run(grid(tmp_path, text), tmp_path / "s.sqlite") == Progress(16, 16, 0)
    same = SMALL.replace('["0", "1/4", "1"]', '["0", "0.0"]')
    assert run(grid(tmp_path, same), tmp_path / "t.sqlite").computed == 48
