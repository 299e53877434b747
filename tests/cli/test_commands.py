"""The command line as a user meets it: output, JSON contract, exit codes, one sentence for every wrong input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.terminal import run, terminal  # noqa: F401 - a fixture for all


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    code, out, err = run(capsys, *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_evaluate_keeps_the_contract(capsys) -> None:
    result = run_json(capsys, "evaluate", "chimera", "-D", "4", "-M", "4", "--forward", "1", "--backward", "2")
    # Chimera at N = D: D F + (2D - 2) B = 4 + 12 (arXiv:2107.06925).
    assert result["makespan"] == result["longest_device_span"] == 16
    assert result["bubble_ratio"] == 0.25
    assert result["schedule"] == "chimera"
    assert result["parameters"]["devices"] == result["parameters"]["microbatches"] == 4
    assert (result["communication"], result["engine"], result["confirmed_by"]) == ("none", "longest-path", "cp-sat")
    assert (result["time_unit"], result["exact"], result["quantisation_error"]) == ("1", True, 0)
    assert result["lower_bound"] <= 16
    assert result["gap"] == (16 - result["lower_bound"]) / 16
    assert set(result["levels"]) == {"formula", "table", "execution"}
    assert [level["bubble_ratio"] for level in result["levels"].values()] == [0.25, 0.25, 0.25]
    assert result["levels"]["formula"]["assumptions"]
    for number, device in enumerate(result["devices"]):
        assert device["device"] == number
        assert device["busy"] + device["idle"] == 16
        assert device["resident_share"] == 0.5
        assert device["peak_memory"] is device["static_memory"] is None
    assert sum(result["critical_path"].values()) == 16


def test_without_options_the_problem_is_the_source_papers(capsys) -> None:
    result = run_json(capsys, "evaluate", "hanayo")
    assert (result["parameters"]["devices"], result["parameters"]["microbatches"]) == (8, 8)
    assert (result["communication"], result["time_unit"], result["exact"]) == ("link", "s", False)
    assert 0 < result["quantisation_error"] <= 5e-10
    # 128 blocks of 12 x 4096^2 parameters on 8 devices, 18 bytes each.
    assert all(device["static_memory"] == 16 * 12 * 4096**2 * 18 for device in result["devices"])
    assert all(device["peak_memory"] > device["static_memory"] for device in result["devices"])


def test_compare_ranks_at_every_level(capsys) -> None:
    # D = 4, N = 32, F = 1, B = 2, transfers of 1: GPipe 111 and 1F1B 157, equal without transfers (105).
    words = ("-D", "4", "-M", "32", "--forward", "1", "--backward", "2", "--comm-time", "1")
    result = run_json(capsys, "compare", "1f1b", "gpipe", "chimera:pipes=2", *words)
    spans = {row["schedule"]: row["makespan"] for row in result["rows"]}
    assert (spans["gpipe"], spans["1f1b"]) == (111, 157)
    assert result["ranks"]["formula"]["gpipe"] == result["ranks"]["formula"]["1f1b"]
    assert result["ranks"]["table"]["gpipe"] == result["ranks"]["table"]["1f1b"]
    order = result["ranking"]["execution"]
    assert order.index("gpipe") < order.index("1f1b")
    assert "chimera:pipes=2" in order
    code, out, _ = run(capsys, "compare", "1f1b", "gpipe", *words)
    assert code == 0
    assert "Ranking changes from table to execution: 1f1b 1 -> 2" in out


def test_compare_says_what_is_not_for_this_problem(capsys) -> None:
    result = run_json(capsys, "compare", "1f1b", "chimera", "-D", "3", "-M", "3", "--forward", "1")
    assert [row["schedule"] for row in result["rows"]] == ["1f1b"]
    assert "even number of devices" in result["inapplicable"]["chimera"]


def test_compare_takes_all_schedules_by_default(capsys) -> None:
    import schedules

    result = run_json(capsys, "compare", "-D", "4", "-M", "8", "--forward", "1")
    rows = {row["schedule"] for row in result["rows"]}
    asynchronous = {row["schedule"] for row in result["asynchronous"]}
    assert asynchronous == {"pipedream", "pipedream-2bw", "local-accumulation"}
    assert rows | asynchronous | set(result["inapplicable"]) == {named.name for named in schedules.every()}


def test_asynchronous_schedules_answer_with_their_steady_state(capsys) -> None:
    result = run_json(capsys, "evaluate", "pipedream", "-D", "4", "-M", "8", "--forward", "1", "--backward", "2")
    # Every device is always busy: one microbatch every F + B (arXiv:1806.03377); device s holds D - s versions.
    steady = result["steady_state"]
    assert steady["period"] == 3
    assert steady["weight_versions"] == [4, 3, 2, 1]
    assert steady["staleness"] == [[3, 3], [2, 2], [1, 1], [0, 0]]
    assert result["throughput"] == 1 / 3
    flushing = run_json(capsys, "evaluate", "1f1b", "-D", "4", "-M", "8", "--forward", "1", "--backward", "2")
    assert (flushing["steady_state"], flushing["throughput"]) == (None, 8 / 33)
    code, out, _ = run(capsys, "compare", "1f1b", "pipedream", "-D", "4", "-M", "8", "--forward", "1")
    assert code == 0
    assert "Without a flush" in out


def test_versions_of_the_weights_take_memory(capsys) -> None:
    plain = run_json(capsys, "evaluate", "1f1b")
    versions = run_json(capsys, "evaluate", "pipedream")
    pairs = zip(versions["devices"], plain["devices"], strict=True)
    copy = 16 * 12 * 4096**2 * 2  # 16 blocks a device, 2 bytes a weight
    assert [v["static_memory"] - p["static_memory"] for v, p in pairs] == [(7 - d) * copy for d in range(8)]


OWN = '''
from explorer.core.op import B, F
from explorer.core.placement import linear
from explorer.core.schedule import Schedule

def build(devices, microbatches, swap=False):
    """One microbatch after the other."""
    orders = [[op for m in range(microbatches) for op in (F(d, m), B(d, m))] for d in range(devices)]
    return Schedule.from_orders(linear(devices, microbatches), orders[::-1] if swap else orders)
'''


def test_a_users_own_schedule(capsys) -> None:
    Path("own.py").write_text(OWN)
    words = ("-D", "3", "-M", "2", "--forward", "1", "--backward", "2")
    for subject in ("own.py:build", "./own.py:build", "./own.py:build:swap=no"):
        # F of all stages, then B of all stages, then the next microbatch, which may start when device 0 is free.
        assert run_json(capsys, "evaluate", subject, *words)["makespan"] == 2 * 3 * 3
    rows = run_json(capsys, "compare", "own.py:build", "1f1b", *words)["rows"]
    assert [row["schedule"] for row in rows] == ["1f1b", "own.py:build"]
    for subject, message in (
        ("own.py", "must name a file and a function"),
        ("own.py:biuld", "no function 'biuld'; did you mean 'build'"),
        ("own.py:build:swap=maybe", "must be true or false"),
        ("own.py:build:swap=yes", "but stage 2 of microbatch 0 lives on device 2"),
        ("other.py:build", "there is no file other.py"),
    ):
        code, _, err = run(capsys, "evaluate", subject, *words)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err


@pytest.mark.parametrize("mode", ["none", "latency", "link", "blocking"])
def test_engines_agree(capsys, mode: str) -> None:
    words = ("evaluate", "chimera", "-D", "4", "-M", "4", "--forward", "1", "--comm-time", "2", "--sync-time", "3")
    results = [
        run_json(capsys, *words, "--communication", mode, "--engine", engine)
        for engine in ("longest-path", "cp-sat", "auto")
    ]
    said = [(r.pop("engine"), r.pop("confirmed_by")) for r in results]
    assert said == [("longest-path", None), ("cp-sat", "longest-path"), ("longest-path", "cp-sat")]
    assert results[0] == results[1] == results[2]
    if mode == "none":  # Chimera's 16, then the all-reduce of the last chunk
        assert results[0]["makespan"] == 16 + 3


def test_an_optimizer_step_behind_the_synchronisation(capsys) -> None:
    """A device of Chimera holds two chunks, whose gradients are reduced in turn, and steps for both."""
    words = ("evaluate", "chimera", "-D", "4", "-M", "4", "--forward", "1", "--sync-time", "3")
    words = (*words, "--optimizer-step", "5", "--communication", "none")
    results = [run_json(capsys, *words, "--engine", engine) for engine in ("longest-path", "cp-sat")]
    assert results[0]["makespan"] == results[1]["makespan"] == 16 + 3 + 2 * 5
    assert results[0]["optimizer_step"] and results[0]["mean_device_time"]["optimiser step"] == 10
    assert results[0]["critical_path"]["optimiser step"] == 10
    assert results[0]["levels"]["table"]["makespan"] == 16
    code, out, _ = run(capsys, "show", *words[1:])
    assert code == 0 and "# optimiser step" in out
    code, _, err = run(capsys, "evaluate", "pipedream", "-D", "4", "-M", "8", "--optimizer-step", "1")
    assert code != 0 and "leave the optimiser out" in err
    code, _, err = run(capsys, "evaluate", "1f1b", "--optimizer", "--forward", "1")
    assert code == 2 and "--optimizer modelled ones" in err


def test_show_draws_idle_transfers_and_synchronisation(capsys) -> None:
    words = ("show", "chimera", "-D", "4", "-M", "4", "--forward", "1", "--comm-time", "1", "--sync-time", "2")
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "0 0F0 0F1 3F2 3B2 3F3 3B3 0B0 0B1" in out
    lane = next(line for line in out.splitlines() if line.startswith("0 ") and "F0" in line and "0F0" not in line)
    assert {"·", "~", "="} <= set(lane)
    result = run_json(capsys, *words)
    ops = result["timeline"][0]["ops"]
    assert [entry["op"] for entry in ops][:2] == ["0F0", "0F1"]
    assert ops[0] == {"op": "0F0", "start": 0, "end": 1, "transfer": {"start": 1, "arrival": 2}}
    assert {sync["end"] - sync["start"] for sync in result["synchronisations"]} == {2}


def test_show_fits_the_width(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        code, out, _ = run(capsys, "show", "1f1b", "-D", "12", "-M", "40", "--forward", "1", "--comm-time", "1/3")
        assert code == 0
        assert max(map(len, out.splitlines())) <= width


def test_list_names_everything(capsys) -> None:
    result = run_json(capsys, "list")
    assert {s["name"] for s in result["schedules"]} >= {"gpipe", "1f1b", "chimera", "hanayo", "asymmetric-chimera"}
    assert "paper-h100" in {s["name"] for s in result["systems"]}
    assert all(entry["summary"] for entries in result.values() for entry in entries)
    code, out, _ = run(capsys, "list", "models")
    assert code == 0
    assert "gpt3-175b" in out


def test_export_evaluate_and_check_go_round(capsys) -> None:
    code, _, _ = run(capsys, "export", "1f1b", "-D", "3", "-M", "5", "--output", "own.csv")
    assert code == 0
    assert Path("own.csv").read_text().splitlines()[2] == "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3,2F4,2B4"
    assert run_json(capsys, "check", "own.csv") == {"valid": True, "violations": []}
    named = run_json(capsys, "evaluate", "1f1b", "-D", "3", "-M", "5", "--forward", "1", "--comm-time", "1")
    file = run_json(capsys, "evaluate", "own.csv", "--forward", "1", "--comm-time", "1")
    assert named["makespan"] == file["makespan"]
    assert file["levels"]["formula"]["bubble_ratio"] is None
    assert "no closed form" in file["levels"]["formula"]["assumptions"]


def test_check_says_no_with_code_1(capsys) -> None:
    Path("bad.csv").write_text("0B0,0F0\n1F0,1B0\n")
    code, out, _ = run(capsys, "check", "bad.csv", "--json")
    assert code == 1
    assert json.loads(out)["valid"] is False


def test_split_and_fused_backwards(capsys) -> None:
    words = ("evaluate", "1f1b", "-D", "4", "-M", "8", "--forward", "1")
    split = run_json(capsys, *words, "--split-backward")
    # I and W are half a backward each: only I delays the stage before, (D-1)(F+I) = 6 idle and 24 work.
    assert split["makespan"] == 33 - 3
    assert split["levels"]["formula"]["makespan"] is None
    assert run_json(capsys, *words, "--fused-backward")["makespan"] == 33


def test_memory_limits_are_judged(capsys) -> None:
    words = ("evaluate", "1f1b", "-D", "4", "-M", "8", "--forward", "1", "--json")
    for limit, fits in (("4", True), ("4,3,2,1", True), ("3.9", False)):
        code, out, err = run(capsys, *words, "--mem-limit", limit)
        assert (code, err) == (0 if fits else 1, "")
        assert json.loads(out)["fits_memory"] is fits
    assert run_json(capsys, *words[:-1])["fits_memory"] is None


def test_comparisons_put_first_what_fits(capsys) -> None:
    # GPipe is faster than 1F1B over links that take time, and holds 8 activations where 1F1B holds 4.
    words = ("compare", "gpipe", "1f1b", "-D", "4", "-M", "8", "--forward", "1", "--comm-time", "1")
    assert [row["schedule"] for row in run_json(capsys, *words)["rows"]] == ["gpipe", "1f1b"]
    assert [row["schedule"] for row in run_json(capsys, *words, "--mem-limit", "4")["rows"]] == ["1f1b", "gpipe"]
    code, out, _ = run(capsys, *words, "--mem-limit", "4")
    assert code == 0
    assert "The fastest that fits the memory is 1f1b" in out
    code, out, _ = run(capsys, *words, "--mem-limit", "2")
    assert code == 1
    assert "None fits the memory; 1f1b needs the least, 4 activations" in out
    for command in ("evaluate", "compare"):
        assert run(capsys, command, "zb-auto", "--forward", "1", "--mem-limit", "1/2")[0] == 1


@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_comparisons_never_cut_a_figure(capsys, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = run(capsys, "compare", "gpipe", "interleaved-1f1b:chunks=2", "pipedream", "-D", "8", "-M", "16")
    assert code == 0
    lines = [line for line in out.splitlines() if line.startswith("│")]
    assert len(lines) >= 3
    assert all(len(line) <= width for line in out.splitlines())
    synchronous = [line for line in lines if "gpipe" in line or "interleaved" in line][:2]
    assert all("…" not in "".join(line.split("│")[2:]) for line in synchronous)
    assert any("s │" in line for line in synchronous)


def test_comparisons_take_the_sizes_of_a_file(capsys) -> None:
    assert run(capsys, "export", "1f1b", "-D", "3", "-M", "5", "--output", "own.csv")[0] == 0
    Path("stuck.csv").write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
    result = run_json(capsys, "compare", "own.csv", "gpipe", "--forward", "1")
    assert {row["schedule"]: row["parameters"]["microbatches"] for row in result["rows"]} == {"own.csv": 5, "gpipe": 5}
    result = run_json(capsys, "compare", "gpipe", "stuck.csv", "--forward", "1")
    assert "deadlocks" in result["inapplicable"]["stuck.csv"]


WRONG = [
    (("evaluate", "hanayoo"), "no schedule is called 'hanayoo'; did you mean 'hanayo'?"),
    (("evaluate",), "Missing argument 'SCHEDULE|FILE'"),
    (("evaluate", "1f1b", "--nope"), "No such option: --nope"),
    (("frobnicate",), "No such command 'frobnicate'"),
    (("evaluate", "chimera", "-D", "5"), "even number of devices, got 5"),
    (("evaluate", "1f1b", "-D", "0"), "devices must be at least 1, got 0"),
    (("evaluate", "1f1b", "-M", "-4"), "microbatches must be at least 1, got -4"),
    (("evaluate", "1f1b", "-D", "many"), "Invalid value for '--devices'"),
    (("evaluate", "1f1b", "-D", "100000", "-M", "1000000"), "GiB of memory"),
    (("evaluate", "interleaved-1f1b", "-M", "9", "--forward", "1"), "8 or 16 would do"),
    (("evaluate", "hanayo", "--waves", "0"), "at least 1 wave"),
    (("evaluate", "1f1b", "--waves", "2"), "1f1b has no option 'waves'"),
    (("evaluate", "hanayo:waves=two"), "option waves of hanayo must be a whole number, got 'two'"),
    (("evaluate", "hanayo:two"), "must be NAME=VALUE, got 'two'"),
    (("evaluate", "hanayo", "--option", "waves"), "--option must be NAME=VALUE"),
    (("compare", "--option", "nothing=1"), "none of the schedules has an option nothing"),
    (("evaluate", "1f1b", "--forward", "fast"), "--forward must be a number, got 'fast'"),
    (("evaluate", "1f1b", "--forward", "1 parsec"), "--forward needs one of the units"),
    (("evaluate", "1f1b", "--forward", "-1"), "forward cannot be negative"),
    (("evaluate", "1f1b", "--forward", "1e99999"), "--forward must be between 1e-30 and 1e30"),
    (("evaluate", "1f1b", "--forward", "1ms", "--backward", "2"), "either all times a unit"),
    (("evaluate", "1f1b", "--comm-time", "1ms"), "give --forward too"),
    (("evaluate", "1f1b", "--backward", "1", "--input-grad", "2"), "longer than the whole backward"),
    (("evaluate", "1f1b", "--forward", "1.0000000000001", "--backward", "1/3"), "2^42 ticks"),
    (("evaluate", "1f1b", "--forward", "1", "--system", "h100-sxm"), "give one or the other"),
    (("evaluate", "1f1b", "--system", "h100"), "no system is called 'h100'"),
    (("evaluate", "1f1b", "--model", "missing.toml"), "there is no file missing.toml"),
    (("evaluate", "1f1b", "--communication", "carrier"), "no communication mode is called 'carrier'"),
    (("evaluate", "1f1b", "--engine", "steam"), "no engine is called 'steam'"),
    (("evaluate", "1f1b", "--split-backward", "--fused-backward"), "contradict each other"),
    (("evaluate", "1f1b", "--mem-limit", "40GiB", "--forward", "1"), "in bytes, which need modelled costs"),
    (("evaluate", "1f1b", "--mem-limit", "lots"), "must be a number, got 'lots'"),
    (("evaluate", "1f1b", "--freed-at-input-grad", "2"), "must be a share between 0 and 1"),
    (("evaluate", "1f1b", "--microbatch-factors", "1,2"), "2 microbatch factors for 8 microbatches"),
    (("evaluate", "interleaved-1f1b", "-o", "group=abc"), "option group of interleaved-1f1b must be a whole number"),
    (("evaluate", "1f1b", "-o", "devices=4"), "sizes are given by -D and -M"),
    (("evaluate", "hanayo", "-o", "waves=1", "--waves", "2"), "both set it"),
    (("evaluate", "hanayo:waves=1:waves=2"), "gives waves twice"),
    (("evaluate", "hanayo:waves=1", "--waves", "2"), "both behind the schedule's name and as an option"),
    (("evaluate", "hanayo", "-o", "waves=٢"), "must be a whole number"),
    (("evaluate", "mine.csv:foo=1"), "mine.csv is a file, which has no options"),
    (("evaluate", "mine.csv", "--chunks", "2"), "mine.csv is a file, which has no options"),
    (("evaluate", "1f1b", "--forward", ""), "--forward must be a number, got ''"),
    (("evaluate", "1f1b", "--system", ""), "no system is called ''"),
    (("evaluate", "gpipe", "--overlap-factor", "0.9123456789"), "three decimals at most"),
    (("evaluate", "./[/b]/mine.csv"), "there is no file [/b]/mine.csv"),
    (("evaluate", "interleaved-1f1b:chunks=2,group=4"), "options are set apart by colons"),
    (("evaluate", "1f1b", "-D", "200"), "128 blocks do not fill 200 stages"),
    (("evaluate", "missing.csv"), "there is no file missing.csv"),
    (("evaluate", "./folder/x.txt"), "schedules are read from"),
    (("check", "missing.json"), "there is no file missing.json"),
    (("list", "planets"), "nothing is listed under 'planets'"),
    (("export", "1f1b", "--format", "xls"), "no format is called 'xls'"),
    (("export", "1f1b", "--output", "no/such/folder.json"), "cannot be written"),
    (("export", "chimera", "--format", "csv"), "gives each stage to one rank"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_wrong_input_is_one_sentence_and_code_2(capsys, words: tuple[str, ...], message: str) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("explorer: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", 'description = "x"\n[compute\n', "line 2"),
        ("b.toml", 'descriptoin = "x"\n', "unknown key 'descriptoin'; did you mean 'description'"),
    ],
)
def test_broken_configs_point_at_the_place(capsys, name: str, content: str, message: str) -> None:
    Path(name).write_text(content)
    code, _, err = run(capsys, "evaluate", "1f1b", "--system", name)
    assert code == 2
    assert name in err
    assert message in err


def test_a_deadlock_is_named(capsys) -> None:
    # Device 0 runs its backward before the forward that device 1 needs.
    Path("stuck.csv").write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
    code, _, err = run(capsys, "evaluate", "stuck.csv", "--forward", "1")
    assert code == 2
    assert "deadlocks on devices 0, 1" in err
    assert "device 0 is at 0B0, which waits for 1B0" in err
    assert "device 1 is at 1F1, which waits for 0F1" in err


def test_incomplete_and_truncated_files_are_named(capsys) -> None:
    Path("half.csv").write_text("0F0,0B0,0F1\n1F0,1B0,1F1,1B1\n")
    code, _, err = run(capsys, "evaluate", "half.csv", "--forward", "1")
    assert (code, err.count("\n")) == (2, 1)
    assert "microbatch 1 needs at stage 0" in err
    assert run(capsys, "export", "1f1b", "--output", "whole.json")[0] == 0
    Path("cut.json").write_text(Path("whole.json").read_text()[:200])
    code, _, err = run(capsys, "evaluate", "cut.json")
    assert code == 2
    assert "cut.json:1:" in err


def test_an_interrupt_ends_with_130() -> None:
    command = "from explorer.cli.boundary import guarded; import sys, signal, os, threading;"
    command += "threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start();"
    command += "sys.exit(guarded(['evaluate', '1f1b', '-D', '64', '-M', '20000', '--engine', 'longest-path']))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip().splitlines()[-1] == "explorer: interrupted"


def test_a_closed_pipe_is_no_error() -> None:
    command = [sys.executable, "-m", "explorer", "list", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_another_package_of_our_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "schedules").mkdir()
    (tmp_path / "schedules" / "__init__.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-c", "from explorer.cli import main; main()", "list"],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}"},
    )  # fmt: skip
    assert done.returncode == 2
    assert "another package called 'schedules'" in done.stderr


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (("gpipe", "-D", "4", "-M", "7"), True),
        (("gpipe", "-D", "4", "-M", "7", "--memory-factors", "0.5,1,1,1.5"), False),
        (("gpipe", "-D", "5", "-M", "2", "--microbatch-factors", "1.25,1.25"), False),
        (("1f1b", "-D", "4", "-M", "7", "--freed-at-input-grad", "0.25"), True),
        (("zb-h1", "-D", "3", "-M", "9", "--freed-at-input-grad", "0.25"), False),
        (("v-min", "-D", "6", "-M", "6", "--microbatch-factors", "0.5,2,1.25,0.5,1.25,2"), False),
        (("interleaved-1f1b", "-D", "4", "-M", "8", "--per-stage"), False),
    ],
)
def test_formulas_of_peaks_stand_only_where_they_hold(capsys, words: tuple[str, ...], known: bool) -> None:
    levels = run_json(capsys, "evaluate", *words, "--forward", "1")["levels"]
    formula, table = (levels[level]["peak_activations"] for level in ("formula", "table"))
    assert formula == (table if known else None)


def test_values_behind_a_name_may_hold_colons(capsys) -> None:
    words = ("evaluate", "asymmetric-chimera:split=1:1:variant=direction-split", "-D", "4", "-M", "4", "--forward", "1")
    assert run_json(capsys, *words)["parameters"]["split"] == "1:1"


def test_what_a_reader_may_break_is_told(capsys) -> None:
    for name, content, message in (
        ("share.json", '{"format": "pipeline-schedule", "version": 1, "routes": [[[0, 0]]], "route_of": [0], '
         '"shares": ["1e99999999"], "orders": [["0F0", "0B0"]]}', "between 1e-30 and 1e30"),
        ("constant.json", '{"format": "pipeline-schedule", "version": 1, "shares": [Infinity]}', "Infinity is no JSON"),
        ("digits.json", '{"format": "pipeline-schedule", "version": ' + "1" * 5000 + "}", "a number of 5000 digits"),
        ("key.json", '{"format": "pipeline-schedule", "version": 1, "order": []}', "did you mean 'orders'"),
        ("gap.json", '{"format": "pipeline-schedule", "version": 1, "routes": [[[2147483647, 0]]], "route_of": [0], '
         '"shares": ["1"], "orders": [["0F0", "0B0"]]}', "gap.json: chunks must be 0, 1, 2"),
        ("stage.csv", "0F0,0B0,999999999F0,999999999B0\n", "stage 1 is missing"),
    ):  # fmt: skip
        Path(name).write_text(content)
        code, _, err = run(capsys, "evaluate", name, "--forward", "1")
        assert (code, err.count("\n")) == (2, 1), name
        assert message in err


def test_output_goes_where_it_is_told(capsys) -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run(capsys, "export", "1f1b", "-D", "2", "-M", "1", "--format", "csv", "--output", "pipe")[0] == 0
        assert os.read(reader, 100) == b"0F0,0B0\n1F0,1B0\n"
    finally:
        os.close(reader)
    Path("target.csv").write_text("before")
    Path("target.csv").chmod(0o600)
    Path("link.csv").symlink_to("target.csv")
    assert run(capsys, "export", "1f1b", "-D", "2", "-M", "1", "--output", "link.csv")[0] == 0
    assert Path("link.csv").is_symlink()
    assert Path("target.csv").read_text() == "0F0,0B0\n1F0,1B0\n"
    assert Path("target.csv").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("redirect", [">/dev/full", ">&-"])
def test_output_that_cannot_be_written(redirect: str) -> None:
    done = subprocess.run(
        f"{sys.executable} -m explorer list --json {redirect}", shell=True, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    if redirect == ">/dev/full":
        assert (done.returncode, done.stderr) == (
            2,
            "explorer: the output cannot be written: No space left on device\n",
        )


def test_a_terminal_without_these_characters(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "explorer", "compare", "gpipe", "1f1b", "--forward", "1"]
    done = subprocess.run(
        words, capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"}, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_user_code_that_misbehaves(capsys) -> None:
    Path("neighbour.py").write_text("SIZE = 1\n")
    for body, message in (
        ("import neighbour\nprint('loading')\nfrom schedules import gpipe\ndef build(devices, microbatches):\n"
         "    print('building')\n    return gpipe(devices, microbatches)\n", None),
        ("from schedules import gpipe\ndef build(devices, microbatches):\n    return gpipe(devices, 1)\n",
         "built Schedule(2 devices, 1 microbatches, 4 ops), not one of 2 devices and 2 microbatches"),
        ("class Rude(Exception):\n    def __str__(self): raise ValueError\n"
         "def build(devices, microbatches):\n    raise Rude\n", "Rude: (and its message cannot be shown) (line 4)"),
        ("def build(devices, microbatches):\n    raise ValueError('one\\ntwo')\n", "ValueError: one two (line 2)"),
    ):  # fmt: skip
        Path("own.py").write_text(body)
        os.utime("own.py", ns=(0, hash(body) % 10**15))
        code, out, err = run(capsys, "evaluate", "own.py:build", "-D", "2", "-M", "2", "--forward", "1", "--json")
        if message is None:
            assert code == 0
            assert json.loads(out)["makespan"] == 9
            assert "building" in err
        else:
            assert (code, err.count("\n")) == (2, 1)
            assert message in err


def test_help_and_version(capsys) -> None:
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert out.strip()[0].isdigit()
    for command in ("list", "evaluate", "compare", "show", "export", "check"):
        code, out, _ = run(capsys, command, "--help")
        assert code == 0
        assert "--help" in out


def test_all_reduces_on_links(capsys, tmp_path: Path) -> None:
    (tmp_path / "one-nic.toml").write_text(
        'description = "nodes of 4 with one NIC"\ndevices_per_node = 4\n'
        '[compute]\nmatrix = "312 TFLOP/s"\n[memory]\nsize = "80 GiB"\nbandwidth = "2 TB/s"\n'
        '[links.node]\nlatency = "8 us"\nbandwidth = "200 GB/s"\n'
        '[links.network]\nlatency = "10 us"\nbandwidth = "2 GB/s"\n'
        '[[shared]]\nname = "NIC"\ndevices = 4\nlinks = ["network"]\n'
    )
    words = ("evaluate", "gpipe", "--system", str(tmp_path / "one-nic.toml"), "--data-parallel", "2")
    apart = run_json(capsys, *words)
    held = run_json(capsys, *words, "--sync-on-links")
    assert held["confirmed_by"] == "cp-sat"
    assert held["makespan"] > apart["makespan"]
    for wrong, message in (
        (("--forward", "1"), "--forward gives abstract costs and --sync-on-links modelled ones"),
        (("--communication", "latency"), "mode link, not in mode latency"),
        (("--engine", "cp-sat", "--system", words[3], "--data-parallel", "2"), "use longest-path, which it confirms"),
    ):
        code, out, err = run(capsys, "evaluate", "1f1b", "--sync-on-links", *wrong)
        assert (code > 0, out, err.count("\n")) == (True, "", 1)
        assert message in err
