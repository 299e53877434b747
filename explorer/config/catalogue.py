"""Systems and models by name: those that ship, and the user's own files, which win."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from explorer.config.decode import decode, load, parse
from explorer.config.model import Model
from explorer.config.system import System
from explorer.config.topology import KINDS, Link, nccl_samples
from explorer.core.errors import UsageError, nearest
from explorer.core.files import read_text

T = TypeVar("T")

DEFAULT_SYSTEM = "paper-h100"
DEFAULT_MODEL = "paper-128x4096"
"""The source paper's operating point (arXiv:2605.24006)."""


def files_of(folder: str) -> list[str]:
    """The files that ship in ``systems`` or ``models``, sorted."""
    found = (entry.name for entry in files("configs").joinpath(folder).iterdir())
    return sorted(name for name in found if name.endswith((".toml", ".json")))


def names(folder: str) -> list[str]:
    """Names of what ships in ``systems`` or ``models``, sorted."""
    return sorted(name.rpartition(".")[0] for name in files_of(folder))


def described(folder: str, name: str) -> str:
    """The description of what ships under a name."""
    place = files("configs").joinpath(folder)
    if f"{name}.json" in files_of(folder):
        return str(json.loads(place.joinpath(f"{name}.json").read_text("utf-8"))["description"])
    return str(parse(place.joinpath(f"{name}.toml").read_text("utf-8"), name)["description"])


def load_system(name: str) -> System:
    """A system by name, or from a TOML file.

    Raises
    ------
    UsageError
        If there is neither such a file nor such a name; the message says which names are near.
    Malformed
        If the file is broken.
    """
    system = _load(System, "systems", name)
    links = {kind: getattr(system.links, kind) for kind in KINDS}
    folder = Path(name).parent
    read = {kind: _tested(link, folder) for kind, link in links.items() if link is not None and link.nccl_tests}
    return replace(system, links=replace(system.links, **read)) if read else system


def _tested(link: Link, folder: Path) -> Link:
    """A link with the times that its file of a test of NCCL holds."""
    path = folder / link.nccl_tests
    return Link(times=nccl_samples(read_text(path), str(path)))


def load_model(name: str) -> Model:
    """A model by name, or from a TOML file; errors as `load_system`."""
    return _load(Model, "models", name)


def _load(kind: type[T], folder: str, name: str) -> T:
    if name.endswith(".toml") or Path(name).name != name:
        return load(kind, Path(name))
    own = Path(f"{name}.toml")
    if _exists(own):
        return load(kind, own)
    known = names(folder)
    if name.lower() not in known:
        raise UsageError(f"no {folder[:-1]} is called {name!r}; {nearest(name, known)}; or give a TOML file")
    shipped = f"{folder}/{name.lower()}.toml"
    if f"{name.lower()}.json" in files_of(folder):
        raise UsageError(f"{name} is modelled layer by layer only: give --tp 1, say")
    text = files("configs").joinpath(shipped).read_text("utf-8")
    return decode(kind, parse(text, shipped), shipped)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for a file's name
        return False
