"""Systems and models by name: those that ship, and the user's own files, which win."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from explorer.config.decode import decode, load, parse
from explorer.config.model import Model
from explorer.config.system import System
from explorer.core.errors import UsageError, nearest

T = TypeVar("T")

DEFAULT_SYSTEM = "paper-h100"
DEFAULT_MODEL = "paper-128x4096"
"""The source paper's operating point (arXiv:2605.24006)."""


def names(folder: str) -> list[str]:
    """Names of what ships in ``systems`` or ``models``, sorted."""
    found = (entry.name for entry in files("configs").joinpath(folder).iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def load_system(name: str) -> System:
    """A system by name, or from a TOML file.

    Raises
    ------
    UsageError
        If there is neither such a file nor such a name; the message says which names are near.
    Malformed
        If the file is broken.
    """
    return _load(System, "systems", name)


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
    text = files("configs").joinpath(shipped).read_text("utf-8")
    return decode(kind, parse(text, shipped), shipped)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for a file's name
        return False
