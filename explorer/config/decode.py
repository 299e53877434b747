"""Strict TOML: a table becomes a frozen dataclass, or the message says which key of which file is wrong."""

from __future__ import annotations

import tomllib
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from explorer.core.errors import Malformed, UsageError, nearest
from explorer.core.files import read_text
from explorer.core.units import number, quantity

T = TypeVar("T")

_NAMES = {int: "a whole number", str: "text", bool: "true or false", Fraction: "a number", dict: "a table"}


def measured(dimension: str, default: str | None = None) -> Any:
    """Declare a field that is a quantity with a unit, held as a `Fraction` of the base unit.

    Parameters
    ----------
    dimension
        A key of `explorer.core.units.DIMENSIONS`.
    default
        As it would stand in the file.
    """
    metadata = {"dimension": dimension}
    if default is None:
        return field(metadata=metadata)
    return field(default=quantity(default, dimension), metadata=metadata)


def load(kind: type[T], path: Path) -> T:
    """Decode a TOML file.

    Raises
    ------
    UsageError
        If the file cannot be read.
    Malformed
        If it is no TOML (with line and column), or a key is unknown, missing or of the wrong type.
    """
    return decode(kind, parse(read_text(path), str(path)), str(path))


def parse(text: str, name: str) -> dict[str, Any]:
    """TOML as plain values; numbers with a point stay exact (`Decimal`).

    Raises
    ------
    Malformed
        With line and column.
    """
    try:
        return tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise Malformed(f"not TOML: {error}", name) from None
    except ValueError:  # Python converts no more than 4300 digits
        raise Malformed("a number has thousands of digits", name) from None
    except RecursionError:
        raise Malformed("nested too deeply", name) from None


def decode(kind: type[T], table: Mapping[str, Any], where: str) -> T:
    """A dataclass from a table, strictly.

    Parameters
    ----------
    where
        The file, which errors name before the key.
    """
    return _table(kind, table, where, "")


def _table(kind: type[T], table: Mapping[str, Any], where: str, path: str) -> T:
    hints = get_type_hints(kind)
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise Malformed(f"unknown key {path + key!r}; {nearest(key, known)}", where)
    values = {}
    for name, declared in known.items():
        if name in table:
            values[name] = _value(hints[name], declared, table[name], where, path + name)
        elif declared.default is MISSING and declared.default_factory is MISSING:
            raise Malformed(f"the key {path + name!r} is missing", where)
    try:
        return kind(**values)
    except UsageError as error:
        raise Malformed(f"{path.rstrip('.')}: {error}" if path else str(error), where) from None


def _value(hint: Any, declared: Field[Any], value: Any, where: str, path: str) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(option for option in get_args(hint) if option is not type(None))
    if _is_long(value):
        raise Malformed(f"{path} is a number beyond 64 bits", where)
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise Malformed(f"{path} must be a list, got {value!r}", where)
        kind = get_args(hint)[0]
        return tuple(_value(kind, declared, each, where, f"{path}[{place}]") for place, each in enumerate(value))
    if is_dataclass(hint):
        if not isinstance(value, dict):
            raise _wrong(dict, value, where, path)
        return _table(hint, value, where, path + ".")  # type: ignore[arg-type]
    dimension = declared.metadata.get("dimension")
    if dimension:
        if not isinstance(value, str):
            raise Malformed(f'{path} needs a unit, such as "2 us" or "450 GB/s", got {value}', where)
        return _checked(lambda: quantity(value, dimension, path), where)
    if hint is Fraction:
        if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
            raise _wrong(Fraction, value, where, path)
        return _checked(lambda: number(str(value), path), where)
    if type(value) is not hint:
        raise _wrong(hint, value, where, path)
    return value


def _is_long(value: Any) -> bool:
    """Whether a value is an integer beyond 64 bits, which TOML does not have."""
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _checked(read: Any, where: str) -> Fraction:
    try:
        value: Fraction = read()
    except UsageError as error:
        raise Malformed(str(error), where) from None
    return value


def _wrong(expected: type, value: Any, where: str, path: str) -> Malformed:
    return Malformed(f"{path} must be {_NAMES[expected]}, got {value!r}", where)
