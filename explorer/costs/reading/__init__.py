"""Readers of the files that users have: a Hugging Face ``config.json``, and Megatron-LM's arguments."""

from __future__ import annotations

from pathlib import Path

from explorer.core.errors import UsageError
from explorer.core.files import read_text
from explorer.costs.reading import huggingface, megatron
from explorer.costs.reading.launch import Launch


def read(name: str) -> Launch:
    """What a file says; a folder stands for its ``config.json``.

    Raises
    ------
    UsageError
        If the file cannot be read, or is of no known format.
    Malformed
        If it is broken or incomplete, with its place.
    """
    path = Path(name)
    if path.is_dir():
        path /= "config.json"
    text = read_text(path)
    if path.suffix == ".json":
        return Launch(huggingface.architecture(text, str(path)))
    if path.suffix in (".sh", ".yaml", ".yml"):
        return megatron.launch(text, str(path))
    raise UsageError(f"{path}: a model is read from config.json, or from Megatron-LM arguments in .sh or .yaml")
