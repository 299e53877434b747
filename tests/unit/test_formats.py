"""What leaves the explorer for other programs: traces, tables, options."""

import json
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import schedules
from explorer import api
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Inapplicable, UsageError
from explorer.core.op import B, F
from explorer.core.placement import along
from explorer.core.problem import Communication
from explorer.core.schedule import Schedule
from explorer.evaluation.longest_path import evaluate
from explorer.evaluation.memory import peaks
from explorer.evaluation.results import Evaluation
from explorer.io import formats, frame, megatron, table, trace

COSTS = AbstractCosts(comm_time=Fraction(1, 2), communication=Communication.LATENCY, sync_time=Fraction(2))


def _result(name: str, costs: AbstractCosts = COSTS) -> Evaluation:
    return api.evaluate(name, costs, 4, 8, engine="longest-path")


def _events(result: Evaluation) -> list[dict]:
    data = json.loads("".join(trace.write(result.timeline, result.problem)))
    return data["traceEvents"]


NAMES = ["1f1b", "zb-v", "chimera", "dualpipe", "hanayo", "interleaved-1f1b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_shows_every_op_at_its_time(name: str) -> None:
    result = _result(name)
    schedule, timeline = result.schedule, result.timeline
    ops = [event for event in _events(result) if event["ph"] == "X" and event["tid"] == 0]
    assert len(ops) == len(schedule)
    for row, event in enumerate(ops):
        assert event["name"] == str(schedule.op(row))
        assert event["pid"] == schedule.device[row]
        millisecond = 1000
        assert event["ts"] == float(result.problem.time.value(timeline.start[row]) * millisecond)
        assert event["dur"] == float(result.problem.time.value(timeline.end[row] - timeline.start[row]) * millisecond)


@pytest.mark.parametrize("communication", list(Communication))
@pytest.mark.parametrize("name", NAMES)
def test_a_trace_shows_every_transfer_with_its_arrow_and_no_track_overlaps(name: str, communication) -> None:
    result = _result(name, AbstractCosts(comm_time=Fraction(1, 2), communication=communication))
    events = _events(result)
    transfers = [event for event in events if event.get("cat") == "transfer"]
    sends = int((result.timeline.sent >= 0).sum())
    assert len(transfers) == sends > 0
    arrows = defaultdict(dict)
    for event in events:
        if event.get("cat") == "flow":
            arrows[event["id"]][event["ph"]] = event
    assert len(arrows) == sends
    tracks = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    for arrow in arrows.values():
        assert set(arrow) == {"s", "t", "f"}
        assert arrow["s"]["ts"] <= arrow["t"]["ts"] <= arrow["f"]["ts"]
        assert arrow["s"]["pid"] == arrow["t"]["pid"] != arrow["f"]["pid"]
        assert tracks[arrow["t"]["pid"], arrow["t"]["tid"]].startswith(f"to device {arrow['f']['pid']}")
    by_track = defaultdict(list)
    for event in transfers:
        by_track[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_track.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_counts_memory_up_to_its_peak_and_back_to_nothing(name: str) -> None:
    result = _result(name)
    levels = defaultdict(list)
    for event in _events(result):
        if event["ph"] == "C":
            levels[event["pid"]].append(event["args"]["held"])
    expected = peaks(result.schedule, result.problem, result.problem.stash) * float(result.problem.stash.unit)
    assert [max(levels[device]) for device in range(4)] == expected.tolist()
    assert {line[-1] for line in levels.values()} == {0}


def test_a_trace_shows_gradient_synchronisations_on_every_replica() -> None:
    result = _result("chimera")
    shown = Counter(event["pid"] for event in _events(result) if event.get("cat") == "sync")
    assert result.timeline.syncs
    assert shown == Counter(device for sync in result.timeline.syncs for device in sync.devices)


def test_a_trace_is_written_as_a_stream() -> None:
    schedule = schedules.find("1f1b")(4, 8)
    problem = COSTS.problem(schedule.placement)
    parts = trace.write(evaluate(schedule, problem), problem)
    assert next(parts).startswith("{")
    assert all(len(part) < 400 for part in parts)


def test_consumers_are_the_rows_that_wait() -> None:
    schedule = Schedule.from_orders(along([0, 1], 1), [[F(0, 0), B(0, 0)], [F(1, 0), B(1, 0)]])
    assert trace.consumers(schedule).tolist() == [2, -1, 3, 1]


@pytest.mark.parametrize("name", NAMES)
def test_the_timeline_table_holds_every_op_and_time(name: str) -> None:
    result = _result(name)
    rows = frame.frame(result.timeline, result.problem)
    assert rows["op"].tolist() == [str(result.schedule.op(row)) for row in range(len(result.schedule))]
    unit = float(result.problem.time.tick)
    np.testing.assert_allclose(rows["start"], result.timeline.start * unit)
    np.testing.assert_allclose(rows["end"], result.timeline.end * unit)
    assert rows["sent"].isna().tolist() == (result.timeline.sent < 0).tolist()
    assert rows.groupby("device")["position"].max().tolist() == (np.diff(result.schedule.offsets) - 1).tolist()


def test_the_timeline_table_survives_csv_and_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = _result("zb-v")
    rows = frame.frame(result.timeline, result.problem)
    monkeypatch.setattr(frame, "_ROWS_AT_ONCE", 50)  # several parts
    (tmp_path / "x.csv").write_text("".join(frame.csv(rows)))
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "x.csv"), rows, check_dtype=False)
    pytest.importorskip("pyarrow", reason="needs pyarrow, the extra [parquet]")
    (tmp_path / "x.parquet").write_bytes(frame.parquet(rows))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "x.parquet"), rows, check_dtype=False)


def _options(schedule: Schedule) -> str:
    return "".join(megatron.options(schedule))


def test_megatron_options_of_the_orders_that_it_runs() -> None:
    plain = _options(schedules.find("1f1b")(4, 8))
    assert "--pipeline-model-parallel-size 4\n" in plain
    assert "virtual" not in plain.splitlines()[0]
    assert "--global-batch-size 8*MICRO*DP" in plain
    virtual = _options(schedules.find("interleaved-1f1b")(4, 16, chunks=3, group=8))
    assert "--num-layers-per-virtual-pipeline-stage LAYERS/12" in virtual
    assert "--microbatch-group-size-per-virtual-pipeline-stage 8\n" in virtual


def test_megatron_layout_of_unequal_stages() -> None:
    shares = tuple(Fraction(n, 7) for n in (1, 2, 2, 2))
    schedule = schedules.find("1f1b")(4, 8)
    uneven = along([0, 1, 2, 3], 8, shares)
    columns = (schedule.offsets, schedule.stage, schedule.kind, schedule.microbatch)
    assert '--pipeline-model-parallel-layout "Et|tt|tt|ttL"  # 7 layers' in _options(Schedule(uneven, *columns))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gpipe", "device 0 runs 0F4 at position 4, where 1F1B has 0B0"),
        ("zb-h1", "whole backwards"),
        ("zb-v", "places stage s on rank s mod D"),
        ("chimera", "several directions"),
        ("looped-bfs", "runs 1F1B and interleaved 1F1B only"),
    ],
)
def test_megatron_says_plainly_what_it_cannot_run(name: str, reason: str) -> None:
    with pytest.raises(Inapplicable, match=reason):
        _options(schedules.find(name)(4, 8))


@pytest.mark.parametrize(
    ("name", "path", "format"),
    [
        (None, None, "json"),
        (None, "x.json", "json"),
        (None, "x.trace.json", "trace"),
        (None, "x.CSV", "csv"),
        (None, "x.comms.csv", "csv-comms"),
        (None, "x.parquet", "timeline-parquet"),
        ("trace", "x.csv", "trace"),
    ],
)
def test_a_format_is_found_by_name_or_by_the_file(name, path, format) -> None:
    assert formats.find(name, path and Path(path)) is formats.FORMATS[format]


def test_unknown_formats_are_told() -> None:
    with pytest.raises(UsageError, match="no format is called 'tracee'; did you mean 'trace'"):
        formats.find("tracee", None)
    with pytest.raises(UsageError, match=r"x.txt ends in no format's suffix"):
        formats.find(None, Path("x.txt"))


@pytest.mark.parametrize("name", formats.FORMATS)
def test_every_format_writes_a_plain_schedule(name: str) -> None:
    if name == "timeline-parquet":
        pytest.importorskip("pyarrow", reason="needs pyarrow, the extra [parquet]")
    written = formats.FORMATS[name].write(_result("1f1b"))
    data = written.parts if isinstance(written.parts, bytes) else "".join(written.parts).encode()
    assert len(data) > 40
    if "csv" in name and not name.startswith("timeline"):
        assert table.parse(data.decode()) == _result("1f1b").schedule


def test_asynchronous_schedules_are_not_written_for_runtimes_that_update_once() -> None:
    for name in ("csv", "csv-comms", "megatron"):
        with pytest.raises(Inapplicable, match="updates weights between microbatches"):
            formats.FORMATS[name].write(_result("pipedream"))
