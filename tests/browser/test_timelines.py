"""Interactive timelines in a headless browser: what a person reads there is what the timeline says."""

from fractions import Fraction

import numpy as np
import pytest

from explorer import api
from explorer.config import catalogue
from explorer.config.modelled import ModelledCosts
from explorer.config.recipe import AbstractCosts
from explorer.core.problem import Communication
from explorer.evaluation.memory import levels
from explorer.evaluation.metrics import Part
from explorer.reports import numbers, pictures
from explorer.reports.figures import palette
from explorer.reports.figures.drawing import drawing


def evaluated(name="chimera", devices=4, microbatches=4, mode="latency", **costs):
    given = {"comm_time": Fraction(1, 2), "sync_time": Fraction(2), "communication": Communication(mode)} | costs
    return api.evaluate(name, AbstractCosts(**given), devices, microbatches, engine="longest-path")


@pytest.fixture
def page(opened, tmp_path):
    """Open a result's timeline."""

    def show(result, **size):
        file = tmp_path / "timeline.html"
        pictures.timeline(file, result)
        return opened(file, **size)

    return show


def in_units(result, ticks):
    return f"{float(result.problem.time.value(int(ticks))):.9g}"


def path_rows(result):
    """The ops of the critical path, a pair's op once."""
    rows = [step.row for step in result.path if step.part is Part.COMPUTE]
    return [row for place, row in enumerate(rows) if place == 0 or row != rows[place - 1]]


@pytest.mark.parametrize("case", [("chimera", 4, 4, "latency"), ("dualpipe", 4, 8, "blocking"), ("zb-v", 4, 6, "link")])
def test_hovering_any_op_tells_its_times(page, case):
    result = evaluated(*case)
    shown = page(result)
    ran = result.timeline
    for row in range(0, len(result.schedule), 5):
        said = shown.hover(row)
        assert said.startswith(f"{result.schedule.op(row)}: ")
        assert f"start {in_units(result, ran.start[row])}, end {in_units(result, ran.end[row])}" in said
        held = levels(result.schedule, result.problem, result.problem.stash)
        while_running, after = (float(result.problem.stash.unit * int(column[row])) for column in held)
        assert f"memory: {while_running:.6g} activations while it runs, {after:.6g} after" in said.replace(
            "activations after", "after"
        )
        if ran.arrival[row] > ran.end[row]:
            sent, there = in_units(result, ran.sent[row]), in_units(result, ran.arrival[row])
            assert f"its output: sent {sent}, there {there}" in said


def test_hover_tells_what_set_the_start(page):
    result = evaluated()
    shown = page(result)
    ran, schedule = result.timeline, result.schedule
    for row in range(len(schedule)):
        said = shown.hover(row)
        assert ("set its start" in said) == (ran.start[row] > 0)


def test_zoom_keeps_the_point_under_the_mouse_and_hover_still_tells_the_truth(page):
    result = evaluated("1f1b", 4, 16)
    shown = page(result)
    row = int(np.argmin(abs(result.timeline.start - result.timeline.makespan // 2)))
    x, y = shown.locate(row)
    for _ in range(6):
        shown.mouse("mouseWheel", x, y, deltaX=0, deltaY=-120)
    shown.settle()
    start, end = shown.view()
    assert end - start < 0.25 * float(result.makespan)
    assert shown.locate(row)[0] == pytest.approx(x, abs=1)
    said = shown.hover(row)
    assert f"start {in_units(result, result.timeline.start[row])}," in said


def test_dragging_pans(page):
    shown = page(evaluated("1f1b", 4, 16))
    shown.run("timelines.look(10, 20)")
    before = shown.view()
    shown.mouse("mousePressed", 700, shown.locate(0)[1], button="left", clickCount=1)
    shown.mouse("mouseMoved", 600, shown.locate(0)[1], button="left")
    shown.mouse("mouseReleased", 600, shown.locate(0)[1], button="left", clickCount=1)
    after = shown.view()
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0])


def test_clicking_walks_the_whole_critical_path(page):
    result = evaluated()
    shown = page(result)
    rows = path_rows(result)
    shown.click(rows[0])
    for row in rows[1:]:
        shown.run("document.querySelector('#details [data-path=\"1\"]').click()")
        assert shown.details().startswith(f"{result.schedule.op(row)}: ")
    assert shown.run("return document.querySelector('#details [data-path=\"1\"]').disabled")
    for row in reversed(rows[:-1]):
        shown.run("document.querySelector('#details [data-path=\"-1\"]').click()")
        assert shown.details().startswith(f"{result.schedule.op(row)}: ")


def test_dependencies_are_links_to_the_ops(page):
    result = evaluated("1f1b", 2, 2)
    shown = page(result)
    row = next(r for r in range(len(result.schedule)) if str(result.schedule.op(r)) == "1F0")
    said = shown.click(row)
    assert "its input, arrived from device 0 at 1.5: 0F0 ◀ set its start" in said
    assert "its output: 1B0 on device 1, starts at 2.5" in said
    shown.run("[...document.querySelectorAll('#details li button')].find(b => b.textContent === '0F0').click()")
    assert shown.details().startswith("0F0: ")


def test_everything_can_be_done_with_the_keyboard(page):
    from selenium.webdriver.common.keys import Keys

    result = evaluated()
    shown = page(result)
    schedule = result.schedule
    shown.press(Keys.ARROW_RIGHT)
    assert shown.details().startswith(f"{schedule.op(0)}: ")
    shown.press(Keys.ARROW_RIGHT)
    assert shown.details().startswith(f"{schedule.op(1)}: ")
    shown.press(Keys.ARROW_DOWN)
    assert "device 1" in shown.details()
    shown.press("+")
    shown.settle()
    start, end = shown.view()
    assert end - start == pytest.approx(0.6 * float(result.makespan))
    shown.press("0")
    assert shown.view() == (0, float(result.makespan))
    shown.run("timelines.select(timelines.panels[0], arguments[0])", path_rows(result)[0])
    shown.press("]")
    assert shown.details().startswith(f"{schedule.op(path_rows(result)[1])}: ")
    shown.press("o", "i")
    assert shown.details().startswith(f"{schedule.op(path_rows(result)[1])}: ")
    shown.press(Keys.ESCAPE)
    assert "Click an op" in shown.details()
    reached = set()
    for _ in range(12):
        shown.press(Keys.TAB)
        reached.add(shown.run("return document.activeElement.id || document.activeElement.textContent"))
    assert {"show-transfers", "show-memory", "show-critical", "shade", "filter"} <= reached


def pixel(shown, row):
    """The colour near the left edge of an op, past its frame."""
    return shown.run(
        "const p = timelines.panels[0], t = p.timeline, [y, tall] = p.lane(arguments[0]);"
        "return [...p.context.getImageData(p.px(t.x(t.start[arguments[0]])) + 4, y + tall - 4, 1, 1).data].slice(0, 3)",
        row,
    )


def test_filter_fades_other_microbatches_and_refuses_nonsense(page):
    result = evaluated("1f1b", 2, 4, "none")
    shown = page(result)
    shown.run("document.getElementById('show-critical').click()")
    shown.settle()
    before = [pixel(shown, row) for row in range(len(result.schedule))]
    box = shown.driver.find_element("id", "filter")
    box.send_keys("1-2")
    shown.settle()
    for row, microbatch in enumerate(result.schedule.microbatch.tolist()):
        assert (pixel(shown, row) == before[row]) == (microbatch in (1, 2))
    box.clear()
    box.send_keys("x")
    shown.settle()
    assert box.get_attribute("aria-invalid") == "true"
    assert [pixel(shown, row) for row in range(len(result.schedule))] == before


def test_memory_and_transfers_are_switched_on_and_off(page):
    shown = page(evaluated(memory_limit="3"))
    low = shown.run("return timelines.panels[0].height")
    shown.run("document.getElementById('show-memory').click()")
    shown.settle()
    assert shown.run("return timelines.panels[0].height") > low
    count = (
        "const c = timelines.panels[0].canvas, d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "return d.reduce((n, v, i) => n + (i % 4 === 0 && v === 0xd5 && d[i + 1] === 0x5e && d[i + 2] === 0), 0)"
    )
    on = shown.run(count)
    shown.run("document.getElementById('show-transfers').click()")
    shown.settle()
    assert on > 50 > shown.run(count)


@pytest.mark.parametrize("size", [(1280, 720), (390, 844)])
def test_fits_the_window(page, size):
    result = evaluated("dualpipe", 8, 20)
    shown = page(result, width=size[0], height=size[1])
    assert shown.run("return document.documentElement.scrollWidth <= window.innerWidth")
    assert f"end {in_units(result, result.timeline.end[3])}" in shown.hover(3)
    tip = shown.run("const b = document.getElementById('tip').getBoundingClientRect(); return [b.left, b.right, b.top]")
    assert tip[0] >= 0 and tip[1] <= size[0] and tip[2] >= 0
    assert shown.run("return timelines.panels[0].canvas.getBoundingClientRect().right <= window.innerWidth")


def test_a_pinch_zooms(page):
    shown = page(evaluated("1f1b", 4, 16), width=390, height=844)
    y = shown.locate(0)[1]

    def touch(kind, *points):
        fingers = [{"x": x, "y": y, "id": number} for number, x in points]
        shown.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})

    touch("touchStart", (0, 150))
    touch("touchStart", (0, 150), (1, 200))
    for out in (10, 30, 50):
        touch("touchMove", (0, 150 - out), (1, 200 + out))
    touch("touchEnd")
    start, end = shown.view()
    assert end - start < 0.5 * shown.run("return timelines.full")


@pytest.mark.alone
def test_a_hundred_thousand_ops_appear_soon_and_stay_quick(page):
    """Bounds for a slow machine; benchmarks/pictures.py says what it takes."""
    result = evaluated("1f1b", 64, 800, "none")
    shown = page(result)
    assert float(shown.run("return document.documentElement.dataset.firstDraw")) < 3000
    shown.run("timelines.look(100, 160)")
    shown.settle()
    assert float(shown.run("return document.documentElement.dataset.lastDraw")) < 500
    ticks = [int(moment / result.problem.time.tick) for moment in (101, 159)]
    visible = np.flatnonzero((result.timeline.start >= ticks[0]) & (result.timeline.end <= ticks[1]))
    row = int(visible[len(visible) // 2])
    assert f"start {in_units(result, result.timeline.start[row])}, end" in shown.hover(row)


def test_modelled_costs_are_told_in_seconds_and_bytes(page):
    model, system = catalogue.load_model(catalogue.DEFAULT_MODEL), catalogue.load_system(catalogue.DEFAULT_SYSTEM)
    result = api.evaluate("zb-v", ModelledCosts(model=model, system=system), 4, 6, engine="longest-path")
    shown = page(result)
    row = len(result.schedule) // 2
    said = shown.hover(row)
    seconds = float(result.problem.time.value(int(result.timeline.start[row])))
    assert f"start {seconds:.9g} s, end" in said
    static, stash = result.devices[int(result.schedule.device[row])].static_memory, result.problem.bytes
    held = static + int(levels(result.schedule, result.problem, stash).during[row])
    assert f"memory: {numbers.size(held)} while it runs" in said


def colour_at(shown, panel_x, y):
    """The colour of the drawing at a place of the canvas."""
    script = "return [...timelines.panels[0].context.getImageData(arguments[0], arguments[1], 1, 1).data].slice(0, 3)"
    return tuple(shown.run(script, int(panel_x), int(y)))


def rgb(colour):
    return tuple(round(255 * part) for part in palette.channels(colour))


def place(shown, ticks, device, share):
    """Where a moment stands in a device's row; 0 is its top and 1 its bottom."""
    at = "[p.px(p.timeline.x(arguments[0])), p.top(arguments[1]) + arguments[2] * p.row]"
    return shown.run(f"const p = timelines.panels[0]; return {at}", float(ticks), device, share)


def test_waits_and_synchronisations_are_drawn_where_they_are(page):
    result = evaluated()
    shown = page(result)
    for name in ("transfers", "critical"):
        shown.run(f"document.getElementById('show-{name}').click()")
    shown.settle()
    drawn = drawing(result)
    for spans, colour, share in ((drawn.waits, palette.WAIT_COLOUR, 0.4), (drawn.syncs, palette.SYNC_COLOUR, 0.88)):
        assert len(spans.device)
        for device in range(result.schedule.devices):
            for start, end in spans.of(device):
                assert colour_at(shown, *place(shown, (start + end) / 2, device, share)) == rgb(colour)


def test_the_critical_path_frames_its_ops(page):
    result = evaluated()
    shown = page(result)
    ran, on_path = result.timeline, set(path_rows(result))
    shown.run("document.getElementById('show-transfers').click()")
    shown.settle()
    for row in range(len(result.schedule)):
        x, y = place(shown, (3 * ran.start[row] + ran.end[row]) / 4, int(result.schedule.device[row]), 0.0)
        assert (max(colour_at(shown, x, y + 1)) < 150) == (row in on_path)  # black, half covering a pixel


def test_memory_is_as_high_as_it_is(page):
    result = evaluated(memory_limit="3")
    shown = page(result)
    shown.run("document.getElementById('show-memory').click()")
    shown.run("document.getElementById('show-critical').click()")
    shown.run("document.getElementById('show-transfers').click()")
    shown.settle()
    floor, scale, pitch = shown.run(
        "const p = timelines.panels[0]; return [p.pitch - 2, (p.strip - 4) / p.timeline.memoryTop, p.pitch]"
    )
    held = levels(result.schedule, result.problem, result.problem.stash).during * float(result.problem.stash.unit)
    for row in range(0, len(result.schedule), 3):
        device = int(result.schedule.device[row])
        x, y = place(shown, (result.timeline.start[row] + result.timeline.end[row]) / 2, device, 0.0)
        heights = {
            level: colour_at(shown, x, y + floor - level * scale) for level in (held[row] - 0.25, held[row] + 0.25)
        }
        below, above = heights.values()
        assert below == rgb(palette.MEMORY_COLOUR if held[row] <= 3 else palette.OVER_COLOUR)
        assert above == (0, 0, 0)  # nothing
    assert pitch > floor


def test_times_are_told_in_the_unit_that_suits(page):
    result = evaluated("1f1b", 2, 2, unit="s", forward=Fraction(1, 1000), backward=Fraction(2, 1000),
                       comm_time=Fraction(1, 4000), sync_time=Fraction(0))  # fmt: skip
    shown = page(result)
    row = next(r for r in range(len(result.schedule)) if str(result.schedule.op(r)) == "1F0")
    assert "start 1.25 ms, end 2.25 ms" in shown.hover(row)
