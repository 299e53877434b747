"""Costs from traces: what went into a trace comes out of it."""

import gzip
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import schedules
from explorer.config import measured
from explorer.config.measured import MeasuredCosts, StageTimes
from explorer.core.errors import Inapplicable, Malformed, UsageError
from explorer.core.op import Kind
from explorer.core.problem import Communication
from explorer.core.timeline import Timeline
from explorer.evaluation.longest_path import evaluate
from explorer.io import profile
from explorer.runtime.calibration import calibrate, toml

US = Fraction(1, 10**6)
D, M = 4, 8


def _times(stage: int) -> StageTimes:
    return StageTimes((100 + 10 * stage) * US, (90 + stage) * US, (70 + 3 * stage) * US)


COSTS = MeasuredCosts(tuple(_times(stage) for stage in range(D)), 30 * US, US)


def _timeline(name: str = "zb-h1", costs: MeasuredCosts = COSTS) -> Timeline:
    schedule = schedules.find(name)(D, M)
    return evaluate(schedule, costs.problem(schedule.placement))


def _events(timeline: Timeline, device: int, waits_inside: bool, category: str, shift: int = 0) -> list[dict]:
    """A rank's trace of a timeline in microseconds, as PyTorch labels ops: on a CPU, waits are inside the labels."""
    events = [{"ph": "M", "name": "process_name", "pid": device, "args": {"name": "python"}}]
    idle_from = 0
    for row in timeline.schedule.rows(device):
        start, end = int(timeline.start[row]), int(timeline.end[row])
        begin = idle_from if waits_inside else start
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::linear", "ts": start + shift, "dur": end - start})
        label = f"PP:{timeline.schedule.op(row)}"
        events.append({"ph": "X", "cat": category, "name": label, "ts": begin + shift, "dur": end - begin})
        idle_from = end
    return events


def _written(folder: Path, traces: list[list[dict]], ranks: list[int] | None = None) -> list[Path]:
    paths = []
    for place, events in enumerate(traces):
        rank = {} if ranks is None else {"distributedInfo": {"backend": "gloo", "rank": ranks[place]}}
        path = folder / f"{place}.json"
        path.write_text(json.dumps({"schemaVersion": 1, **rank, "traceEvents": events}, indent=2))
        paths.append(path)
    return paths


def _read(paths: list[Path], pattern: str | None = None) -> list[profile.Profile]:
    labels = profile.pattern(pattern)
    return [profile.read(path, labels, place) for place, path in enumerate(paths)]


@pytest.mark.parametrize("waits_inside", [True, False])
@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_the_costs_behind_a_trace_are_found_again(tmp_path: Path, name: str, waits_inside: bool) -> None:
    timeline = _timeline(name)
    traces = [_events(timeline, device, waits_inside, "user_annotation") for device in range(D)]
    found = calibrate(_read(_written(tmp_path, traces)))
    assert found.schedule == timeline.schedule
    for stage, estimates in enumerate(found.stages):
        for kind, estimate in estimates.items():
            assert estimate.median == float(_times(stage).seconds(kind) * 10**9)
            assert estimate.uncertainty == (None if estimate.samples == 1 else 0)
    assert found.transfer is not None
    assert found.transfer.median == 30_000
    assert found.aligned
    assert found.makespans == (timeline.makespan * 1000,)
    assert found.explained == 1


def test_the_costs_file_gives_the_same_costs(tmp_path: Path) -> None:
    timeline = _timeline()
    found = calibrate(_read(_written(tmp_path, [_events(timeline, d, True, "user_annotation") for d in range(D)])))
    path = tmp_path / "costs.toml"
    path.write_text("".join(toml(found)))
    costs = measured.load(path)
    assert costs.stages == COSTS.stages
    assert costs.transfer == COSTS.transfer
    problem = costs.problem(timeline.schedule.placement)
    assert problem.time.value(evaluate(timeline.schedule, problem).makespan) == timeline.makespan * US


def test_what_the_device_ran_counts_rather_than_who_launched_it(tmp_path: Path) -> None:
    timeline = _timeline()
    traces = []
    for device in range(D):
        launched = _events(timeline, device, False, "user_annotation")
        for event in launched:
            event["dur"] = 1
        traces.append(launched + _events(timeline, device, False, "gpu_user_annotation"))
    found = calibrate(_read(_written(tmp_path, traces)))
    assert found.stages[0][Kind.F].median == 100_000


def test_ranks_sort_themselves_and_steps_are_told_apart(tmp_path: Path) -> None:
    timeline = _timeline()
    traces = [
        [event for step in range(3) for event in _events(timeline, device, True, "user_annotation", shift=step * 10**6)]
        for device in (2, 0, 3, 1)
    ]
    found = calibrate(_read(_written(tmp_path, traces, ranks=[2, 0, 3, 1])))
    assert found.schedule == timeline.schedule
    assert len(found.makespans) == 3
    assert found.stages[1][Kind.W].samples == 3 * M


def test_clocks_that_do_not_agree_are_noticed(tmp_path: Path) -> None:
    timeline = _timeline()
    traces = [_events(timeline, device, False, "user_annotation", shift=-(10**5) * device) for device in range(D)]
    found = calibrate(_read(_written(tmp_path, traces)))
    assert not found.aligned
    assert found.transfer is None
    assert found.stages[3][Kind.F].median == 130_000


def test_noise_shows_as_spread_and_uncertainty(tmp_path: Path) -> None:
    timeline = _timeline("1f1b")
    dice = np.random.default_rng(0)
    traces = []
    for device in range(D):
        events = [
            event for step in range(20) for event in _events(timeline, device, False, "user_annotation", step * 10**6)
        ]
        for event in events:
            event["dur"] = float(event.get("dur", 0) * dice.normal(1, 0.05))
        traces.append(events)
    found = calibrate(_read(_written(tmp_path, traces)))
    estimate = found.stages[0][Kind.F]
    true = 100_000
    assert estimate.low < estimate.median < estimate.high
    assert abs(estimate.median - true) < 4 * estimate.uncertainty
    expected = 1.2533 * 0.05 * true / estimate.samples**0.5
    assert 0.5 * expected < estimate.uncertainty < 2 * expected


def test_other_labels_are_read_by_pattern(tmp_path: Path) -> None:
    timeline = _timeline("1f1b", MeasuredCosts(COSTS.stages, Fraction(0), US))
    words = {Kind.F: "forward", Kind.B: "backward"}
    traces = []
    for device in range(D):
        events = _events(timeline, device, False, "user_annotation")
        for event in events:
            if event["name"].startswith("PP:"):
                event["name"] = f"{words[Kind[event['name'][4]]]}-step"
        traces.append(events)
    found = calibrate(_read(_written(tmp_path, traces), r"(?P<kind>forward|backward)-step"))
    assert found.schedule == timeline.schedule
    assert found.explained == 1


@pytest.mark.parametrize("form", ["gzip", "array", "small parts"])
def test_traces_are_read_whatever_their_form(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = _timeline()
    events = _events(timeline, 0, True, "user_annotation")
    path = tmp_path / "x.json"
    match form:
        case "gzip":
            path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
        case "array":
            path.write_text(json.dumps(events))
        case _:
            monkeypatch.setattr(profile, "_CHUNK", 13)
            path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": events}, indent=1))
    (found,) = _read([path])
    assert [ran.op for ran in found.ran] == timeline.schedule.ops(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'expected a Chrome trace: an object with "traceEvents"'),
        ('{"events": []}', 'expected a Chrome trace: an object with "traceEvents"'),
        ('{"traceEvents": [{"ph": "X", "name": "PP:0F0", ', "ends, or breaks, in the middle"),
        ('{"traceEvents": []}', "no event is labelled like an op; labels looked for: PP:"),
        ('{"traceEvents": [{"ph": "X", "name": "PP:0F0", "ts": "a", "dur": 1}]}', "has no 'ts' that is a number"),
        ('{"traceEvents": [{"ph": "X", "name": "PP:0F0", "ts": 1}]}', "has no 'dur' that is a number"),
    ],
)
def test_files_that_are_no_traces_are_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(Malformed, match=message):
        _read([path])


def test_traces_that_do_not_fit_together_are_told(tmp_path: Path) -> None:
    timeline = _timeline()
    traces = [_events(timeline, device, True, "user_annotation") for device in range(D)]
    paths = _written(tmp_path, traces)
    with pytest.raises(Malformed, match=r"no trace shows stage 1 of 4; give one trace a rank"):
        calibrate(_read([paths[0], paths[3]]))
    with pytest.raises(Malformed, match="stage 0 runs on ranks 0 and 1"):
        calibrate(_read([paths[0], paths[0]]))
    (tmp_path / "part").mkdir()
    cut = _written(tmp_path / "part", [trace + trace[-4:] for trace in traces])
    with pytest.raises(Malformed, match="the trace holds a step in part"):
        calibrate(_read(cut))
    with pytest.raises(UsageError, match="there is no file"):
        _read([tmp_path / "none.json"])


def test_patterns_that_make_no_sense_are_told() -> None:
    with pytest.raises(UsageError, match="no regular expression"):
        profile.pattern("(")
    with pytest.raises(UsageError, match="needs a group"):
        profile.pattern("PP:F")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"need a table \[\[stage\]\]"),
        ("stage = 3", r"need a table \[\[stage\]\]"),
        ('[[stage]]\nbackward = "1 ms"', "'forward' is missing"),
        ('[[stage]]\nforward = "1 ms"', "needs backward, or both"),
        ('[[stage]]\nforward = "1 ms"\ninput_grad = "1 ms"', "needs backward, or both"),
        ('[[stage]]\nforward = "-1 ms"\nbackward = "1 ms"', "cannot be negative"),
        ('[[stage]]\nforward = 1\nbackward = "1 ms"', "needs a unit"),
        ('tranfer = "1 s"\n[[stage]]\nforward = "1 ms"\nbackward = "1 ms"', "did you mean 'transfer'"),
        ('resolution = "0 s"\n[[stage]]\nforward = "1 ms"\nbackward = "1 ms"', "must be positive"),
    ],
)
def test_costs_files_that_are_wrong_are_told(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "costs.toml"
    path.write_text(text)
    with pytest.raises(Malformed, match=message):
        measured.load(path)


def test_measured_costs_fit_their_own_stages_only() -> None:
    with pytest.raises(Inapplicable, match="measured for 4 stages, and this schedule cuts the model into 8"):
        COSTS.problem(schedules.find("zb-v")(D, M).placement)


def test_a_backward_measured_whole_is_halved_and_one_in_halves_added_up() -> None:
    placement = schedules.find("1f1b")(2, 2).placement
    whole = MeasuredCosts((StageTimes(US, backward=4 * US),) * 2, Fraction(0), US).problem(placement)
    assert whole.durations[0, 0].tolist() == [1, 2, 2, 4]
    assert any("half each" in note for note in whole.notes)
    halves = MeasuredCosts((StageTimes(US, 3 * US, 2 * US),) * 2, 5 * US, US, Communication.LINK).problem(placement)
    assert halves.durations[0, 1].tolist() == [1, 3, 2, 5]
    assert halves.network.occupancy.tolist() == [[[5], [5]]]
    assert any("takes the sum" in note for note in halves.notes)
