"""A user's own schedules: a function in a file, named as ``./my_schedule.py:build``, or a plug-in that is installed.

Such a function is ``(devices, microbatches, *, option=default, ...) -> Schedule``, as those of this package; one that
is decorated with `named` will do as well. Loading runs the user's code.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from explorer.core.errors import ExplorerError, UsageError, nearest
from explorer.core.schedule import Schedule
from schedules.registry import NamedSchedule, register

GROUP = "pipeline_schedule_explorer.schedules"
"""The entry-point group of plug-ins: ``name = "package.module:function"``."""


_FAULTS = (Exception, SystemExit, GeneratorExit)
"""What user code may raise and be told of; an interrupt is not its fault."""


def is_reference(subject: str) -> bool:
    """Whether a subject names a Python file, with or without a function."""
    path, _, function = subject.rpartition(":")
    return path.endswith(".py") or function.endswith(".py")


def from_file(reference: str) -> NamedSchedule:
    """The schedule that a function in a file builds; it is not registered.

    Parameters
    ----------
    reference
        ``<path>.py:<function>``.

    Raises
    ------
    UsageError
        If there is no such file or function, the file fails when it runs, or the function takes other arguments.
    """
    path, colon, function = reference.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise UsageError(f"{reference!r} must name a file and a function in it, such as ./my_schedule.py:build")
    file = Path(path).resolve()
    if not file.is_file():
        raise UsageError(f"there is no file {path}")
    module = _run(file, file.stat().st_mtime_ns)
    found = getattr(module, function, None)
    if found is None:
        own = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        hint = nearest(function, own) if own else "it has no function at all"
        raise UsageError(f"{path} has no function {function!r}; {hint}")
    return found if isinstance(found, NamedSchedule) else _schedule(found, reference, reference, path, file)


def install_plugins() -> None:
    """Register the schedules of all plug-ins that are installed, once; a later call does nothing.

    Raises
    ------
    UsageError
        If a plug-in cannot be imported, is no function that builds a schedule, or takes a name that is taken.
    """
    _plugins(tuple(entry_points(group=GROUP)))


@functools.cache
def _plugins(points: tuple[EntryPoint, ...]) -> None:
    for point in points:
        package = point.dist.name if point.dist else point.value
        where = f"plug-in {point.name!r} of {package}"
        try:
            found = point.load()
        except _FAULTS as error:
            raise UsageError(f"{where} cannot be loaded: {_said(error)}") from error
        if not isinstance(found, NamedSchedule):
            register(_schedule(found, point.name.lower(), where, package))


@contextlib.contextmanager
def _aside(folder: Path | None = None) -> Iterator[None]:
    """Keep what user code prints out of results, and let it import its neighbours in a folder."""
    if folder is not None:
        sys.path.insert(0, str(folder))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if folder is not None:
            sys.path.remove(str(folder))


@functools.lru_cache
def _run(path: Path, changed: int) -> ModuleType:
    """The module that a file holds; run again only where the time of its last change differs."""
    spec = spec_from_file_location(f"user_schedule_{path.stem}", path)
    assert spec is not None, "a path that ends in .py has a loader"
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with _aside(path.parent):
            spec.loader.exec_module(module)
    except _FAULTS as error:
        raise UsageError(f"{path} fails when it is loaded: {_said(error, path)}") from error
    return module


def _schedule(function: object, name: str, where: str, source: str, file: Path | None = None) -> NamedSchedule:
    """Wrap a function, so that whatever it does wrong is said in one sentence."""
    if not callable(function):
        raise UsageError(f"{where} is no function but {type(function).__name__}")
    _require_arguments(function, where)

    @functools.wraps(function)
    def build(*arguments: Any, **options: Any) -> Schedule:
        try:
            with _aside():
                built = function(*arguments, **options)
        except ExplorerError:
            raise
        except _FAULTS as error:
            raise UsageError(f"{where} fails: {_said(error, file)}") from error
        if not isinstance(built, Schedule):
            raise UsageError(f"{where} must return a Schedule (see Schedule.from_orders), got {type(built).__name__}")
        return built

    summary = (inspect.getdoc(function) or "a user's schedule").partition("\n")[0]
    return NamedSchedule(name, build, summary, source)


def _require_arguments(function: Callable[..., object], where: str) -> None:
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        raise UsageError(f"{where} does not say which arguments it takes; write it as a Python function") from None
    first, options = list(parameters)[:2], list(parameters.values())[2:]
    if first != ["devices", "microbatches"]:
        raise UsageError(f"{where} must take (devices, microbatches, ...), it takes ({', '.join(parameters)})")
    for option in options:
        if option.kind not in (option.POSITIONAL_OR_KEYWORD, option.KEYWORD_ONLY):
            raise UsageError(f"{where} must name its options one by one, it takes {option}")
        if option.default is option.empty:
            raise UsageError(f"{where} needs a default for its option {option.name!r}")


def _said(error: BaseException, file: Path | None = None) -> str:
    """An error with the line of the user's file where it arose."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    place = f" (line {lines[-1]})" if lines else ""
    try:
        said = str(error)
    except Exception:
        said = "(and its message cannot be shown)"
    return f"{type(error).__name__}: {said}{place}"
