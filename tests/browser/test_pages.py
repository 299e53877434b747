"""Comparisons and reports in a headless browser: several timelines on one axis, and pages that need nothing else."""

from fractions import Fraction

import pytest

from explorer import api
from explorer.cli.boundary import guarded
from explorer.config.recipe import AbstractCosts
from explorer.reports import pictures


@pytest.fixture
def compared(opened, tmp_path):
    """Two schedules of different tick and length, one above the other."""
    costs = AbstractCosts(comm_time=Fraction(1, 4), sync_time=Fraction(2))
    result = api.compare([("hanayo", {}), ("chimera", {})], costs, 4, 4, engine="longest-path")
    file = tmp_path / "comparison.html"
    pictures.comparison(file, result)
    return result, opened(file)


def test_timelines_share_their_axis_and_cursor(compared):
    result, page = compared
    assert page.view() == (0, float(max(row.makespan for row in result.rows)))
    page.run("timelines.look(3, 9)")
    page.settle()
    y = page.locate(0)[1]
    page.mouse("mouseMoved", 640, y)
    times = page.run("return timelines.panels.map(p => p.time(640 - p.over.getBoundingClientRect().left))")
    assert times[0] == times[1] == pytest.approx(page.run("return timelines.cursor"))
    black = page.run(
        "return timelines.panels.map(p => p.over.getContext('2d')"
        ".getImageData(Math.round(p.px(timelines.cursor)) - 1, 20, 3, 1).data.some((v, i) => i % 4 === 3 && v > 60))"
    )
    assert black == [True, True]


def test_each_timeline_tells_its_own_times(compared):
    result, page = compared
    for number, row in enumerate(result.rows):
        for op in (0, len(row.schedule) // 2, len(row.schedule) - 1):
            value = row.problem.time.value
            start, end = (f"{float(value(int(t[op]))):.9g}" for t in (row.timeline.start, row.timeline.end))
            page.run("window.scrollTo(0, arguments[0] * 200)", number)
            page.settle()
            assert f"start {start}, end {end}" in page.hover(op, number)


def test_a_report_opens_from_disk_and_fits_a_phone(opened, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert guarded(["report", "1f1b", "zb-h1", "-D", "4", "-M", "8", "--forward", "1", "--output", "r.html"]) == 0
    for size in ((1280, 720), (390, 844)):
        page = opened(tmp_path / "r.html", width=size[0], height=size[1])
        assert page.run("return document.documentElement.scrollWidth <= window.innerWidth")
        assert "Take zb-h1." in page.run("return document.querySelector('.recommendation').innerText")
        assert page.run("return timelines.panels.length") == 2
        assert page.complaints() == []


def test_without_focus_the_wheel_scrolls_the_page(opened, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert guarded(["report", "1f1b", "gpipe", "-D", "4", "-M", "8", "--forward", "1", "--output", "r.html"]) == 0
    page = opened(tmp_path / "r.html")
    page.run("document.querySelector('.panel').scrollIntoView()")
    view, (x, y) = page.view(), page.locate(0)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-100)
    page.settle()
    assert page.view() == view
    page.click(0)
    page.mouse("mouseWheel", x, page.locate(0)[1], deltaX=0, deltaY=-100)
    page.settle()
    assert page.view() != view


def test_a_report_shows_its_frontier(opened, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    monkeypatch.chdir(tmp_path)
    size = ["-D", "2", "-M", "3", "--forward", "1"]
    assert guarded(["report", "1f1b", "zb-h1", *size, "--frontier", "5", "--output", "r.html"]) == 0
    page = opened(tmp_path / "r.html")
    assert page.run("const i = document.querySelector('img.figure'); return i.complete && i.naturalWidth > 300")
    cells = page.run("return [...document.querySelectorAll('img.figure + div td')].map(cell => cell.textContent)")
    rows = [cells[place : place + 4] for place in range(0, len(cells), 4)]
    assert rows[0] == ["1", "15", "15", "proved"]  # device 0 holds one microbatch at a time, for F, F, I, I and W
    assert [float(row[1]) for row in rows] == sorted((float(row[1]) for row in rows), reverse=True)
    assert "zb-h1" in page.run("return document.querySelector('.recommendation').innerText")
