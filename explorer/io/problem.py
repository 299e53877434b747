"""A problem as JSON, without loss, so that a result can be checked again on its own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from explorer.config.limits import UNLIMITED
from explorer.core.errors import Malformed, UsageError
from explorer.core.placement import IntArray, Placement
from explorer.core.problem import Communication, MemoryLimit, Network, Problem, Stash
from explorer.core.units import HORIZON, TimeBase

VERSION = 1
_FRACTION = re.compile(r"[0-9]{1,300}(/[0-9]{1,300})?")


def encode(problem: Problem) -> dict[str, Any]:
    """A problem as plain JSON values; notes are left out."""
    limit, network = problem.memory_limit, problem.network
    later: dict[str, Any] = {}  # what older files do not have, where it is not the default
    if problem.copies > 1:
        later["copies"] = problem.copies
    if any(problem.optimizer):
        later["optimizer"] = list(problem.optimizer)
    if problem.sync_path:
        later["sync_path"] = [list(passed) for passed in problem.sync_path]
    return later | {
        "version": VERSION,
        "tick": str(problem.time.tick),
        "unit": problem.time.unit,
        "rounds": problem.time.rounds,
        "rounding": str(problem.rounding),
        "durations": problem.durations.tolist(),
        "profile_of": problem.profile_of.tolist(),
        "communication": str(problem.communication),
        "network": {
            "names": list(network.names),
            "link": network.link.tolist(),
            "latency": network.latency.tolist(),
            "occupancy": network.occupancy.tolist(),
            "shared": [[name, sorted(map(list, pairs))] for name, pairs in network.shared],
            **({"servers": list(network.servers)} if any(n > 1 for n in network.servers) else {}),
        },
        "stash": _stash(problem.stash),
        "bytes": None if problem.bytes is None else _stash(problem.bytes),
        "device_memory": problem.device_memory,
        "memory_limit": limit and [list(limit.per_device), limit.in_bytes, limit.text],
        "sync": problem.sync.tolist(),
        "launch": problem.launch,
        "posting": problem.posting,
        "overlap": str(problem.overlap),
    }


def decode(data: Any, name: str = "problem") -> Problem:
    """The inverse of `encode`.

    Raises
    ------
    Malformed
        If something is missing or wrong.
    """
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise Malformed(f"expected a problem of version {VERSION}", name)
    try:
        problem = _read(data)
        for wrong in _wrong(problem):
            raise Malformed(f"not a problem: {wrong}", name)
    except KeyError as error:
        raise Malformed(f"{error} is missing", name) from None
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, UsageError) as error:
        raise Malformed(f"not a problem: {error}", name) from None
    return problem


def _read(data: dict[str, Any]) -> Problem:
    network = data["network"]
    shared = [(_text(key), frozenset((_count(i), _count(j)) for i, j in pairs)) for key, pairs in network["shared"]]
    return Problem(
        time=TimeBase(_fraction(data["tick"]), _text(data["unit"]), _flag(data["rounds"])),
        durations=_whole(data["durations"]),
        profile_of=_whole(data["profile_of"]),
        network=Network(
            tuple(map(_text, network["names"])),
            _whole(network["link"]),
            _whole(network["latency"]),
            _whole(network["occupancy"]),
            tuple(shared),
            tuple(map(_count, network.get("servers", ()))),
        ),
        communication=Communication(data["communication"]),
        stash=_read_stash(data["stash"]),
        sync=_whole(data["sync"]),
        bytes=None if data["bytes"] is None else _read_stash(data["bytes"]),
        device_memory=None if data["device_memory"] is None else _count(data["device_memory"]),
        memory_limit=None if data["memory_limit"] is None else _read_limit(data["memory_limit"]),
        launch=_count(data["launch"]),
        posting=_count(data["posting"]),
        overlap=_fraction(data["overlap"]),
        copies=_count(data.get("copies", 1)),
        optimizer=tuple(map(_count, data.get("optimizer", ()))),
        sync_path=tuple(tuple(map(_count, passed)) for passed in data.get("sync_path", ())),
        rounding=_fraction(data["rounding"]),
    )


def _wrong(problem: Problem) -> Iterator[str]:
    """What the parts of a problem are not, beside those whose shapes it checks itself."""
    network, limit, devices = problem.network, problem.memory_limit, problem.devices
    profiles, chunks, _ = problem.durations.shape
    if problem.time.tick <= 0 or problem.time.unit not in ("1", "s"):
        yield f"a tick must be over 0 of the unit 1 or s, got {problem.time.tick} {problem.time.unit}"
    if network.latency.shape != (len(network.names),):
        yield f"network.latency has shape {network.latency.shape}, expected {(len(network.names),)}"
    if problem.profile_of.ndim != 1:
        yield "profile_of is no list of whole numbers"
    between = network.link[~np.eye(devices, dtype=bool)]
    pairs = np.array([pair for _, some in network.shared for pair in some], np.int64)
    for name, values, last in (
        ("profile_of", problem.profile_of, profiles - 1),
        ("network.link", between, len(network.names) - 1),
        ("network.shared", pairs, devices - 1),
        ("durations", problem.durations, HORIZON),
        ("network.latency", network.latency, HORIZON),
        ("network.occupancy", network.occupancy, HORIZON),
        ("sync", problem.sync, HORIZON),
        ("launch, posting and optimizer", np.array([problem.launch, problem.posting, *problem.optimizer]), HORIZON),
    ):
        if values.size and not 0 <= values.min() <= values.max() <= last:
            yield f"{name} must be from 0 to {last}, got {values.min()} to {values.max()}"
    if problem.copies < 1 or min(network.servers, default=1) < 1:
        yield "copies and network.servers must be at least 1"
    for name, stash in (("stash", problem.stash), ("bytes", problem.bytes)):
        if stash is not None:
            yield from _wrong_memory(name, stash, len(problem.profile_of), (profiles, chunks))
    if limit is not None and len(limit.per_device) != devices:
        yield f"memory_limit is of {len(limit.per_device)} devices, expected {devices}"
    if limit is not None and limit.in_bytes and problem.bytes is None:
        yield "memory_limit is in bytes, and bytes are not given"
    if limit is not None and max(limit.per_device) > UNLIMITED:
        yield f"memory_limit must be at most {UNLIMITED}"


def _wrong_memory(name: str, stash: Stash, microbatches: int, shape: tuple[int, int]) -> Iterator[str]:
    for part, values, expected in (
        ("held", stash.held, shape),
        ("freed_at_input", stash.freed_at_input, shape),
        ("static", stash.static, shape[1:]),
        ("weights", stash.static if stash.weights is None else stash.weights, shape[1:]),
    ):
        if values.shape != expected:
            yield f"{name}.{part} has shape {values.shape}, expected {expected}"
        most = UNLIMITED // max(1, microbatches * shape[1])
        if values.size and not 0 <= values.min() <= values.max() <= most:
            yield f"{name}.{part} must be from 0 to {most}, got {values.min()} to {values.max()}"
    if stash.unit <= 0:
        yield f"{name}.unit must be over 0, got {stash.unit}"
    if (stash.freed_at_input > stash.held).any():
        yield f"{name}.freed_at_input is more than {name}.held"


def digest(problem: Problem, placement: Placement) -> str:
    """A fingerprint of a problem on a placement: equal for equal ones, whatever their file."""
    where = [[list(map(list, route)) for route in placement.routes], list(placement.route_of)]
    text = json.dumps([encode(problem), where, list(map(str, placement.shares))], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _stash(stash: Stash) -> dict[str, Any]:
    return {
        "unit": str(stash.unit),
        "held": stash.held.tolist(),
        "freed_at_input": stash.freed_at_input.tolist(),
        "static": stash.static.tolist(),
        "weights": None if stash.weights is None else stash.weights.tolist(),
    }


def _read_stash(data: Any) -> Stash:
    weights = data["weights"]
    return Stash(
        _fraction(data["unit"]),
        _whole(data["held"]),
        _whole(data["freed_at_input"]),
        _whole(data["static"]),
        None if weights is None else _whole(weights),
    )


def _read_limit(data: Any) -> MemoryLimit:
    if not isinstance(data, list) or len(data) != 3:
        raise ValueError("memory_limit is no list of the limits of devices, whether they are bytes, and the text")
    per_device, in_bytes, text = data
    return MemoryLimit(tuple(map(_count, per_device)), _flag(in_bytes), _text(text))


def _whole(data: Any) -> IntArray:
    array = np.array(data)
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError("expected whole numbers")
    return array.astype(np.int64)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"expected a whole number from 0, got {value!r}")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"expected true or false, got {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {value!r}")
    return value


def _fraction(value: Any) -> Fraction:
    if not isinstance(value, str) or not _FRACTION.fullmatch(value):
        raise ValueError(f'expected a text such as "1/4" for a number from 0, got {value!r}')
    return Fraction(value)
