"""The command line. Each command is a file; everything that can fail is told in one sentence, with the exit code."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run and exit: 0 done, 1 the answer is no, 2 wrong input, 3 no answer in time, 130 interrupted."""
    from explorer.cli.boundary import guarded

    sys.exit(guarded(sys.argv[1:]))
