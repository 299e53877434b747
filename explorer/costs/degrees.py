"""Which degrees of parallelism a model and a system allow, in one place for all that asks."""

from __future__ import annotations

from math import gcd, isqrt

from explorer.config.system import System
from explorer.costs.architecture import Architecture
from explorer.costs.training import Training


def misfit(architecture: Architecture, training: Training, system: System) -> str | None:
    """Why a model cannot be trained so, with the nearest degree that would do; None if it can.

    What is split must divide, as in Megatron-LM: heads and a node's devices by tensor parallelism, tokens by context
    parallelism, experts by expert parallelism.
    """
    tensor, context, expert, sequence = training.tensor, training.context, training.expert, training.sequence
    if wrong := tensor_misfit(architecture, tensor, system):
        return wrong
    if sequence % context:
        near = nearest_divisor(sequence, context)
        return f"context parallelism of {context} does not divide {sequence} tokens; nearest is {near}"
    if training.sequence_parallel and sequence // context % tensor:
        near = nearest_divisor(sequence // context, tensor)
        return f"sequence parallelism over {tensor} does not divide {sequence // context} tokens; nearest is {near}"
    if architecture.positions and sequence > architecture.positions:
        return f"{sequence} tokens a sequence are more than the model's {architecture.positions} positions"
    if expert > 1 and architecture.experts is None:
        return "expert parallelism needs a model with experts"
    if architecture.experts is not None and architecture.experts.count % expert:
        near = nearest_divisor(architecture.experts.count, expert)
        return f"expert parallelism of {expert} does not divide {architecture.experts.count} experts; nearest is {near}"
    return None


def tensor_misfit(architecture: Architecture, tensor: int, system: System) -> str | None:
    """The same for tensor parallelism alone, which needs no other degree to be known."""
    node = system.devices_per_node
    split_up = {"attention heads": architecture.heads}
    if architecture.latent is None:
        split_up["key-value heads"] = architecture.key_value_heads
    near = nearest_divisor(gcd(node, *split_up.values()), tensor)
    for of, number in split_up.items():
        if number % tensor:
            return f"tensor parallelism of {tensor} does not divide {number} {of}; nearest is {near}"
    if tensor > node:
        return f"tensor parallelism of {tensor} does not fit a node of {node}; use at most {near}"
    if node % tensor:
        return f"tensor parallelism of {tensor} does not divide {node} devices of a node; nearest is {near}"
    return None


def nearest_divisor(number: int, near: int) -> int:
    """The divisor of a number that is nearest to another; the smaller of two."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return min((*small, *(number // d for d in small)), key=lambda d: (abs(d - near), d))
