"""A terminal for tests of commands: wide, without colour, in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.cli.boundary import guarded


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = guarded(words)
    out, err = capsys.readouterr()
    return code, out, err
