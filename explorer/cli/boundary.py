"""The error boundary between the commands and a person."""

from __future__ import annotations

import importlib.util
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from explorer.core.errors import ExplorerError

INTERRUPTED = 130
_SIBLINGS = ("schedules", "solvers", "configs")


def guarded(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code. Errors meant for people become one sentence on stderr."""
    _prepare_streams()
    intruder = _intruder()
    if intruder:
        return _say(intruder, 2)
    import typer
    from typer.main import get_command

    from explorer.cli.app import app

    try:
        with get_command(app).make_context("explorer", list(arguments)) as context:
            context.command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as end:
        return end.exit_code
    except ExplorerError as error:
        return _say(str(error), error.exit_code)
    except _parsing_error() as error:
        if not error.format_message():  # no arguments: the help has been shown
            return 2
        command = error.ctx.command_path if getattr(error, "ctx", None) else "explorer"
        return _say(f"{error.format_message().rstrip('.')}; see {command} --help", 2)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    except MemoryError:
        return _say("this does not fit in memory; choose a smaller size", 2)
    except BrokenPipeError:  # the reader, such as `head`, has gone: nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if error.filename is not None:  # not of the output: a fault of ours
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _say(f"the output cannot be written: {error.strerror}", 2)
    return 0


def _prepare_streams() -> None:
    """Let nothing fail for a stream that is closed or cannot show a character; end as usual when asked to."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - for the process's life
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, lambda number, _: sys.exit(128 + number))


def _parsing_error() -> Any:
    """What typer raises for wrong words on the command line; it exports only classes derived from it."""
    import typer

    return next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def _say(sentence: str, code: int) -> int:
    with suppress(OSError):
        sys.stderr.write(f"explorer: {' '.join(sentence.split())}\n")
        sys.stderr.flush()
    return code


def _intruder() -> str | None:
    """Whether another package of the same name stands before one of ours, in one sentence."""
    home = Path(__file__).resolve().parents[2]
    for name in _SIBLINGS:
        found = importlib.util.find_spec(name)
        origin = found and (found.origin or next(iter(found.submodule_search_locations or ()), None))
        if not origin:
            return (
                f"the package {name!r} is missing beside {home / 'explorer'}; install pipeline-schedule-explorer again"
            )
        if Path(origin).resolve().parent.parent != home:
            return f"another package called {name!r}, at {origin}, hides ours in {home}; use a fresh environment"
    return None
