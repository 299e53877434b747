"""Pictures of trade-offs: frontiers of memory and maps of winners, against the results that they draw."""

import json
from dataclasses import replace

import numpy as np
import pytest

from explorer import api
from explorer.cli.boundary import guarded
from explorer.config import catalogue
from explorer.config.modelled import ModelledCosts
from explorer.config.recipe import AbstractCosts
from explorer.core.placement import linear
from explorer.reports import pictures
from explorer.reports.figures import frontier, winners
from explorer.reports.figures.winners import Field, Grid
from explorer.reports.pareto import within
from solvers.optimise import Settings
from solvers.outcome import Found, Proved
from solvers.pareto import frontier as search


@pytest.fixture(scope="module")
def found():
    return search(AbstractCosts().problem, linear(3, 4), Settings(time_limit=5.0), most=4)


def test_curve_is_the_frontier(found):
    drawn = frontier.curve(found)
    assert drawn.too_little == found.least == 1
    assert len(drawn.steps) == len(found.points)
    for step, point in zip(drawn.steps, found.points, strict=True):
        outcome = point.answer.outcome
        assert step.limit == point.limit.per_device[0] * found.problem.stash.unit
        assert step.best == found.problem.time.value(outcome.timeline.makespan)
        assert step.bound == found.problem.time.value(point.answer.bound.ticks)
        assert step.proved == isinstance(outcome, Proved)


def test_what_was_only_found_is_not_drawn_as_proved(found):
    point = found.points[1]
    timeline = point.answer.outcome.timeline
    only_found = replace(point.answer, outcome=Found(timeline.makespan, timeline.makespan - 1, timeline))
    points = (found.points[0], replace(point, answer=only_found), *found.points[2:])
    assert [step.proved for step in frontier.curve(replace(found, points=points)).steps] == [True, False, True, True]


def test_every_named_schedule_is_marked_once(found):
    marks = {name: mark for mark in frontier.curve(found).marks for name in mark.names}
    assert sorted(marks) == sorted(row.name for row in found.compared)
    for row in found.compared:
        mark = marks[row.name]
        assert (mark.memory, mark.time, mark.own) == (row.peak_activations, row.makespan, row.same_placement)


@pytest.fixture(scope="module")
def found_in_bytes():
    costs = ModelledCosts(catalogue.load_model("llama3-8b"), catalogue.load_system("h100-sxm"))
    return search(costs.problem, linear(4, 6), Settings(time_limit=4.0), limits=("1300GiB", "3000GiB"))


def test_schedules_are_marked_by_their_bytes_where_limits_are_in_bytes(found_in_bytes):
    result = found_in_bytes
    marks = {name: mark for mark in frontier.curve(result).marks for name in mark.names}
    assert sorted(marks) == sorted(row.name for row in result.compared)
    largest = max(max(point.limit.per_device) for point in result.points)
    costs = ModelledCosts(catalogue.load_model("llama3-8b"), catalogue.load_system("h100-sxm"))
    needed = {}
    for row in result.compared:
        name, *given = row.name.split(":")
        options = {key: int(value) for key, value in (text.split("=") for text in given)}
        devices = api.evaluate(name, costs, 4, 6, engine="longest-path", **options).devices
        needed[row.name] = max(int(device.peak_memory) for device in devices)
    assert {row.name: row.peak_memory for row in result.compared} == needed
    per_byte = max(limit.limit for limit in frontier.curve(result).steps) / largest
    assert {name: mark.memory for name, mark in marks.items()} == pytest.approx(
        {name: size * per_byte for name, size in needed.items()}
    )


def test_a_schedule_is_held_against_the_points_within_its_bytes(found_in_bytes):
    result = found_in_bytes
    gpipe = next(row for row in result.compared if row.name == "gpipe")
    tight, loose = (point.answer.outcome.timeline.makespan for point in result.points)
    assert loose < tight
    for memory, best in (
        (1300 * 2**30 - 1, 0),
        (1300 * 2**30, tight),
        (3000 * 2**30 - 1, tight),
        (3000 * 2**30, loose),
    ):
        assert within(replace(gpipe, peak_memory=memory), result) == best


def test_labels_of_a_frontier_do_not_overlap(found):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    from matplotlib.text import Annotation, Text

    drawn = frontier.curve(found)
    figure = frontier.frontier(drawn)
    figure.canvas.draw()
    labels = [child for child in figure.axes[0].texts if isinstance(child, Annotation)]
    assert sorted(label.get_text() for label in labels) == sorted(", ".join(mark.names) for mark in drawn.marks)
    boxes = [Text.get_window_extent(label) for label in labels]
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:place])


def test_what_is_not_proved_is_drawn_between_bound_and_best():
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    steps = (frontier.Step(1, 20, 20, True), frontier.Step(2, 15, 12, False))
    drawn = frontier.Curve("title", "memory", "time", 1, steps, ())
    axes = frontier.frontier(drawn).axes[0]
    best, bound = (line.get_ydata().tolist() for line in axes.lines[:2])
    assert (best, bound) == ([20, 15, 15], [20, 12, 12])
    faces = [line.get_markerfacecolor() for line in axes.lines if line.get_marker() == "o"]
    assert faces == ["#0072b2", "white"]


def grid():
    fields = {
        (0, 4): Field(("a",), 0.2, False, False),
        (1, 4): Field(("b", "a"), 0.0, True, False),
        (0, 8): Field(("a",), None, True, True),
    }
    return Grid("title", "x", "y", (0, 1), (4, 8), fields)


def test_map_shows_winner_lead_and_disagreement():
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    axes = winners.winners(grid()).axes[0]
    boxes = {(box.get_x(), box.get_y()): box for box in axes.patches}
    assert set(boxes) == {(0, 0), (1, 0), (0, 1)}  # where nothing is known, nothing is drawn
    assert [boxes[place].get_hatch() for place in ((0, 0), (1, 0), (0, 1))] == [None, "////", "xxxx"]
    assert boxes[0, 0].get_facecolor()[:3] == pytest.approx(winners.tinted(winners.HUES[0], 0.2))
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["A 20.0%", "A", "BA 0.0%"]


def test_a_larger_lead_is_a_fuller_colour():
    saturation = [np.ptp(winners.tinted("#0072b2", margin)) for margin in (0.0, 0.01, 0.05, 0.1)]
    assert saturation == sorted(set(saturation))
    assert winners.tinted("#0072b2", 0.1) == winners.tinted("#0072b2", 0.9) == winners.tinted("#0072b2", None)


def test_files(found, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    for name, draw, drawn in (("f.svg", pictures.frontier, found), ("w.pdf", pictures.winners, grid())):
        draw(tmp_path / name, drawn)
        assert (tmp_path / name).stat().st_size > 1000


def test_pareto_and_map_draw_from_the_command_line(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    monkeypatch.chdir(tmp_path)
    size = ["-D", "2", "-M", "2", "--forward", "1", "--time-limit", "5"]
    assert guarded(["pareto", *size, "--output", "p.svg"]) == 0
    assert guarded(["pareto", *size, "--output", "p.json"]) == 0
    assert json.loads((tmp_path / "p.json").read_text())["points"]
    (tmp_path / "grid.toml").write_text(
        'schedules = ["gpipe", "1f1b"]\ndevices = [2]\nmicrobatches = [2, 4]\n[costs]\ncomm_time = ["0", "1"]\n'
    )
    assert guarded(["sweep", "grid.toml"]) == 0
    assert guarded(["map", "grid.toml", "--x", "comm_time", "--y", "microbatches", "--output", "m.svg"]) == 0
    assert (tmp_path / "p.svg").read_text().count("<text") > 5
    assert (tmp_path / "m.svg").read_text().count("<text") > 5
