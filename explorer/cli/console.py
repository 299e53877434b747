"""Printing: results on stdout, progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status


def stdout() -> Console:
    """The console for results; wide where nobody looks, so that files and pipes are not cut at 80 columns."""
    from rich.console import Console

    class Results(Console):
        """Leaves a closed pipe to the error boundary."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = Results(highlight=False, soft_wrap=False)
    return console if console.is_terminal or "COLUMNS" in console._environ else Results(highlight=False, width=160)


def show(renderable: RenderableType) -> None:
    """Print something rich; what must not be broken into lines, such as a command to copy, runs on over the edge."""
    stdout().print(renderable, crop=False)


def show_json(value: Any) -> None:
    """Print a JSON value."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


@contextmanager
def progress(what: str) -> Iterator[Status]:
    """Tell on stderr, where a person looks, what is going on; gone when done."""
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(what)) as status:
        yield status
