"""The project's own format: JSON, versioned, without loss."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from explorer.core.errors import Malformed, UsageError, nearest
from explorer.core.files import read_text
from explorer.core.placement import Hop, Placement
from explorer.core.schedule import Schedule
from explorer.core.units import number
from explorer.io.cells import parse_entry

FORMAT = "pipeline-schedule"
VERSION = 1


def encode(schedule: Schedule) -> dict[str, Any]:
    """A schedule as plain JSON values."""
    placement = schedule.placement
    return {
        "format": FORMAT,
        "version": VERSION,
        "routes": [[[hop.chunk, hop.device] for hop in route] for route in placement.routes],
        "route_of": list(placement.route_of),
        "shares": [str(share) for share in placement.shares],
        "orders": [[str(entry) for entry in order] for order in schedule.orders()],
    }


def decode(data: Any, name: str = "schedule") -> Schedule:
    """The inverse of `encode`.

    Raises
    ------
    Malformed
        Naming the key that is missing, unknown or wrong.
    """
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise Malformed(f'expected an object with "format": "{FORMAT}"', name)
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise Malformed(f"version {data.get('version')!r} is not one that this program reads; it reads {VERSION}", name)
    known = ("format", "version", "routes", "route_of", "shares", "orders")
    for key in data:
        if key not in known:
            raise Malformed(f"unknown key {key!r}; {nearest(key, known)}", name)
    try:
        routes = tuple(tuple(Hop(_index(chunk), _index(device)) for chunk, device in route) for route in data["routes"])
        route_of = tuple(map(_index, data["route_of"]))
        shares = tuple(map(_share, data["shares"]))
        orders = [
            [parse_entry(text, f"{name}: orders[{device}][{place}]") for place, text in enumerate(order)]
            for device, order in enumerate(data["orders"])
        ]
    except KeyError as error:
        raise Malformed(f"the key {error} is missing", name) from None
    except (TypeError, ValueError, UsageError) as error:
        raise Malformed(f"not a schedule: {error}", name) from None
    try:
        return Schedule.from_orders(Placement(routes, route_of, shares), orders)
    except UsageError as error:
        raise Malformed(str(error), name) from None


def _share(value: Any) -> Fraction:
    if not isinstance(value, str):
        raise ValueError(f'a share is a text such as "1/4", got {value!r}')
    return number(value, "a share")


def _index(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise ValueError(f"{value!r} is not an index")
    return value


def _no_number(text: str) -> Any:
    raise UsageError(f"{text} is no JSON")


def _whole(text: str) -> int:
    if len(text) > 64:
        raise UsageError(f"a number of {len(text)} digits is too long")
    return int(text)


def read_json(path: Path) -> Any:
    """The values in a JSON file.

    Raises
    ------
    Malformed
        If the file is no JSON; with line and column where it ends early.
    """
    text = read_text(path)
    try:
        return json.loads(text, parse_constant=_no_number, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error.msg}", f"{path}:{error.lineno}:{error.colno}") from None
    except RecursionError:
        raise Malformed("nested too deeply", str(path)) from None
    except UsageError as error:
        raise Malformed(str(error), str(path)) from None


def read(path: Path) -> Schedule:
    """Read a schedule from a file; a result of `optimize` holds one under ``schedule``.

    Raises
    ------
    Malformed
        If the file is no JSON, or holds no schedule; with line and column where JSON ends early.
    """
    data = read_json(path)
    if isinstance(data, dict) and data.get("format") != FORMAT and isinstance(data.get("schedule"), dict):
        data = data["schedule"]
    return decode(data, str(path))
