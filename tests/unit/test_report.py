"""Recommendations follow from the comparison, and the report tells what it is made of."""

import re
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import pytest

from explorer import api
from explorer.cli.boundary import guarded
from explorer.config.recipe import AbstractCosts
from explorer.evaluation.reasons import Share
from explorer.evaluation.results import Comparison
from explorer.reports.figures.breakdown import shares
from explorer.reports.recommendation import recommend

NAMES = ("1f1b", "zb-h1", "interleaved-1f1b", "pipedream")


def compared(*names, devices=4, microbatches=8, **given):
    costs = AbstractCosts(**{"comm_time": Fraction(1, 2)} | given)
    subjects = [(name, {}) for name in names or NAMES]
    return api.compare(subjects, costs, devices, microbatches, engine="longest-path")


def said(advice):
    return " ".join(advice.reasons)


def test_the_fastest_is_recommended_with_its_lead():
    result = compared("1f1b", "zb-h1")
    advice = recommend(result)
    assert advice.chosen is result.rows[0]
    first, second = result.rows
    assert f"takes {float(second.makespan / first.makespan - 1) * 100:.1f}% longer." in said(advice)


def test_what_does_not_fit_is_not_recommended_but_named():
    fastest = recommend(compared("gpipe", "v-half", "zb-v", comm_time=Fraction(0))).chosen
    tight = compared("gpipe", "v-half", "zb-v", comm_time=Fraction(0), memory_limit="3")
    advice = recommend(tight)
    assert advice.chosen is not None and advice.chosen.name != fastest.name
    assert advice.chosen.fits_memory
    assert f"Faster but too large for the memory: {fastest.name} (" in said(advice)


def test_where_nothing_fits_nothing_is_recommended():
    advice = recommend(compared("gpipe", "1f1b", memory_limit="1"))
    assert advice.chosen is None
    assert advice.reasons == (
        "None of the 2 schedules fits into the memory.",
        "1f1b needs the least, 4 on its fullest device.",
    )


def test_of_equally_fast_schedules_the_smaller_one():
    result = compared("gpipe", "1f1b", comm_time=Fraction(0))
    assert result.rows[0].makespan == result.rows[1].makespan
    advice = recommend(result)
    assert advice.chosen.name == "1f1b"
    assert "As fast: gpipe; none of them needs less memory." in said(advice)


def test_a_narrow_lead_is_called_close():
    row = compared("1f1b").rows[0]
    slower = replace(row, name="other", timeline=longer(row.timeline))
    assert "closer than 2.0%" in said(recommend(Comparison((row, slower))))


def longer(timeline):
    """The same, but for the last device, which is busy a tick longer."""
    free = timeline.free.copy()
    free[free.argmax()] += 1
    return replace(timeline, free=free)


def test_the_largest_loss_is_named():
    result = compared("1f1b")
    lost = {share: time for share, time in shares(result.rows[0]).items() if share is not Share.WORK}
    assert f"The largest loss is {max(lost, key=lost.get)}." in said(recommend(result))


def test_a_tight_bound_proves_that_no_order_is_faster():
    advice = recommend(compared("1f1b", devices=1, microbatches=2))
    assert "No order of its ops on its placement is faster: the lower bound is 6 too" in said(advice)


def test_what_coarser_levels_would_have_chosen():
    result = compared("gpipe", "hanayo", devices=4, microbatches=4)
    by_table = result.ranking("table")[0]
    advice = recommend(result)
    assert advice.chosen.name != by_table
    assert f"By the idealised table alone the choice would be {by_table}." in said(advice)


def test_only_schedules_that_flush_are_recommended():
    advice = recommend(compared("pipedream", "1f1b"))
    assert advice.chosen.name == "1f1b"
    assert re.search(r"without a flush, at the price of stale weights: pipedream \([0-9.]+% more\)", said(advice))


class TestPage:
    """The page as a file."""

    ARGUMENTS = ("1f1b", "hanayo:waves=1", "zb-h1", "-D", "4", "-M", "8", "--forward", "1", "--comm-time", "1/2",
                 "--mem-limit", "9")  # fmt: skip

    @pytest.fixture
    def page(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert guarded(["report", *self.ARGUMENTS, "--output", "r.html"]) == 0
        return (tmp_path / "r.html").read_text("utf-8")

    def commands(self, page):
        block = re.search(r"<pre>(.*?)</pre>", page, re.S)[1]
        return [line for line in block.splitlines() if line.startswith("explorer ")]

    def test_its_commands_give_the_same_again(self, page, tmp_path):
        lines = self.commands(page)
        assert [line.split()[1] for line in lines] == ["report", "compare", "evaluate", "show", "export"]
        pytest.importorskip("matplotlib", reason="show draws a figure, which needs the extra plot")
        for line in lines:
            assert guarded(line.split()[1:]) == 0
        assert (tmp_path / "r.html").read_text("utf-8") == page
        assert {"r.svg", "r.json"} <= {file.name for file in tmp_path.iterdir()}

    def test_it_is_made_without_matplotlib(self, tmp_path):
        words = ["report", *self.ARGUMENTS, "--output", str(tmp_path / "r.html")]
        code = f"import sys; from explorer.cli.boundary import guarded; assert guarded({words}) == 0"
        code += "; assert 'matplotlib' not in sys.modules"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0

    def test_it_asks_for_nothing_from_elsewhere(self, page):
        assert not re.findall(r"(?:src|href)\s*=\s*[\"'](?!data:)", page)
        assert "url(" not in page
        assert "default-src 'none'" in page

    def test_it_names_versions_and_what_was_read(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "mine.csv").write_text("0F0,0B0\n1F0,1B0\n")
        assert guarded(["report", "mine.csv", "--forward", "1", "--output", "r.html"]) == 0
        page = (tmp_path / "r.html").read_text("utf-8")
        assert re.search(r"SHA-256 of mine.csv</td><td class=\"text\">[0-9a-f]{64}<", page)
        for name in ("ortools", "numpy", "Python"):
            assert re.search(rf"{name}</td><td class=\"text\">\d", page)

    def test_text_from_outside_is_no_markup(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        name = "<img src=x>&.csv"
        (tmp_path / name).write_text("0F0,0B0\n1F0,1B0\n")
        assert guarded(["report", f"./{name}", "--forward", "1", "--output", "r.html"]) == 0
        page = (tmp_path / "r.html").read_text("utf-8")
        assert "<img" not in page
        assert "&lt;img src=x&gt;&amp;.csv" in page

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (["report", "1f1b", "--output", "x.pdf"], 2),
            (["report", "pipedream", "--forward", "1", "--output", "x.html"], 2),
            (["report", "gpipe", "--forward", "1", "--mem-limit", "1", "--output", "x.html"], 1),
            (["show", "1f1b", "--table", "--output", "x.html"], 2),
            (["show", "1f1b", "--output", "x.gif"], 2),
            (["compare", "1f1b", "--output", "x.tex"], 2),
        ],
    )
    def test_exit_codes(self, arguments, code, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert guarded(arguments) == code
