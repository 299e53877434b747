"""The README's examples print what it says they print. `python tests/cli/test_readme.py` writes their output anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


def examples(text: str) -> list[list[tuple[str, str]]]:
    """For each console block its commands, each with the output that follows."""
    blocks = []
    for block in BLOCK.findall(text):
        parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
        blocks.append(list(zip(parts[::2], parts[1::2], strict=True)))
    return blocks


def output(command: str, folder: Path) -> str:
    """What a command prints, with trailing blanks cut."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "explorer").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m explorer "$@"\n')
    (tools / "explorer").chmod(0o755)
    environment = {**os.environ, "COLUMNS": "132", "NO_COLOR": "1", "PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=folder, env=environment, timeout=120, check=True
    )
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


def prepare(commands: list[tuple[str, str]], folder: Path) -> None:
    """Write the files that a block shows with ``cat``."""
    for command, said in commands:
        if command.startswith("cat "):
            (folder / command.removeprefix("cat ")).write_text(said)


@pytest.mark.parametrize("commands", examples(README.read_text()), ids=lambda commands: commands[0][0][:40])
def test_examples_print_what_they_say(commands: list[tuple[str, str]], tmp_path: Path) -> None:
    prepare(commands, tmp_path)
    for command, said in commands:
        assert output(command, tmp_path) == said


def test_commands_to_start_with_are_marked() -> None:
    text = README.read_text()
    for marker in ("main-job", "tests"):
        assert re.search(rf"^<!-- {marker} -->\n```sh\npython3 -m venv .+\n```$", text, re.MULTILINE)


def test_links_lead_somewhere() -> None:
    for page in (README, *README.parent.glob("docs/*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


if __name__ == "__main__":
    import tempfile

    def rewrite(block: re.Match[str]) -> str:
        """The block with each command's output of today."""
        with tempfile.TemporaryDirectory() as name:
            commands = examples(block[0])[0]
            prepare(commands, Path(name))
            said = "".join(f"$ {command}\n{output(command, Path(name))}" for command, _ in commands)
        return f"```console\n{said}```"

    README.write_text(BLOCK.sub(rewrite, README.read_text()))
