"""A problem as JSON, without loss, so that a result can be checked again on its own."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from typing import Any

import numpy as np

from explorer.core.errors import ExplorerError, Malformed
from explorer.core.placement import IntArray, Placement
from explorer.core.problem import Communication, MemoryLimit, Network, Problem, Stash
from explorer.core.units import TimeBase

VERSION = 1


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
        network, limit = data["network"], data["memory_limit"]
        pairs = tuple((str(key), frozenset((int(i), int(j)) for i, j in some)) for key, some in network["shared"])
        return Problem(
            time=TimeBase(Fraction(data["tick"]), str(data["unit"]), bool(data["rounds"])),
            durations=_whole(data["durations"]),
            profile_of=_whole(data["profile_of"]),
            network=Network(
                tuple(map(str, network["names"])),
                _whole(network["link"]),
                _whole(network["latency"]),
                _whole(network["occupancy"]),
                pairs,
                tuple(map(int, network.get("servers", ()))),
            ),
            communication=Communication(data["communication"]),
            stash=_read_stash(data["stash"]),
            sync=_whole(data["sync"]),
            bytes=None if data["bytes"] is None else _read_stash(data["bytes"]),
            device_memory=data["device_memory"],
            memory_limit=None
            if limit is None
            else MemoryLimit(tuple(map(int, limit[0])), bool(limit[1]), str(limit[2])),
            launch=int(data["launch"]),
            posting=int(data["posting"]),
            overlap=Fraction(data["overlap"]),
            copies=int(data.get("copies", 1)),
            optimizer=tuple(map(int, data.get("optimizer", ()))),
            sync_path=tuple(tuple(map(int, passed)) for passed in data.get("sync_path", ())),
            rounding=Fraction(data["rounding"]),
        )
    except (KeyError, IndexError) as error:
        raise Malformed(f"{error} is missing", name) from None
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, ExplorerError) as error:
        raise Malformed(f"not a problem: {error}", name) from None


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
        Fraction(data["unit"]),
        _whole(data["held"]),
        _whole(data["freed_at_input"]),
        _whole(data["static"]),
        None if weights is None else _whole(weights),
    )


def _whole(data: Any) -> IntArray:
    array = np.array(data)
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError("expected whole numbers")
    return array.astype(np.int64)
