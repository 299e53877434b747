"""Pictures: their data against the timeline, and what figures show of it."""

import importlib.util
import re
from fractions import Fraction

import numpy as np
import pytest

from explorer import api
from explorer.config import catalogue
from explorer.config.modelled import ModelledCosts
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Inapplicable, UsageError
from explorer.core.op import KINDS, Kind
from explorer.core.problem import Communication
from explorer.evaluation.longest_path import evaluate as longest_path
from explorer.evaluation.memory import peaks
from explorer.evaluation.metrics import work
from explorer.evaluation.reasons import Share
from explorer.evaluation.results import idealised
from explorer.reports import pictures, slots
from explorer.reports.figures import breakdown, palette, plot
from explorer.reports.figures.drawing import FIRST, SECOND, drawing

CASES = [
    ("1f1b", 4, 6, "latency"),
    ("chimera", 4, 4, "link"),
    ("hanayo", 4, 8, "link"),
    ("zb-v", 4, 8, "none"),
    ("dualpipe", 4, 8, "blocking"),
]


def costs(mode="latency", **given):
    common = {"comm_time": Fraction(1, 2), "sync_time": Fraction(2), "communication": Communication(mode)}
    return AbstractCosts(**common | given)


def evaluated(name, devices, microbatches, mode="latency", **given):
    return api.evaluate(name, costs(mode, **given), devices, microbatches, engine="longest-path")


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[3]}")
def result(request):
    return evaluated(*request.param)


def test_memory_curves_peak_where_the_evaluation_says(result):
    drawn = drawing(result)
    found = peaks(result.schedule, result.problem, result.problem.stash) * float(result.problem.stash.unit)
    for device in range(result.schedule.devices):
        ticks, held = drawn.memory_curve(device)
        assert (np.diff(ticks) >= 0).all()
        assert ticks[0] == 0 and ticks[-1] == result.timeline.makespan
        assert held.max() == found[device]
        assert held[0] == held[-1] == 0


def test_waits_and_sends_are_the_exposed_communication(result):
    drawn = drawing(result)
    for device, report in enumerate(result.devices):
        stretches = sorted(drawn.waits.of(device) + drawn.sends.of(device))
        covered = np.zeros(result.timeline.makespan, bool)
        for start, end in stretches:
            covered[start:end] = True
        assert result.problem.time.value(int(covered.sum())) == report.exposed_communication


def test_waits_never_cover_an_op(result):
    drawn, timeline = drawing(result), result.timeline
    for device in range(result.schedule.devices):
        for start, end in drawn.waits.of(device) + drawn.sends.of(device):
            for row in result.schedule.rows(device):
                assert timeline.end[row] <= start or timeline.start[row] >= end


def test_stretches_stand_device_by_device_in_order_of_time(result):
    drawn = drawing(result)
    for spans in (drawn.waits, drawn.sends, drawn.syncs):
        places = list(zip(spans.device.tolist(), spans.start.tolist(), strict=True))
        assert places == sorted(places)


def test_every_synchronisation_is_drawn_on_each_of_its_devices(result):
    drawn = drawing(result)
    expected = sorted((d, s.start, s.end, s.chunk) for s in result.timeline.syncs for d in s.devices)
    spans = drawn.syncs
    columns = (spans.device, spans.start, spans.end, drawn.synced)
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == expected


def test_crossings_join_each_sender_with_the_op_that_needs_it(result):
    drawn, timeline, device = drawing(result), result.timeline, result.schedule.device
    crossings = drawn.crossings
    assert (device[crossings.source] != device[crossings.target]).all()
    assert (crossings.arrival <= timeline.start[crossings.target]).all()
    assert (crossings.sent >= timeline.end[crossings.source]).all()
    slow = (timeline.sent >= 0) & (timeline.arrival > timeline.end)
    assert sorted(crossings.source.tolist()) == np.flatnonzero(slow).tolist()


def test_shares_of_columns_add_up_to_the_work(result):
    drawn = drawing(result)
    shares = drawn.shares(37)
    assert shares.min() >= 0 and shares.sum(0).max() <= 1 + 1e-9
    spent = shares.sum() * result.timeline.makespan / 37
    assert spent == pytest.approx(int(work(result.schedule, result.problem).sum()))


def test_a_share_is_the_part_of_the_column_that_the_kind_takes():
    drawn = drawing(evaluated("gpipe", 2, 2, "none"))  # device 0: F F . . . . B B, 2 a backward
    shares = drawn.shares(drawn.timeline.makespan)
    for kind in KINDS:
        for row in np.flatnonzero(drawn.schedule.kind == kind):
            start, end = drawn.timeline.start[row], drawn.timeline.end[row]
            assert shares[kind, drawn.schedule.device[row], start:end] == pytest.approx(1)
    assert shares.sum() == pytest.approx((drawn.timeline.end - drawn.timeline.start).sum())


def test_halves_of_pairs_are_marked():
    result = evaluated("dualpipe", 4, 8)
    drawn = drawing(result)
    assert (drawn.part == SECOND).tolist() == result.schedule.joined.tolist()
    assert (drawn.part[:-1] == FIRST).tolist() == result.schedule.joined[1:].tolist()


def test_shades_tell_chunks_apart_else_microbatches():
    chunks = drawing(evaluated("interleaved-1f1b", 2, 4))
    assert {(int(c), float(s)) for c, s in zip(chunks.schedule.chunk, chunks.shade, strict=True)} == {
        (0, 0), (1, 0), (2, 1), (3, 1),
    }  # fmt: skip
    one = drawing(evaluated("1f1b", 2, 4))
    assert (one.shade * 3).tolist() == one.schedule.microbatch.tolist()


def test_caption_states_costs_mode_and_outcome():
    drawn = drawing(evaluated("chimera", 4, 4))
    assert drawn.caption == (
        "Abstract costs: a microbatch takes F 1, B 2 of each device, a transfer 0.5. Communication: latency; gradient "
        "synchronisation 2 a chunk. Makespan 21.5, bubble ratio 44.2%. Most activations: 4."
    )


def test_limit_is_that_of_the_problem():
    drawn = drawing(evaluated("1f1b", 2, 4, memory_limit="3"))
    assert drawn.memory.limit is not None and drawn.memory.limit.tolist() == [3, 3]
    assert drawing(evaluated("1f1b", 2, 4)).memory.limit is None


def test_colours_are_distinct_also_to_the_colour_blind():
    """Red and green fall together for deuteranopes: what is left must differ in blue or in brightness."""

    def seen(colour):
        red, green, blue = palette.channels(colour)
        return np.array([0.3 * red + 0.6 * green + 0.1 * blue, blue])

    colours = [palette.COLOURS[kind] for kind in Kind] + [palette.SYNC_COLOUR, palette.IDLE_COLOUR]
    for place, one in enumerate(colours):
        assert all(np.abs(seen(one) - seen(other)).max() > 0.1 for other in colours[:place])


def test_bars_are_as_long_as_the_makespan(result):
    bar = breakdown.bar(result)
    assert sum(bar.shares.values()) == bar.makespan == result.makespan
    assert bar.shares[Share.WORK] == sum(device.busy for device in result.devices) / result.schedule.devices


def test_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\.svg, \.pdf, \.png"):
        pictures.require_suffix(tmp_path / "x.gif")


def test_without_matplotlib_the_message_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'pipeline-schedule-explorer\[plot\]'"):
        pictures.require_suffix(tmp_path / "x.svg")


class TestSlotTables:
    """The idealised table, in every form."""

    def test_text_is_the_table_of_the_papers(self):
        table = slots.slot_table(evaluated("1f1b", 2, 2, "latency"))
        assert "".join(slots.text(table)).splitlines()[-3:] == [
            "   0  1  2  3  4  5  6  7  8",
            "0 |F0|F1|     |  B0 |  |  B1 |",
            "1 |  |F0|  B0 |F1|  B1 |     |",
        ]

    @pytest.mark.parametrize("case", [*CASES, ("interleaved-1f1b", 2, 4, "none")])
    def test_cells_are_the_idealised_timeline(self, case):
        result = evaluated(*case)
        ideal = idealised(result.problem)
        timeline = longest_path(result.schedule, ideal)
        table = slots.slot_table(result)
        ticks = timeline.makespan // table.slots
        expected = {
            (int(result.schedule.device[r]), result.schedule.op(r), int(timeline.start[r]), int(timeline.end[r]))
            for r in range(len(result.schedule))
        }
        found = {
            (device, op, cell.start * ticks, (cell.start + cell.slots) * ticks)
            for device, cells in enumerate(table.rows) for cell in cells for op in cell.ops
        }  # fmt: skip
        assert found == expected
        for cells in table.rows:
            ends = [cell.start + cell.slots for cell in cells]
            assert [cell.start for cell in cells] == [0, *ends[:-1]] and ends[-1] == table.slots

    def test_modelled_costs_are_drawn_with_those_of_papers(self):
        model, system = catalogue.load_model(catalogue.DEFAULT_MODEL), catalogue.load_system(catalogue.DEFAULT_SYSTEM)
        result = api.evaluate("1f1b", ModelledCosts(model=model, system=system), 2, 2, engine="longest-path")
        table = slots.slot_table(result)
        assert table.slots == 9
        assert table.caption.startswith("Forward 1, backward 2")

    def test_markdown_has_a_column_a_slot(self):
        table = slots.slot_table(evaluated("chimera", 4, 4))
        lines = [line for line in "".join(slots.markdown(table)).splitlines() if line.startswith("|")]
        assert {line.count("|") for line in lines} == {table.slots + 2}
        cells = [cell.strip() for cell in lines[2].split("|")[2:-1]]
        assert cells[:4] == ["0F0", "0F1", "", "3F2"]
        assert cells.count("0B0") == 2

    def test_latex_fills_every_row(self):
        table = slots.slot_table(evaluated("dualpipe", 4, 8))
        written = "".join(slots.latex(table))
        rows = [line for line in written.splitlines() if line.endswith("\\\\ \\hline")][1:]
        assert len(rows) == 4
        for row in rows:
            spans = sum(int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", row))
            assert row.count("&") + spans == table.slots
        assert written.count("{") == written.count("}")
        assert "\\definecolor{opF}{HTML}{56B4E9}" in written

    def test_a_table_that_nobody_can_read_is_refused(self):
        with pytest.raises(Inapplicable, match="1503 time slots"):
            slots.slot_table(evaluated("gpipe", 2, 500, forward=Fraction(1), backward=Fraction(2)))

    @pytest.mark.parametrize("suffix", [".txt", ".md", ".tex", ".svg", ".pdf", ".png"])
    def test_files(self, tmp_path, suffix):
        if suffix in plot.SUFFIXES:
            pytest.importorskip("matplotlib", reason="needs the extra plot")
        file = tmp_path / f"table{suffix}"
        pictures.table(file, evaluated("dualpipe", 4, 8))
        assert file.stat().st_size > 300

    def test_unknown_suffix_is_refused(self, tmp_path):
        with pytest.raises(UsageError, match=r"\.txt, \.md, \.tex"):
            pictures.require_suffix(tmp_path / "x.html", pictures.TABLE_SUFFIXES)


class TestStaticFigures:
    """Figures as matplotlib holds them."""

    @pytest.fixture(autouse=True)
    def _needs_matplotlib(self):
        pytest.importorskip("matplotlib", reason="needs the extra plot")

    def test_labels_stay_inside_their_ops(self, result):
        from explorer.reports.figures.timeline import timeline

        drawn = drawing(result)
        figure = timeline(drawn)
        axes = figure.axes[0]
        figure.canvas.draw()
        labels = [text for text in axes.texts if (text.get_gid() or "").startswith("label-")]
        assert labels
        for label in labels:
            row = int(label.get_gid().removeprefix("label-"))
            box = label.get_window_extent()
            start, end = (
                axes.transData.transform((time[row], 0))[0] for time in (drawn.timeline.start, drawn.timeline.end)
            )
            assert start <= box.x0 and box.x1 <= end
            assert str(drawn.schedule.microbatch[row]) in label.get_text()

    def test_labels_vanish_where_ops_are_narrow(self):
        from explorer.reports.figures.timeline import timeline

        drawn = drawing(evaluated("1f1b", 4, 400, "none"))
        assert not [text for text in timeline(drawn).axes[0].texts if text.get_gid()]

    def test_boxes_are_the_timeline(self, result):
        """Every op is a box of its kind's colour and its shade, from its start to its end in its device's row."""
        from matplotlib.collections import PolyCollection

        from explorer.reports.figures.shapes import tint
        from explorer.reports.figures.timeline import timeline

        drawn = drawing(result)
        boxes = set()
        for collection in timeline(drawn).axes[0].collections:
            if isinstance(collection, PolyCollection) and len(collection.get_facecolor()) == len(
                collection.get_paths()
            ):
                for path, colour in zip(collection.get_paths(), collection.get_facecolor(), strict=True):
                    (start, top), (end, _) = path.vertices[0], path.vertices[2]
                    boxes.add((int(top), start, end, *np.round(colour[:3], 6)))
        for row in range(len(drawn.schedule)):
            colour = np.round(tint(Kind(drawn.schedule.kind[row]), float(drawn.shade[row])), 6)
            place = (drawn.schedule.device[row], drawn.timeline.start[row], drawn.timeline.end[row])
            assert (*place, *colour) in boxes

    @pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
    def test_the_same_figure_is_the_same_file(self, tmp_path, suffix):
        result = evaluated("1f1b", 2, 2)
        files = [tmp_path / f"{name}{suffix}" for name in "ab"]
        for file in files:
            pictures.timeline(file, result)
        first, second = (file.read_bytes() for file in files)
        assert first == second
        assert first.startswith({".svg": b"<?xml", ".pdf": b"%PDF", ".png": b"\x89PNG"}[suffix])

    def test_large_schedules_are_drawn_as_one_image(self, tmp_path):
        result = evaluated("1f1b", 8, 512, "none")
        file = tmp_path / "large.svg"
        pictures.timeline(file, result)
        assert file.stat().st_size < 1_000_000

    def test_bars_are_the_shares(self):
        from explorer.reports.figures.comparison import comparison

        names = ("1f1b", "zb-h1", "chimera")
        result = api.compare([(name, {}) for name in names], costs(), 4, 4, engine="longest-path")
        times, memory = comparison(result).axes
        for container in times.containers:
            for bar, row in zip(container, breakdown.bars(result), strict=True):
                assert bar.get_width() == pytest.approx(float(row.shares[Share(container.get_label())]))
        assert [label.get_text() for label in times.get_yticklabels()] == [row.name for row in result.rows]
        assert [bar.get_width() for bar in memory.containers[0]] == [float(row.peak) for row in breakdown.bars(result)]
