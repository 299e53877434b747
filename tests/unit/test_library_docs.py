"""The page of schedules is what its script writes, and the example of a user's schedule works."""

import re
import sys
from pathlib import Path

import pytest

import schedules
from schedules import user

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_up_to_date_and_has_every_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    import schedules_page

    monkeypatch.delitem(sys.modules, "schedules_page")
    assert (DOCS / "schedules.md").read_text(encoding="utf-8") == schedules_page.page(), "run docs/schedules_page.py"
    told = [name for members in schedules_page.GROUPS.values() for name in members]
    assert sorted(told) == sorted(named.name for named in schedules.every())


def test_the_example_of_the_guide_is_gpipe(tmp_path: Path) -> None:
    guide = (DOCS / "adding-a-schedule.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n# my_schedule\.py\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "my_schedule.py").write_text(example, encoding="utf-8")
    own = user.from_file(f"{tmp_path}/my_schedule.py:build")
    for reverse in (False, True):
        assert own(3, 4, reverse=reverse) == schedules.find("gpipe")(3, 4, reverse=reverse)


def test_the_guide_names_the_real_entry_point_group() -> None:
    assert f'"{user.GROUP}"' in (DOCS / "adding-a-schedule.md").read_text(encoding="utf-8")
