"""From what a user names (a model's file, parallel degrees, a system) to costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from explorer.config import catalogue
from explorer.config.system import System
from explorer.core.errors import UsageError
from explorer.costs.architecture import Architecture
from explorer.costs.layout import parse_layout
from explorer.costs.problem import TransformerCosts, architecture_of
from explorer.costs.reading import knows, read
from explorer.costs.reading.launch import Launch
from explorer.costs.training import Training

SETTINGS = {
    "tensor_parallel": "tensor",
    "context_parallel": "context",
    "expert_parallel": "expert",
    "sequence": "sequence",
    "microbatch_size": "microbatch",
    "global_batch": "global_batch",
    "sequence_parallel": "sequence_parallel",
    "recompute": "recompute",
    "distributed_optimizer": "distributed_optimizer",
    "fsdp": "sharded_parameters",
}
"""Names of options, and of the `Training` fields that they set."""
FLAGS = ("sequence_parallel", "distributed_optimizer", "fsdp")
"""Those that are true or false."""
BALANCED = "balanced"
"""In place of a layout: layers so that the longest stage is shortest."""
SEQUENCE = 4096
"""Tokens of a sequence where nothing says."""


@dataclass(frozen=True)
class Chosen:
    """A model in training, as far as it is named.

    Parameters
    ----------
    launch
        What the model's file says besides the architecture.
    """

    architecture: Architecture
    training: Training
    launch: Launch | None


def is_detailed(model: str, settings: Mapping[str, Any]) -> bool:
    """Whether costs are to be modelled layer by layer: a setting asks for it, or the model is no TOML file of ours."""
    return any(name in settings for name in (*SETTINGS, "layout")) or knows(model)


def choose(model: str, settings: Mapping[str, Any], data: int | None) -> Chosen:
    """A model and how it is trained; settings replace what the model's file says.

    Raises
    ------
    UsageError
        If the file gives no architecture, or settings contradict each other.
    Malformed
        If the file is broken, with line.
    """
    launch = read(model) if knows(model) else None
    if launch is None:
        architecture, training = architecture_of(catalogue.load_model(model), model)
    else:
        if launch.architecture is None:
            raise UsageError(f"{model} does not give the model's sizes; use a file that does, such as its config.json")
        architecture = launch.architecture
        if launch.training is None and "sequence" not in settings:
            told = f"{model} does not say how long sequences are: assumed are {SEQUENCE} tokens"
            architecture = replace(architecture, assumed=(*architecture.assumed, told))
        training = launch.training or Training(SEQUENCE)
    changes = {SETTINGS[name]: value for name, value in settings.items() if name in SETTINGS}
    if data is not None:
        changes["data"] = data
    return Chosen(architecture, replace(training, **changes), launch)


def transformer_costs(chosen: Chosen, system: System, layers: str | None, **common: Any) -> TransformerCosts:
    """Costs of a model in training on a system.

    Parameters
    ----------
    layers
        A Megatron-LM layout string, or `BALANCED`; that of the model's file by default.
    common
        What `TransformerCosts` takes besides.
    """
    balance, pieces = layers == BALANCED, None
    if layers is None and chosen.launch is not None:
        pieces = chosen.launch.pieces
    elif layers is not None and not balance:
        pieces, _ = parse_layout(layers, chosen.architecture, 1)
    return TransformerCosts(chosen.architecture, chosen.training, system, pieces, balance=balance, **common)
