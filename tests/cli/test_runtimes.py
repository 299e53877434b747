"""Leaving the explorer and coming back: export, check, run, calibrate on the command line."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

import schedules
from explorer import api
from tests.cli.terminal import run, terminal  # noqa: F401 - a fixture for all

SIZES = ("-D", "2", "-M", "2")
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="running schedules needs PyTorch, the extra [torch]"
)


@pytest.mark.parametrize("name", ["x.json", "x.csv", "x.comms.csv"])
def test_what_is_exported_is_read_back_and_passes_the_check(capsys, name: str) -> None:
    assert run(capsys, "export", "zb-v", *SIZES, "--output", name)[0] == 0
    assert api.load(Path(name)) == schedules.find("zb-v")(2, 2)
    assert run(capsys, "check", name, "--json") == (0, '{\n  "valid": true,\n  "violations": []\n}\n', "")


def test_export_tells_which_option_goes_with_the_file(capsys) -> None:
    code, out, err = run(capsys, "export", "zb-v", *SIZES, "--format", "csv")
    assert code == 0
    assert out.startswith("0F0,")
    assert "--parallelism.pipeline_parallel_schedule ZBVZeroBubble" in err


def test_export_tells_how_to_cut_more_than_two_stages_a_rank(capsys) -> None:
    words = ("export", "interleaved-1f1b", "-D", "2", "-M", "4", "--format", "csv", "--chunks")
    assert "pipeline_parallel_layers_per_stage" in run(capsys, *words, "3")[2]
    assert "pipeline_parallel_layers_per_stage" not in run(capsys, *words, "2")[2]


def test_export_refuses_by_name(capsys) -> None:
    code, out, err = run(capsys, "export", "chimera", "-D", "4", "-M", "4", "--format", "csv")
    assert (code, out) == (2, "")
    assert "PyTorch gives each stage to one rank" in err
    code, _, err = run(capsys, "export", "1f1b", *SIZES, "--format", "timeline-parquet")
    assert (code, "give --output" in err) == (2, True)
    code, _, err = run(capsys, "export", "1f1b", *SIZES, "--format", "yaml")
    assert (code, "no format is called 'yaml'" in err) == (2, True)


def test_list_formats_is_what_export_knows(capsys) -> None:
    from explorer.io.formats import FORMATS

    _, out, _ = run(capsys, "list", "formats", "--json")
    assert [row["name"] for row in json.loads(out)["formats"]] == list(FORMATS)


def test_check_says_no_with_place_and_exit_code(capsys) -> None:
    Path("x.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1B1,1F1\n")
    code, out, _ = run(capsys, "check", "x.csv", "--json")
    (violation,) = json.loads(out)["violations"]
    assert code == 1
    assert (violation["kind"], violation["where"]) == ("premature-op", "x.csv:2:9")
    Path("x.csv").write_text("0F0,0B0x\n")
    code, out, err = run(capsys, "check", "x.csv")
    assert (code, out) == (2, "")
    assert err.startswith("explorer: x.csv:1:5: '0B0x' is not an op")


@needs_torch
def test_run_holds_the_measured_against_the_predicted(capsys) -> None:
    words = ("run", "1f1b", *SIZES, "--forward", "1", "--op-time", "5ms", "--profile", ".", "--json")
    code, out, _ = run(capsys, *words)
    result = json.loads(out)
    assert code == 0
    assert result["gradients_equal"]
    assert result["order_kept"]
    # 2 microbatches on 2 devices: (F + B) (M + D - 1) = 9, and ops of 1.5 on average take 5 ms
    assert result["predicted_makespan"] == pytest.approx(0.03, abs=1e-5)
    assert result["measured_makespan"] >= result["predicted_makespan"]
    assert [op["op"] for op in result["ops"]] == ["0F0", "0F1", "0B0", "0B1", "1F0", "1B0", "1F1", "1B1"]

    code, out, _ = run(capsys, "calibrate", "rank1.json.gz", "rank0.json.gz", "--output", "costs.toml", "--json")
    assert code == 0
    calibrated = json.loads(out)
    assert calibrated["steps"] == 1
    assert calibrated["stages"][0]["F"]["median"] >= 0.0033
    code, out, _ = run(capsys, "evaluate", "1f1b", *SIZES, "--costs", "costs.toml", "--json")
    assert (code, json.loads(out)["makespan"]) == (0, pytest.approx(calibrated["predicted_makespan"]))


@needs_torch
def test_run_takes_a_file_with_sends_and_receives_as_it_stands(capsys) -> None:
    run(capsys, "export", "gpipe", *SIZES, "--output", "x.comms.csv")
    code, out, err = run(capsys, "run", "x.comms.csv", "--op-time", "5ms", "--forward", "1")
    assert (code, err) == (0, "")
    assert "equal to the unsplit model's" in out


@needs_torch
def test_check_finds_deadlocks_beside_losses_out_of_order(capsys) -> None:
    Path("both.csv").write_text("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")
    code, out, _ = run(capsys, "check", "both.csv", "--json")
    kinds = {violation["kind"] for violation in json.loads(out)["violations"]}
    assert (code, kinds) == (1, {"loss-order", "deadlock"})


def test_evaluate_says_that_a_files_messages_are_passed_over(capsys) -> None:
    for name, told in (("own.csv", False), ("own.comms.csv", True)):
        assert run(capsys, "export", "1f1b", *SIZES, "--output", name)[0] == 0
        code, out, _ = run(capsys, "evaluate", name, "--forward", "1", "--json")
        cautions = json.loads(out)["cautions"]
        assert (code, any("passed over" in caution for caution in cautions)) == (0, told)


def test_check_tells_of_a_byte_order_mark(capsys) -> None:
    Path("bom.csv").write_bytes(b"\xef\xbb\xbf0F0,0B0\n1F0,1B0\n")
    code, out, _ = run(capsys, "check", "bom.csv")
    assert (code, "byte-order mark" in out) == (1, True)
    assert run(capsys, "evaluate", "bom.csv", "--forward", "1")[0] == 0


@needs_torch
def test_run_refuses_what_would_go_wrong(capsys) -> None:
    Path("x.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1B1,1F1\n")
    code, _, err = run(capsys, "run", "x.csv")
    assert (code, "x.csv:2:9: 1B1 stands before 1F1" in err) == (1, True)
    for words, message in (
        (("run", "chimera", *SIZES), "PyTorch gives each stage to one rank"),
        (("run", "1f1b", *SIZES, "--op-time", "5"), "--op-time needs one of the units"),
        (("run", "1f1b", *SIZES, "--op-time", "5 min"), "at most 60 seconds"),
        (("run", "1f1b", *SIZES, "--op-time", "1ns"), "--op-time must be between 1 us and 86400 s"),
        (("run", "1f1b", *SIZES, "--timeout", "-1s"), "--timeout must be between 1 us and 86400 s"),
        (("run", "1f1b", *SIZES, "--timeout", "1e9s"), "--timeout must be between 1 us and 86400 s"),
        (("run", "1f1b", *SIZES, "--profile", "."), "the folder . is not empty"),
        (("run", "1f1b", *SIZES, "--profile", "x.csv"), "traces cannot be written to x.csv"),
    ):
        code, _, err = run(capsys, *words)
        assert (code, message in err) == (2, True), err


def test_run_says_what_is_missing_without_torch(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else found(name, *rest)
    )
    code, _, err = run(capsys, "run", "1f1b", *SIZES)
    assert (code, "pip install 'pipeline-schedule-explorer[torch]'" in err) == (2, True)


def test_measured_costs_go_with_no_others(capsys) -> None:
    Path("costs.toml").write_text('[[stage]]\nforward = "1 ms"\nbackward = "2 ms"\n' * 2)
    code, _, err = run(capsys, "evaluate", "1f1b", *SIZES, "--costs", "costs.toml", "--forward", "1")
    assert (code, "leave --forward out" in err) == (2, True)
    code, _, err = run(capsys, "evaluate", "1f1b", "-D", "4", "-M", "4", "--costs", "costs.toml")
    assert (code, "measured for 2 stages" in err) == (2, True)


def test_evaluate_shows_messages_in_order_and_where_they_wait(capsys) -> None:
    words = (
        "evaluate",
        "1f1b",
        "-D",
        "4",
        "-M",
        "8",
        "--forward",
        "1",
        "--comm-time",
        "0.25",
        "--communication",
        "link",
    )
    alone = json.loads(run(capsys, *words, "--json")[1])
    code, out, _ = run(capsys, *words, "--messages", "fifo-pair", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["makespan"] > alone["makespan"]
    assert result["parameters"]["messages"] == "fifo-pair"
    assert any("messages wait for their turn" in caution for caution in result["cautions"])
    for more, message in (
        (("--messages", "fifo"), "known: independent, fifo-pair, fifo-device"),
        (("--messages", "fifo-pair", "--engine", "cp-sat"), "need longest-path"),
        (("--messages", "fifo-pair", "--communication", "latency"), "in mode link, not in mode latency"),
    ):
        code, _, err = run(capsys, *words, *more)
        assert (code, message in err) == (2, True), err
