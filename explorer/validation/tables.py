"""Published tables as they come with the package, their models, and what an iteration of these takes."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from explorer import api
from explorer.config.decode import parse
from explorer.costs.architecture import Architecture
from explorer.costs.problem import TransformerCosts

SYSTEM = "a100-sxm"
SEQUENCE, VOCABULARY = 2048, 51200
"""Of the models of arXiv:2205.05198 and arXiv:2104.04473."""


def gpt(model: dict[str, Any]) -> Architecture:
    """A GPT of the sizes of a row."""
    heads, hidden = model["heads"], model["hidden"]
    return Architecture(
        model["name"], model["layers"], hidden, heads, heads, hidden // heads, 4 * hidden, VOCABULARY, tied=True,
        dropout=True, positions=SEQUENCE,
    )  # fmt: skip


def iteration_seconds(costs: TransformerCosts, pipeline: int, microbatches: int, chunks: int = 1) -> float:
    """Seconds of 1F1B; with ``optimizer`` in the costs, to the end of the optimiser's step."""
    name, options = ("interleaved-1f1b", {"chunks": chunks}) if chunks > 1 else ("1f1b", {})
    result = api.evaluate(name, costs, pipeline, microbatches, options=options, engine="longest-path")
    return float(result.makespan)


def table_of(name: str) -> dict[str, Any]:
    """A published table that comes with the package."""
    file = f"{name}.toml"
    return parse(files("explorer.validation").joinpath("data").joinpath(file).read_text("utf-8"), file)
