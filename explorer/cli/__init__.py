"""The command line. Each command is a file; everything that can fail is told in one sentence, with the exit code."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run and exit: 0 done, 1 the answer is no, 2 wrong input, 3 no answer in time, 130 interrupted."""
    try:
        from explorer.cli.boundary import guarded

        code = guarded(sys.argv[1:])
    except KeyboardInterrupt:  # while this program was still being loaded
        code = 130
    sys.exit(code)
