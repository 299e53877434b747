"""From the words on the command line to schedules and their options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from explorer.core.errors import UsageError

if TYPE_CHECKING:
    from schedules.registry import NamedSchedule

Options = dict[str, object]
_WHOLE = re.compile(r"[-+]?[0-9]{1,9}")


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
        if pairs and is_file(name):
            raise UsageError(f"{name} is a file, which has no options, got {':'.join(pairs)!r}")
    options: dict[str, str] = {}
    for pair in _joined(pairs):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"an option behind a schedule's name must be NAME=VALUE, got {pair!r} in {text!r}")
        if key.replace("-", "_") in options:
            raise UsageError(f"{text!r} gives {key} twice")
        options[key.replace("-", "_")] = value
    return name, options


def _joined(pairs: list[str]) -> list[str]:
    """A part without = goes on with the value before it: values may hold colons, as split=1:2 does."""
    joined: list[str] = []
    for pair in pairs:
        if joined and "=" not in pair:
            joined[-1] += f":{pair}"
        else:
            joined.append(pair)
    return joined


def merged(common: Mapping[str, str | int], own: Mapping[str, str]) -> dict[str, str | int]:
    """Options given for all schedules, and those behind a schedule's name.

    Raises
    ------
    UsageError
        If both set one.
    """
    for name in own:
        if name in common:
            raise UsageError(f"{name} is given both behind the schedule's name and as an option; leave one out")
    return {**common, **own}


def typed(named: NamedSchedule, options: Mapping[str, str | int]) -> Options:
    """Turn options given as text into values of the type of the schedule's own defaults.

    Raises
    ------
    UsageError
        If a value is of another type; unknown options pass, the schedule itself refuses them.
    """
    return {name: _value(named, name, value) for name, value in options.items()}


def _value(named: NamedSchedule, name: str, value: str | int) -> object:
    if name in ("devices", "microbatches", "recipe"):
        raise UsageError(f"{name} is no option of a schedule; sizes are given by -D and -M")
    default = named.options.get(name)
    if not isinstance(value, str) or isinstance(default, str):
        return value
    if isinstance(default, bool):
        if value.lower() in ("true", "yes", "1", "false", "no", "0"):
            return value.lower() in ("true", "yes", "1")
        raise UsageError(f"option {name} of {named.name} must be true or false, got {value!r}")
    if _WHOLE.fullmatch(value):
        return int(value)
    if default is None or isinstance(default, float):
        with suppress(ValueError):
            return float(value)
    if isinstance(default, int | float):
        hint = "; options are set apart by colons: a=1:b=2" if "," in value else ""
        what = "a whole number" if isinstance(default, int) else "a number"
        raise UsageError(f"option {name} of {named.name} must be {what}, got {value!r}{hint}")
    return value
