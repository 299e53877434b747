"""A simple roofline: what one transformer block takes on one device, in seconds and bytes.

Time is the longer of computing, FLOPs / (peak x efficiency) + latency, and moving, bytes / (bandwidth x efficiency) +
latency, as in arXiv:2605.24006 (from secondary summaries of it). For b sequences of s tokens, width h, inner width f,
a heads and P parameters a block:

- F: 2 b s P + 4 b s^2 h operations (the scores are counted in full, without use of causality);
- I: as F, with twice the scores (attention has two inputs to differentiate for);
- W: 2 b s P operations.

Every op reads the weights or writes their gradients, and writes or reads what is held for the backward.

The vocabulary head is one matrix product of 2 b s h v operations in each of F, I and W; the embedding moves b s rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from explorer.config.model import Model
from explorer.config.system import System
from explorer.core.op import Kind


@dataclass(frozen=True)
class BlockCosts:
    """One block (or the embedding, or the vocabulary head), for one microbatch.

    Parameters
    ----------
    seconds
        By kind of op.
    activation
        Bytes that F leaves for the backward.
    static
        Bytes of weights, gradients and optimiser state.
    weights
        Bytes of the weights alone.
    gradient
        Bytes that replicas all-reduce.
    message
        Bytes that go from one to the next.
    freed
        Bytes of the activation that I frees, if W follows apart; the rest W needs.
    stepped
        Bytes that the optimiser's step moves.
    """

    seconds: dict[Kind, Fraction]
    activation: int
    static: int
    weights: int
    gradient: int
    message: int
    freed: int = 0
    stepped: int = 0

    def times(self, count: int) -> BlockCosts:
        """``count`` of these, one after the other."""
        seconds = {kind: count * value for kind, value in self.seconds.items()}
        return BlockCosts(
            seconds,
            count * self.activation,
            count * self.static,
            count * self.weights,
            count * self.gradient,
            self.message,
            count * self.freed,
            count * self.stepped,
        )

    def plus(self, other: BlockCosts) -> BlockCosts:
        """Both on one device; the message stays that of the first."""
        seconds = {kind: value + other.seconds[kind] for kind, value in self.seconds.items()}
        return BlockCosts(
            seconds,
            self.activation + other.activation,
            self.static + other.static,
            self.weights + other.weights,
            self.gradient + other.gradient,
            self.message,
            self.freed + other.freed,
            self.stepped + other.stepped,
        )


def parameters(model: Model) -> int:
    """Weights of a block's matrices."""
    keys_and_values = 2 * model.hidden * (model.key_value_width or model.hidden)
    attention = 2 * model.hidden * model.hidden + keys_and_values
    return attention + (3 if model.gated else 2) * model.hidden * model.feed_forward


def activation_bytes(model: Model, batch: int) -> int:
    """Bytes a block holds for its backward: Korthikanti et al., arXiv:2205.05198, section 4.1.

    Theirs is s b h (34 + 5 a s / h) for 16-bit elements and an MLP of 4 h. Written out: 4 s b h for the two layer
    norms; 11 s b h for attention, of which keys and values 4; 3 s b h + 4 s b f for the MLP, or 3 s b h + 6 s b f if
    gated; 5 a s^2 b for the scores, their softmax and dropout, not held with flash attention.
    """
    tokens, width = model.sequence * batch, model.hidden
    keys_and_values = 4 * (model.key_value_width or width)
    outside_mlp = tokens * (4 * width + 7 * width + keys_and_values)
    mlp = tokens * (3 * width + (6 if model.gated else 4) * model.feed_forward)
    scores = 0 if model.flash_attention else 5 * model.heads * model.sequence * tokens
    return (outside_mlp + mlp + scores) * model.bytes_per_element // 2


def embedding_costs(model: Model, system: System, batch: int) -> BlockCosts:
    """What the embedding costs: rows read and written; a dropout mask held (arXiv:2205.05198, section 4.3)."""
    size = batch * model.sequence * model.hidden
    rows = _roofline(system, 0, 2 * size * model.bytes_per_element)
    seconds = {Kind.F: rows, Kind.I: Fraction(0), Kind.W: rows, Kind.B: rows}
    return _layer(model, model.vocabulary * model.hidden, seconds, held=size, message=size * model.bytes_per_element)


def head_costs(model: Model, system: System, batch: int) -> BlockCosts:
    """What the vocabulary head costs.

    Held are 4 s b h (1 + v / h) bytes, logits in 32 bits: arXiv:2205.05198, section 4.3.
    """
    tokens, weights = batch * model.sequence, model.vocabulary * model.hidden
    held = tokens * (2 * model.hidden * model.bytes_per_element + 4 * model.vocabulary)
    read = weights * model.bytes_per_element + held
    written = weights * model.bytes_per_gradient + held
    forward, backward = (_roofline(system, 2 * tokens * weights, moved) for moved in (read, written))
    seconds = {Kind.F: forward, Kind.I: forward, Kind.W: backward, Kind.B: forward + backward}
    return _layer(model, weights, seconds, held, message=0)


def _layer(model: Model, weights: int, seconds: dict[Kind, Fraction], held: int, message: int) -> BlockCosts:
    """The optimiser reads gradients, reads and writes its state, and writes weights; every copy does all of it.

    Its state holds the 32-bit weights, of which Adam's moments are two more: arXiv:1910.02054, section 3.1.
    """
    state = max(0, model.bytes_per_parameter - model.bytes_per_element - model.bytes_per_gradient)
    return BlockCosts(
        seconds,
        activation=held,
        static=weights * model.bytes_per_parameter,
        weights=weights * model.bytes_per_element,
        gradient=weights * model.bytes_per_gradient,
        message=message,
        stepped=weights * (2 * state + model.bytes_per_gradient + model.bytes_per_element),
    )


def block_costs(model: Model, system: System, batch: int) -> BlockCosts:
    """What a block costs for a microbatch of ``batch`` sequences."""
    tokens, weights = batch * model.sequence, parameters(model)
    linear, scores = 2 * tokens * weights, 4 * tokens * model.sequence * model.hidden
    held = activation_bytes(model, batch)
    read = weights * model.bytes_per_element
    flops = {Kind.F: linear + scores, Kind.I: linear + 2 * scores, Kind.W: linear}
    moved = {Kind.F: read + held, Kind.I: read + held, Kind.W: weights * model.bytes_per_gradient + held}
    seconds = {kind: _roofline(system, flops[kind], moved[kind]) for kind in flops}
    seconds[Kind.B] = seconds[Kind.I] + seconds[Kind.W]
    return _layer(model, weights, seconds, held, message=tokens * model.hidden * model.bytes_per_element)


def _roofline(system: System, flops: int, moved: int) -> Fraction:
    compute, memory = system.compute, system.memory
    return max(
        flops / (compute.matrix * compute.efficiency) + compute.latency,
        moved / (memory.bandwidth * memory.efficiency) + memory.latency,
    )
