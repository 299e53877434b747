"""Every way in which a question can have no answer, each with the exit code that the command line gives it.

A message is one sentence that points at the place and says what would be right.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ExplorerError(Exception):
    """Base of all errors meant for a person; anything else that escapes is a fault of this program."""

    exit_code = 2


class UsageError(ExplorerError):
    """An option or argument is wrong in itself."""


class Inapplicable(ExplorerError):
    """The request is well formed, but this schedule, mode or formula does not exist for it."""


class LimitTooSmall(Inapplicable):
    """The answer is "no": this schedule exists, but not within the memory limit."""

    exit_code = 1


class Malformed(ExplorerError):
    """A file does not hold what it should.

    Parameters
    ----------
    message
        What is wrong and what would be right.
    where
        The place, such as ``x.csv:2:7`` (line and column from 1) or ``x.toml: links.nvlink``.
    """

    def __init__(self, message: str, where: str = "") -> None:
        self.where = where
        super().__init__(f"{where}: {message}" if where else message)


class Incomplete(ExplorerError):
    """A schedule drops, repeats or misplaces an op."""


class Deadlock(ExplorerError):
    """Order and dependencies form a cycle.

    Parameters
    ----------
    message
        The cycle, op by op and device by device.
    cycle
        The ops on the cycle as ``(device, text)``, each waiting for the next, the last for the first.
    """

    def __init__(self, message: str, cycle: tuple[tuple[int, str], ...]) -> None:
        self.cycle = cycle
        super().__init__(message)


class Inexact(ExplorerError):
    """A quantity cannot be held as an integer number of ticks."""


class Infeasible(ExplorerError):
    """The answer is "no": nothing satisfies the limits."""

    exit_code = 1


class Disagreement(ExplorerError):
    """Two engines that must agree do not; neither result is printed."""

    exit_code = 1


class NoAnswer(ExplorerError):
    """The time limit passed before anything was found."""

    exit_code = 3


def nearest(word: str, known: Iterable[str]) -> str:
    """Say which known words resemble ``word``, and all of them where none does.

    Returns
    -------
    str
        Such as ``did you mean 'hanayo'?`` or ``known: a, b, c``.
    """
    known = sorted(known)
    close = difflib.get_close_matches(word.lower(), known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(repr(name) for name in close)}?"
    return f"known: {', '.join(known)}"
