"""`explorer optimize` and `explorer pareto`: what they print, write and exit with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from explorer.cli.boundary import guarded
from explorer.evaluation.checker import Rule, Violation

SMALL = ["--forward", "10", "--input-grad", "11", "--weight-grad", "9", "-D", "3", "-M", "4", "--workers", "1"]
KEYS = {
    "status", "makespan", "bound", "gap", "bound_reason", "peak_activations", "seconds", "workers", "seed", "seeded_by",
    "schedule", "compared",
}  # fmt: skip


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = guarded(arguments)
    said = capsys.readouterr()
    return code, said.out, said.err


def optimised(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code, out, _ = ran(capsys, "optimize", *SMALL, "--json", *arguments)
    assert code == 0
    value: dict[str, Any] = json.loads(out)
    return value


def test_json_holds_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    value = optimised(capsys, "--mem-limit", "2")
    assert value.keys() >= KEYS
    assert value["status"] == "proved"
    assert value["makespan"] == value["bound"]
    assert max(value["peak_activations"]) <= 2
    assert {"schedule", "makespan", "ratio", "fits_memory"} <= value["compared"][0].keys()


def test_a_result_is_written_evaluated_and_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "best.json"
    value = optimised(capsys, "--mem-limit", "2", "--output", str(file))
    assert json.loads(file.read_text()) == value
    code, out, _ = ran(capsys, "evaluate", str(file), *SMALL[:6], "--json")
    assert code == 0
    assert json.loads(out)["makespan"] == value["makespan"]
    code, out, _ = ran(capsys, "optimize", "--replay", str(file), "--json")
    assert code == 0
    assert json.loads(out)["valid"]


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("makespan", 1), ("bound", 10**6), ("problem_sha256", "0" * 64)],
)
def test_a_replay_finds_what_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, key: str, wrong: object
) -> None:
    file = tmp_path / "best.json"
    optimised(capsys, "--mem-limit", "2", "--output", str(file))
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: wrong}))
    code, out, _ = ran(capsys, "optimize", "--replay", str(file))
    assert code == 1
    assert "fails" in out


def test_a_replay_finds_a_schedule_over_its_limit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "best.json"
    loose = optimised(capsys)
    optimised(capsys, "--mem-limit", "1", "--output", str(file))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schedule": loose["schedule"]}))
    code, out, _ = ran(capsys, "optimize", "--replay", str(file), "--json")
    assert code == 1
    assert not json.loads(out)["valid"]


def test_an_infeasible_limit_names_the_smallest_feasible_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "optimize", *SMALL, "--mem-limit", "1/2", "--json")
    assert code == 1
    value = json.loads(out)
    assert value["status"] == "infeasible"
    assert value["reason"].endswith("the smallest feasible limit is 1")
    assert optimised(capsys, "--mem-limit", "1")["status"] == "proved"


@pytest.mark.parametrize("objective", ["makespan", "longest-device-span"])
@pytest.mark.parametrize("placement", ["linear", "v", "free"])
def test_objectives_and_placements(capsys: pytest.CaptureFixture[str], objective: str, placement: str) -> None:
    value = optimised(capsys, "-D", "2", "-M", "3", "--placement", placement, "--objective", objective)
    best = value["makespan"] if objective == "makespan" else value["longest_device_span"]
    assert value["bound"] <= best


def test_the_table_shows_status_bound_and_named_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "optimize", *SMALL, "--fused-backward")
    assert code == 0
    assert "proved" in out
    assert "1f1b" in out
    assert "it rests on" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--time-limit", "0"], "--time-limit must be over 0"),
        (["--time-limit", "1e9"], "--time-limit must be over 0"),
        (["--workers", "0"], "--workers must be between"),
        (["--seed", "-1"], "--seed must be between"),
        (["--placement", "ring"], "no placement is called 'ring'"),
        (["--objective", "cost"], "no objective is called 'cost'"),
        (["--waves", "2"], "--waves goes with --placement wave"),
        (["--mem-limit", "0"], "must be positive"),
        (["--mem-limit", "1GiB"], "need modelled costs"),
        (["--split-backward", "--fused-backward"], "contradict"),
        (["-M", "1000000"], "GB to search"),
        (["--output", "/nowhere/x.json"], "no folder"),
        (["--hint", "missing.json"], "there is no file"),
        (["--replay", "missing.json"], "there is no file"),
    ],
)
def test_bad_input_is_one_sentence(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    code, out, err = ran(capsys, "optimize", *SMALL, *arguments)
    assert code == 2
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_a_hint_for_another_problem_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "best.json"
    optimised(capsys, "--output", str(file))
    code, _, err = ran(capsys, "optimize", *SMALL, "-M", "5", "--hint", str(file))
    assert code == 2
    assert "another placement, or of other sizes" in err
    assert optimised(capsys, "--hint", str(file))["status"] == "proved"


def test_a_frontier_falls_with_memory_and_is_proved(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "frontier.json"
    code, out, _ = ran(capsys, "pareto", *SMALL, "--json", "--output", str(file))
    assert code == 0
    value = json.loads(out)
    assert json.loads(file.read_text()) == value
    points = value["points"]
    assert [float(point["limit"]) for point in points] == [1, 2, 3, 4]
    assert all(point["status"] == "proved" for point in points)
    spans = [point["makespan"] for point in points]
    assert spans == sorted(spans, reverse=True)
    assert value["smallest_feasible_limit"] == 1
    assert "smallest feasible limit is 1" in value["infeasible_below_because"]
    for point in points:
        assert optimised(capsys, "--mem-limit", point["limit"])["makespan"] == point["makespan"]


def test_a_frontier_as_a_table_and_its_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "pareto", *SMALL, "--limits", "1/2,2,3")
    assert code == 0
    assert "infeasible" in out
    assert "over the frontier" in out
    for arguments, said in ((["--mem-limit", "2"], "give --limits"), (["--points", "1"], "--points must be")):
        code, _, err = ran(capsys, "pareto", *SMALL, *arguments)
        assert code == 2
        assert said in err


def test_a_disagreement_keeps_what_each_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(
        "solvers.incumbent.verify", lambda timeline, problem: [Violation(Rule.MEMORY, "device 0", "is full")]
    )
    code, out, err = ran(capsys, "optimize", *SMALL)
    assert (code, out) == (1, "")
    assert "device 0 is full" in err
    (kept,) = tmp_path.glob("disagreement-*.json")
    assert str(kept) in err
    assert json.loads(kept.read_text())["timelines"][0]["schedule"]["orders"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"network": {"link": [[7] * 3] * 3}}, "network.link must be from 0 to 0, got 7 to 7"),
        ({"network": {"latency": []}}, "network.latency has shape (0,), expected (1,)"),
        ({"network": {"shared": [["nic", [[0, 3]]]]}}, "network.shared must be from 0 to 2, got 0 to 3"),
        ({"profile_of": [5] * 4}, "profile_of must be from 0 to 0, got 5 to 5"),
        ({"profile_of": [[0]] * 4}, "profile_of is no list of whole numbers"),
        ({"durations": [[[-1, 1, 1, 1]] * 3]}, "durations must be from 0"),
        ({"memory_limit": [[3, 3], False, "3"]}, "memory_limit is of 2 devices, expected 3"),
        ({"memory_limit": [[3, 3, 3], "no", "3"]}, "expected true or false, got 'no'"),
        ({"memory_limit": [[3, 3, 3], True, "3B"]}, "memory_limit is in bytes, and bytes are not given"),
        ({"memory_limit": [3]}, "memory_limit is no list of"),
        ({"stash": {"static": [0]}}, "stash.static has shape (1,), expected (3,)"),
        ({"stash": {"freed_at_input": [[2, 2, 2]]}}, "stash.freed_at_input is more than stash.held"),
        ({"tick": "0"}, "a tick must be over 0"),
        ({"tick": "-1"}, "for a number from 0, got '-1'"),
        ({"tick": "1e999999999"}, "for a number from 0, got '1e999999999'"),
        ({"unit": "h"}, "of the unit 1 or s"),
        ({"launch": -1}, "expected a whole number from 0, got -1"),
        ({"copies": 0}, "copies and network.servers must be at least 1"),
    ],
)
def test_a_damaged_problem_is_one_sentence_wherever_it_is_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    """Costs that no search can have written: positions that there are not, shapes that do not fit, negative times."""
    file = tmp_path / "best.json"
    value = optimised(capsys, "--mem-limit", "2", "--output", str(file))
    for key, wrong in changes.items():
        value["problem"][key] = {**value["problem"][key], **wrong} if isinstance(wrong, dict) else wrong
    file.write_text(json.dumps(value))
    for command in (["optimize", "--replay"], ["evaluate"], ["show"], ["export", "--format", "json"]):
        code, out, err = ran(capsys, *command, str(file))
        assert (code, out) == (2, ""), command
        assert said in err
        assert err.count("\n") == 1


def test_a_bound_without_a_search_above_the_schedule_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Split, 55 is the optimum; whole backwards would take 60 at least, so a whole search cannot have found 55."""
    file = tmp_path / "best.json"
    costs = ["--forward", "2", "--input-grad", "3", "--weight-grad", "1", "-D", "3", "-M", "6", "--mem-limit", "2"]
    value = optimised(capsys, *costs, "--output", str(file))
    assert (value["makespan"], value["status"]) == (55, "proved")
    file.write_text(json.dumps(value | {"split_backward": False}))
    code, out, _ = ran(capsys, "optimize", "--replay", str(file), "--json")
    assert code == 1
    fails = {one["what"]: one["said"] for one in json.loads(out)["findings"] if one["holds"] is False}
    assert fails.keys() == {"split backward", "bound"}
    assert fails["bound"].startswith("60 without a search is above the schedule's 55")


@pytest.mark.parametrize(
    ("wrong", "fails"),
    [
        ({"peak_activations": [1, 1, 1]}, "peak activations"),
        ({"gap": 0.5}, "gap"),
        ({"longest_device_span": 1}, "longest device span"),
        ({"memory_limit": "3"}, "memory limit"),
        ({"devices": 4}, "devices"),
        ({"microbatches": 5}, "microbatches"),
        ({"time_unit": "s"}, "time unit"),
        ({"losses": {}}, "losses"),
        ({"critical_path": {"compute": 1}}, "critical path"),
        ({"status": "proved", "bound": 1}, "bound"),
        ({"status": "found", "bound": 60.5, "gap": 0}, "bound"),
    ],
)
def test_a_replay_compares_all_that_follows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, wrong: dict[str, object], fails: str
) -> None:
    file = tmp_path / "best.json"
    value = optimised(capsys, "--mem-limit", "2", "--output", str(file))
    file.write_text(json.dumps(value | wrong))
    code, out, _ = ran(capsys, "optimize", "--replay", str(file), "--json")
    assert code == 1
    assert fails in [one["what"] for one in json.loads(out)["findings"] if one["holds"] is False]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("1f1b", {"makespan": 1}), ("1f1b", {"fits_memory": True}), ("1f1b", {"same_placement": False}),
     ("hanayo", {"ratio": 0.1}), ("hanayo", {"ratio": None})],
)  # fmt: skip
def test_a_replay_evaluates_named_schedules_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, wrong: dict[str, object]
) -> None:
    """1F1B runs on the placement of the search; of Hanayo, on another one, only the ratio follows."""
    file = tmp_path / "best.json"
    value = optimised(capsys, "-M", "6", "--mem-limit", "2", "--output", str(file))
    (one,) = (one for one in value["compared"] if one["schedule"] == name)
    one |= wrong
    file.write_text(json.dumps(value))
    code, out, _ = ran(capsys, "optimize", "--replay", str(file))
    assert code == 1
    assert f"{name} has" in out


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"split_backward": "no"}, "split_backward of a result of status proved must be true or false"),
        ({"status": "bogus"}, "no status is called 'bogus'"),
        ({"status": None}, "status of a result must be text"),
        ({"status": "infeasible"}, "of status infeasible must be null"),
        ({"objective": "cost"}, "no objective is called 'cost'"),
        ({"makespan": True}, "makespan of a result of status proved must be a whole number or a number"),
        ({"bound": float("nan")}, "NaN is no JSON"),
        ({"schedule": None}, "schedule of a result of status proved must be an object"),
        ({"compared": [1]}, "compared of a result must be a list"),
    ],
)
def test_what_no_search_writes_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, wrong: dict[str, object], said: str
) -> None:
    file = tmp_path / "best.json"
    value = optimised(capsys, "--mem-limit", "2", "--output", str(file))
    file.write_text(json.dumps(value | wrong))
    for command in (["optimize", "--replay"], ["evaluate"]):
        code, out, err = ran(capsys, *command, str(file))
        assert (code, out) == (2, "")
        assert said in err
        assert err.count("\n") == 1


def test_an_infeasible_result_is_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "none.json"
    assert ran(capsys, "optimize", *SMALL, "--mem-limit", "1/2", "--output", str(file))[0] == 1
    assert ran(capsys, "optimize", "--replay", str(file))[0] == 0
    file.write_text(json.dumps(json.loads(file.read_text()) | {"memory_limit": "4"}))
    assert ran(capsys, "optimize", "--replay", str(file))[0] == 1


@pytest.mark.parametrize(
    "changed",
    [
        ["--mem-limit", "2"],
        ["--mem-limit", "1,2,3"],
        ["--communication", "none"],
        ["--communication", "link"],
        ["--communication", "blocking"],
        ["--freed-at-input-grad", "1/3"],
        ["--freed-at-input-grad", "1/3", "--mem-limit", "3/2"],
        ["--overlap-factor", "1/2"],
        ["--no-gradient-sync"],
    ],
)
def test_options_of_execution_keep_the_costs_of_a_result(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, changed: list[str]
) -> None:
    """The same as with all costs given anew, whatever is changed."""
    file, costs = tmp_path / "best.json", [*SMALL[:6], "--comm-time", "3", "--sync-time", "4"]
    optimised(capsys, *costs[6:], "--output", str(file))
    kept, anew = (ran(capsys, "evaluate", str(file), *more, *changed, "--json") for more in ([], costs))
    assert kept[0] == anew[0]
    ours, theirs = (json.loads(out) for _, out, _ in (kept, anew))
    for same in ("makespan", "communication", "devices", "lower_bound", "levels"):
        assert ours[same] == theirs[same]


def test_an_evaluated_result_names_the_file_whose_costs_it_keeps(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    optimised(capsys, "--output", "best.json")
    for command in ("evaluate", "show"):
        assert "costs kept in best.json: a microbatch takes F 10, I 11, W 9" in ran(capsys, command, "best.json")[1]


@pytest.mark.parametrize(
    "option", [["--comm-time", "1"], ["--optimizer"], ["--data-parallel", "2"], ["--tp", "2"], ["--per-stage"]]
)
def test_half_of_other_costs_does_not_replace_those_of_a_result(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: list[str]
) -> None:
    file = tmp_path / "best.json"
    optimised(capsys, "--output", str(file))
    code, out, err = ran(capsys, "evaluate", str(file), *option)
    assert (code, out) == (2, "")
    assert "keeps the costs of its search" in err


@pytest.mark.parametrize(
    "option", [["-D", "9"], ["--forward", "100"], ["--mem-limit", "1"], ["--seed", "0"], ["--output", "x.json"]]
)
def test_a_replay_has_no_other_options(capsys: pytest.CaptureFixture[str], tmp_path: Path, option: list[str]) -> None:
    file = tmp_path / "best.json"
    optimised(capsys, "--output", str(file))
    code, out, err = ran(capsys, "optimize", "--replay", str(file), *option)
    assert (code, out) == (2, "")
    assert f"leave {'--devices' if option[0] == '-D' else option[0]} out" in err


@pytest.mark.parametrize(("limits", "expected"), [("1/3", 1), ("1/3,1/2", 1), ("1/3,1", 0)])
def test_a_frontier_whose_limits_are_all_infeasible_is_a_no(
    capsys: pytest.CaptureFixture[str], limits: str, expected: int
) -> None:
    """One microbatch's activations on a device are 1: no order holds less."""
    code, out, _ = ran(capsys, "pareto", *SMALL, "--limits", limits, "--json")
    assert code == expected
    assert json.loads(out)["points"][0]["status"] == "infeasible"


def test_a_frontier_says_why_less_memory_is_too_little(capsys: pytest.CaptureFixture[str]) -> None:
    """No limit below the least was given, so none is named."""
    code, out, _ = ran(capsys, "pareto", *SMALL, "--limits", "2", "--json")
    assert code == 0
    assert json.loads(out)["infeasible_below_because"] == (
        "device 0 holds all of a microbatch's activations there, 1, before it can free any; the smallest feasible "
        "limit is 1"
    )
