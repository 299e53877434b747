"""Readers of what users have: Hugging Face's ``config.json``, arguments of Megatron-LM, torchtitan's TOML."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from explorer.config import catalogue
from explorer.core.errors import UsageError
from explorer.core.files import read_text
from explorer.costs.architecture import Architecture
from explorer.costs.problem import architecture_of
from explorer.costs.reading import huggingface, megatron, torchtitan
from explorer.costs.reading.launch import Launch

_TORCHTITAN = ("[parallelism]", "[activation_checkpoint]")


def knows(name: str) -> bool:
    """Whether a model's name is for these readers: a file of another tool, arguments, or a model that ships as JSON."""
    path = Path(name)
    if name.lstrip().startswith("--") or shipped(name) is not None:
        return True
    try:
        if path.suffix == ".toml":
            return path.is_file() and any(mark in path.read_text("utf-8", "replace") for mark in _TORCHTITAN)
        return (
            path.suffix.lower() in (".json", ".sh", ".yaml", ".yml")
            or path.is_dir()
            or (bool(path.suffix) and path.is_file())
        )
    except OSError:  # too long for a file's name, or not to be read
        return False


def shipped(name: str) -> str | None:
    """The ``config.json`` of a model that ships as one; a user's own files win."""
    if Path(name).name != name or Path(f"{name}.toml").exists() or f"{name}.json" not in catalogue.files_of("models"):
        return None
    return files("configs").joinpath("models").joinpath(f"{name}.json").read_text("utf-8")


def _flavor(name: str) -> Architecture:
    """A model that ships, by name."""
    kept = shipped(name)
    if kept is not None:
        return huggingface.architecture(kept, name)
    return architecture_of(catalogue.load_model(name), name)[0]


def read(name: str) -> Launch:
    """What a file, or a line of arguments, says; a folder stands for its ``config.json``.

    Raises
    ------
    UsageError
        If the file cannot be read, or is of no known format.
    Malformed
        If it is broken or incomplete, with its place.
    """
    if name.lstrip().startswith("--"):
        return megatron.launch(name, "the arguments")
    kept = shipped(name)
    if kept is not None:
        return Launch(huggingface.architecture(kept, name))
    path = Path(name)
    if path.is_dir():
        path /= "config.json"
    text, where = read_text(path), str(path)
    if path.suffix.lower() == ".json" or text.lstrip().startswith("{"):
        return Launch(huggingface.architecture(text, where))
    if any(mark in text for mark in _TORCHTITAN):
        return torchtitan.launch(text, where, _flavor(torchtitan.flavor(text, where)))
    if path.suffix in (".sh", ".yaml", ".yml") or "--num-layers" in text:
        return megatron.launch(text, where)
    raise UsageError(
        f"{path}: a model is read from config.json, from arguments of Megatron-LM, or from torchtitan's TOML"
    )
