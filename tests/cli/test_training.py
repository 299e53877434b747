"""The commands that start from a model's own files: costs, plan, and the options of training elsewhere."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from explorer import api
from explorer.cli.app import app
from explorer.config.catalogue import load_system
from explorer.core.errors import UsageError
from explorer.costs.select import choose
from explorer.plan import planner
from explorer.plan.candidates import Candidate, Wish, candidates

CONFIG = {
    "model_type": "llama", "num_hidden_layers": 8, "hidden_size": 1024, "intermediate_size": 4096,
    "num_attention_heads": 8, "vocab_size": 32000,
}  # fmt: skip


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return str(path)


def test_costs_of_every_stage(model: str) -> None:
    words = ["costs", "--model", model, "--system", "h100-sxm", "--pp", "4", "--tp", "2", "--explain", "--json"]
    shown = json.loads(CliRunner().invoke(app, words).stdout)
    assert [row["holds"]["layers"] for row in shown["stages"]] == [2, 2, 2, 2]
    assert shown["stages"][0]["holds"]["embedding"]
    assert shown["stages"][3]["holds"]["head"]
    assert shown["stages"][1]["B"] == pytest.approx(shown["stages"][1]["I"] + shown["stages"][1]["W"], abs=2e-9)
    assert any(line["part"] == "attention" for lines in shown["explain"].values() for line in lines)


def test_the_batch_gives_the_microbatches(model: str) -> None:
    words = ["evaluate", "1f1b", "--model", model, "--system", "h100-sxm", "--pp", "2", "--data-parallel", "2"]
    done = CliRunner().invoke(app, [*words, "--microbatch-size", "2", "--global-batch", "48", "--json"])
    assert json.loads(done.stdout)["parameters"]["microbatches"] == 12, "48 = 12 x 2 x 2"
    refused = CliRunner().invoke(app, [*words, "--microbatch-size", "5", "--global-batch", "48"])
    assert isinstance(refused.exception, UsageError)
    assert "must be a multiple of 10" in str(refused.exception)


@pytest.mark.parametrize("option", ["--tp", "--cp", "--ep", "--sequence", "--microbatch-size", "--global-batch"])
def test_nothing_of_something_is_refused(model: str, option: str) -> None:
    """A 0 is given, and wrong; it is not taken for an option that is left out."""
    refused = CliRunner().invoke(app, ["evaluate", "1f1b", "--model", model, option, "0"])
    assert isinstance(refused.exception, UsageError)
    assert "at least 1, got 0" in str(refused.exception)


def test_a_layout_is_for_its_number_of_stages(model: str) -> None:
    words = ["--model", model, "--system", "h100-sxm", "--pp", "2"]
    done = CliRunner().invoke(app, ["costs", *words, "--layout", "Et*3|t*5,L", "--json"])
    assert [row["holds"]["layers"] for row in json.loads(done.stdout)["stages"]] == [3, 5]


def test_a_script_says_how_many_stages_a_device_has(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(
        "--num-layers 12 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --vocab-size 1000 "
        "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 --micro-batch-size 1 "
        "--global-batch-size 8 --max-position-embeddings 1024\n"
    )
    words = ["--model", str(path), "--system", "h100-sxm", "--json"]
    shown = json.loads(CliRunner().invoke(app, ["costs", *words]).stdout)
    assert [row["devices"] for row in shown["stages"]] == [[0], [1], [0], [1], [0], [1]], "3 stages on each of 2"
    result = json.loads(CliRunner().invoke(app, ["evaluate", "interleaved-1f1b", *words]).stdout)
    assert (result["parameters"]["devices"], result["parameters"]["microbatches"]) == (2, 8)
    assert result["parameters"]["chunks"] == 3
    own = json.loads(CliRunner().invoke(app, ["evaluate", "interleaved-1f1b:chunks=2", *words]).stdout)
    assert own["parameters"]["chunks"] == 2


def test_a_result_is_evaluated_with_the_costs_that_it_was_searched_with(tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    words = ["optimize", "-D", "2", "-M", "4", "--forward", "1", "--comm-time", "1/4", "--output", str(path), "--json"]
    found = json.loads(CliRunner().invoke(app, words).stdout)
    same = json.loads(CliRunner().invoke(app, ["evaluate", str(path), "--json"]).stdout)
    assert (same["makespan"], same["time_unit"]) == (found["makespan"], "1")
    other = json.loads(CliRunner().invoke(app, ["evaluate", str(path), "--forward", "2", "--json"]).stdout)
    assert other["makespan"] != found["makespan"]


def test_a_table_of_costs_gives_the_devices(tmp_path: Path) -> None:
    path = tmp_path / "costs.csv"
    path.write_text("stage,F,B\n0,1ms,2ms\n1,1ms,2ms\n2,1ms,2ms\n")
    result = json.loads(CliRunner().invoke(app, ["evaluate", "1f1b", "--costs", str(path), "--json"]).stdout)
    assert result["parameters"]["devices"] == 3


def test_a_plan_and_ones_own_setting(model: str) -> None:
    words = ["plan", "--model", model, "--system", "h100-sxm", "--devices", "4", "--global-batch", "8", "--json"]
    done = CliRunner().invoke(app, [*words, "--schedules", "1f1b", "--mine", "--tensor-model-parallel-size 3"])
    shown = json.loads(done.stdout)
    assert shown["mine"].startswith("yours cannot run: tensor parallelism of 3 does not divide 8")
    times = [row["seconds"] for row in shown["best"]]
    assert times == sorted(times)
    assert all(row["fits_memory"] for row in shown["best"])


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate(2, 2, 2, "1f1b", recompute="full", expert=2, context=2, balanced=True),
        Candidate(2, 4, 1, "zb-v", 2, sequence_parallel=False, distributed_optimizer=False),
    ],
)
def test_a_planned_setting_costs_the_same_elsewhere(candidate: Candidate) -> None:
    chosen = choose("mixtral-8x7b", {"sequence": 16384}, None)
    wish = Wish(chosen.architecture, load_system("h100-sxm"), 16, 32, 16384)
    planned = planner.evaluate(candidate, wish)
    words = ["evaluate", candidate.schedule, "--model", "mixtral-8x7b", "--system", "h100-sxm", *candidate.words(wish)]
    shown = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert shown["makespan"] == pytest.approx(float(planned.seconds), rel=1e-12)
    assert max(device["peak_memory"] for device in shown["devices"]) == planned.memory


def test_ones_own_setting_runs_with_fewer_microbatches_than_devices(model: str) -> None:
    """A batch of 2 on 4 pipeline devices: `evaluate` runs it, and a plan holds it against the best."""
    words = ["plan", "--model", model, "--system", "h100-sxm", "--devices", "4", "--global-batch", "2", "--json"]
    done = CliRunner().invoke(app, [*words, "--schedules", "1f1b", "--mine", "--pipeline-model-parallel-size 4"])
    assert json.loads(done.stdout)["mine"].startswith("yours (tp 1, pp 4, ")


@pytest.mark.parametrize(("after", "places"), [(0, 0), (1, 1), (3, 3)])
def test_an_interrupted_plan_shows_what_it_has(
    model: str, after: int, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight settings are legal on one device, with microbatches of 1, 2, 4 and 8 and two ways to recompute."""
    whole, done = planner.evaluate, iter(range(after))

    def evaluate(candidate: Candidate, wish: Wish) -> planner.Outcome:
        if next(done, None) is None:
            raise KeyboardInterrupt
        return whole(candidate, wish)

    monkeypatch.setattr(planner, "evaluate", evaluate)
    words = ["plan", "--model", model, "--system", "h100-sxm", "--devices", "1", "--global-batch", "8"]
    told = CliRunner().invoke(app, [*words, "--schedules", "1f1b", "--json"])
    assert told.exit_code == 130
    shown = json.loads(told.stdout)
    assert shown["interrupted"] is True
    assert len(shown["best"]) == places == shown["evaluated"]
    assert (shown["tried"], shown["weighed"]) == (16, 8 + after), "the other eight spread layers by time, in vain"
    assert (shown["closest"], shown["enough"]) == (None, None)


def test_an_interrupted_plan_says_so_in_words(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(candidate: Candidate, wish: Wish) -> planner.Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(planner, "evaluate", evaluate)
    words = ["plan", "--model", model, "--system", "h100-sxm", "--devices", "1", "--global-batch", "8"]
    told = CliRunner().invoke(app, [*words, "--schedules", "1f1b"])
    assert told.exit_code == 130
    said = " ".join(told.stdout.split())
    assert "none that fits was found so far" in said
    assert "interrupted: 8 of 16 settings were weighed" in said, "those spread by time are as by number on one device"
    assert "nothing fits" not in said


@pytest.mark.parametrize("schedule", ["interleaved-zb", "looped-bfs", "zb-auto", "zb-v"])
def test_the_command_of_a_plan_writes_the_planned_order(model: str, schedule: str, tmp_path: Path) -> None:
    """Stages a device are the schedule's own option; the order of zb-auto hangs on all costs and on the memory."""
    words = ["plan", "--model", model, "--system", "h100-sxm", "--devices", "8", "--global-batch", "8"]
    shown = CliRunner().invoke(app, [*words, "--schedules", schedule, "--mem-limit", "20GiB"], env={"COLUMNS": "80"})
    command = shown.stdout.split("the schedule: explorer ")[1].split("\n")[0]  # in one line, however narrow
    assert command.endswith("--output schedule.csv")
    path = tmp_path / "schedule.json"
    done = CliRunner().invoke(app, [*shlex.split(command)[:-1], str(path)])
    assert done.exit_code == 0, done.exception
    chosen = choose(model, {}, None)
    wish = Wish(chosen.architecture, load_system("h100-sxm"), 8, 8, chosen.training.sequence, (schedule,), 20 * 2**30)
    best = planner.plan(wish, list(candidates(wish)), 1).best[0]
    assert api.load(path) == best.evaluation.timeline.schedule


def test_a_plan_that_cannot_fit_ends_with_1(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG | {"num_hidden_layers": 100, "hidden_size": 16384}))
    words = ["plan", "--model", str(path), "--system", "h100-sxm", "--devices", "1", "--global-batch", "8"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    assert "nothing fits" in done.stdout


def test_a_timeline_too_long_for_its_line_says_so() -> None:
    words = ["show", "1f1b", "-D", "2", "--forward", "1"]
    short, long = (CliRunner().invoke(app, [*words, "-M", count]).stdout for count in ("4", "256"))
    assert "shorter than a character" not in short
    assert "1024 of 1024 ops are shorter than a character" in " ".join(long.split()), "2 x 2 x 256"


def test_a_proof_says_of_what() -> None:
    words = ["optimize", "-D", "2", "-M", "2", "--forward", "1", "--comm-time", "1/4"]
    split, whole = (
        " ".join(CliRunner().invoke(app, [*words, *more]).stdout.split()) for more in ([], ["--fused-backward"])
    )
    assert "no order on this placement is better" in split
    assert "no order of whole backwards on this placement is better" in whole
