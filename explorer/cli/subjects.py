"""From the words on the command line to schedules and their options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from explorer.core.errors import UsageError

if TYPE_CHECKING:
    from schedules.registry import NamedSchedule

Options = dict[str, object]


def parse_subject(text: str) -> tuple[str, dict[str, str]]:
    """Split ``hanayo:waves=2`` or ``./own.py:build:waves=2`` into a name and its options; a file's name has none.

    Raises
    ------
    UsageError
        If what follows a colon is not NAME=VALUE.
    """
    from explorer.api import is_file

    path, python, rest = text.partition(".py:")
    if python:
        function, *pairs = rest.split(":")
        name = path + python + function
    elif is_file(text):
        return text, {}
    else:
        name, *pairs = text.split(":")
    options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"an option behind a schedule's name must be NAME=VALUE, got {pair!r} in {text!r}")
        options[key.replace("-", "_")] = value
    return name, options


def typed(named: NamedSchedule, options: Mapping[str, str | int]) -> Options:
    """Turn options given as text into values of the type of the schedule's own defaults.

    Raises
    ------
    UsageError
        If a value is of another type; unknown options pass, the schedule itself refuses them.
    """
    return {name: _value(named, name, value) for name, value in options.items()}


def _value(named: NamedSchedule, name: str, value: str | int) -> object:
    default = named.options.get(name)
    if not isinstance(value, str) or isinstance(default, str):
        return value
    if isinstance(default, bool):
        if value.lower() in ("true", "yes", "1", "false", "no", "0"):
            return value.lower() in ("true", "yes", "1")
        raise UsageError(f"option {name} of {named.name} must be true or false, got {value!r}")
    try:
        return int(value)
    except ValueError:
        if default is None:
            return value
        hint = "; options are set apart by colons: a=1:b=2" if "," in value else ""
        raise UsageError(f"option {name} of {named.name} must be a whole number, got {value!r}{hint}") from None
