"""What a layer, the embedding and the head take on one device of a tensor-parallel group, in seconds and bytes.

An op is a sum of parts, each the longer of computing and moving. F and I do the products with weights once each, and W
once; attention's scores take twice as long in I as in F. Selective recomputation does them once more; flash attention
does the products of queries and keys once more in any backward, that of a recomputed layer too (arXiv:2307.08691).
Scores count in full, without use of causality, as in arXiv:2104.04473, section 5.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from explorer.config.roofline import BlockCosts
from explorer.config.system import System
from explorer.core.op import Kind
from explorer.costs import collectives
from explorer.costs.architecture import Architecture, Experts, Latent
from explorer.costs.training import Training

ELEMENT = 2
"""Bytes of a weight or an activation, in 16 bits."""


@dataclass(frozen=True)
class Part:
    """A part of a layer, on one device, for one microbatch.

    Parameters
    ----------
    name
        What it is called.
    parameters
        Weights on this device.
    products
        Operations of the products with weights, forward.
    scores
        Operations of the products of activations with each other, forward.
    matched
        Those of them that multiply queries with keys.
    moved
        Bytes that element-wise work reads and writes, forward; as many again in I.
    softmax
        Those of them that belong to attention's scores, which are computed again where they are not held.
    held
        Bytes that F leaves for the backward.
    scores_held
        Those of them that belong to attention's scores.
    kept
        Bytes that W needs: inputs of products with weights, and gradients of their outputs.
    expert
        Whether its weights are spread over expert-parallel groups.
    """

    name: str
    parameters: int
    products: int = 0
    scores: int = 0
    matched: int = 0
    moved: int = 0
    softmax: int = 0
    held: int = 0
    scores_held: int = 0
    kept: int = 0
    expert: bool = False


def tokens(training: Training) -> int:
    """Tokens of a microbatch on one context-parallel rank."""
    return -(-training.sequence * training.microbatch // training.context)


def _spread(training: Training) -> int:
    """Among how many ranks lies what tensor parallelism alone would repeat."""
    return training.tensor if training.sequence_parallel else 1


def parts_of(architecture: Architecture, training: Training, layer: int) -> tuple[Part, ...]:
    """The parts of a layer."""
    experts = architecture.experts if layer in architecture.expert_layers else None
    mlp = (
        (_mlp(architecture, training, architecture.feed_forward),)
        if experts is None
        else tuple(_experts(architecture, training, experts))
    )
    return (_norms(architecture, training), _attention(architecture, training), *mlp)


def _norms(architecture: Architecture, training: Training) -> Part:
    """Two norms, residuals and their dropout: 10 s b h held (8 without dropout), in full unless sequence-parallel.

    Kept for W are the inputs of attention and of the MLP, and the gradients of their outputs: 8 s b h.
    """
    size = -(-tokens(training) * architecture.hidden // _spread(training))
    return Part(
        "norms",
        2 * architecture.hidden,
        moved=10 * ELEMENT * size,
        held=(10 if architecture.dropout else 8) * size,
        kept=4 * ELEMENT * size,
    )


def _attention(architecture: Architecture, training: Training) -> Part:
    t, count, hidden, latent = training.tensor, tokens(training), architecture.hidden, architecture.latent
    if latent is None:
        query = architecture.heads * architecture.head_width
        keys = architecture.key_value_heads * architecture.head_width
        weights = hidden * (2 * query + 2 * keys) // t
        flops = 2 * count * weights
        scores = 4 * count * training.sequence * query // t
        matched = scores // 2
        held = kept = ELEMENT * count * (2 * query + 2 * keys) // t
    else:
        weights, wide, value = _latent_weights(architecture, latent, t)
        flops = 2 * count * weights
        scores = 2 * count * training.sequence * architecture.heads * (wide + value) // t
        matched = 2 * count * training.sequence * architecture.heads * wide // t
        normed = latent.query_rank + latent.key_value_rank
        ranks = normed + latent.rotary
        held = ELEMENT * count * (architecture.heads * 2 * (wide + value) // t + ranks + normed)
        outputs = wide + latent.plain + latent.value
        kept = ELEMENT * count * (architecture.heads * (outputs + value) // t + 2 * ranks)
    scores_held = 0
    if not training.flash_attention and training.recompute == "none":
        # The softmax's output; its dropout's mask and output besides.
        scores_held = (5 if architecture.dropout else 2) * architecture.heads * training.sequence * count // t
    softmax = 0 if training.flash_attention else 6 * ELEMENT * architecture.heads * training.sequence * count // t
    return Part(
        "attention",
        weights,
        flops,
        scores,
        matched,
        moved=softmax,
        softmax=softmax,
        held=held + scores_held,
        scores_held=scores_held,
        kept=kept,
    )


def _latent_weights(architecture: Architecture, latent: Latent, t: int) -> tuple[int, int, int]:
    """Weights on a device, width of a head's query and of its value: arXiv:2405.04434, section 2.1."""
    hidden, heads, wide = architecture.hidden, architecture.heads, latent.plain + latent.rotary
    if latent.query_rank:
        query = hidden * latent.query_rank + latent.query_rank * heads * wide // t
    else:
        query = hidden * heads * wide // t
    down = hidden * (latent.key_value_rank + latent.rotary)
    up = latent.key_value_rank * heads * (latent.plain + latent.value) // t
    norms = latent.query_rank + latent.key_value_rank
    return query + down + up + norms + heads * latent.value * hidden // t, wide, latent.value


def _mlp(architecture: Architecture, training: Training, inner: int, name: str = "MLP") -> Part:
    t, count = training.tensor, tokens(training)
    matrices = 3 if architecture.gated else 2
    weights = matrices * architecture.hidden * inner // t
    width = ELEMENT * count * inner // t
    held = matrices * width
    return Part(name, weights, 2 * count * weights, moved=matrices * width, held=held, kept=matrices * width)


def _experts(architecture: Architecture, training: Training, experts: Experts) -> Iterator[Part]:
    """Router, experts that are chosen (their tokens spread evenly) and shared ones."""
    t, count, hidden = training.tensor, tokens(training), architecture.hidden
    matrices = 3 if architecture.gated else 2
    router = hidden * experts.count
    scored = 4 * count * experts.count // _spread(training)
    yield Part("router", router, 2 * count * router // _spread(training), held=scored, kept=scored)
    one = matrices * hidden * experts.feed_forward // t
    width = ELEMENT * count * experts.active * experts.feed_forward // t
    copies = ELEMENT * count * experts.active * hidden // _spread(training)
    gathered = ELEMENT * count * experts.active * hidden
    yield Part(
        "experts",
        -(-experts.count * one // training.expert),
        2 * count * experts.active * one,
        moved=matrices * width + 4 * copies,
        held=matrices * width + gathered + copies,
        kept=matrices * width + gathered + copies,
        expert=True,
    )
    if experts.shared_feed_forward:
        yield _mlp(architecture, training, experts.shared_feed_forward, "shared experts")


def layer_costs(architecture: Architecture, training: Training, system: System, layer: int) -> BlockCosts:
    """One transformer layer.

    Parameters
    ----------
    architecture, training, system
        What runs, how it is spread, where.
    layer
        Which one, from 0.
    """
    parts = parts_of(architecture, training, layer)
    sent = collectives_of(architecture, training, system, parts)
    size = -(-tokens(training) * architecture.hidden // _spread(training))
    costs = _costs(architecture, parts, training, system, sent, message=ELEMENT * size, checkpoint=ELEMENT * size)
    seconds = {kind: max(costs.seconds[kind], system.overheads.layer) for kind in (Kind.F, Kind.I, Kind.W)}
    seconds[Kind.B] = seconds[Kind.I] + seconds[Kind.W]
    return replace(costs, seconds=seconds)


def collectives_of(
    architecture: Architecture, training: Training, system: System, parts: tuple[Part, ...]
) -> collectives.Exposed:
    """Those of a layer; context parallelism's hide behind the scores, in I twice as long and what is computed again."""
    forward = sum((roofline(system, part.scores, 0) for part in parts), Fraction(0))
    again = sum((roofline(system, part.matched, 0) for part in parts), Fraction(0))
    backward = 2 * forward + (again if training.flash_attention else 0)
    experts = any(part.expert for part in parts)
    return collectives.of_layer(architecture, training, system, experts=experts, scores=(forward, backward))


def prediction_costs(architecture: Architecture, training: Training, system: System) -> BlockCosts:
    """A layer of multi-token prediction with the projection before it and its pass through the head.

    arXiv:2412.19437, section 2.2: the embedding and the head are shared with the model.
    """
    layer = architecture.layers - 1
    projection = 2 * architecture.hidden**2 // training.tensor
    joined = Part(
        "projection",
        projection,
        2 * tokens(training) * projection,
        held=-(-2 * ELEMENT * tokens(training) * architecture.hidden // _spread(training)),
        kept=-(-3 * ELEMENT * tokens(training) * architecture.hidden // _spread(training)),
    )
    whole = layer_costs(architecture, training, system, layer)
    head = _head(architecture, training)
    shared = replace(head, parameters=0)
    sent = collectives.of_head(architecture, training, system)
    return whole.plus(_costs(architecture, (joined, shared), training, system, sent, 0, None))


def embedding_costs(architecture: Architecture, training: Training, system: System) -> BlockCosts:
    """The embedding: rows looked up; a dropout mask held (arXiv:2205.05198, section 4.3)."""
    size = -(-tokens(training) * architecture.hidden // _spread(training))
    weights = architecture.vocabulary * architecture.hidden // training.tensor
    weights += architecture.positions * architecture.hidden
    part = Part("embedding", weights, moved=2 * ELEMENT * size, held=size if architecture.dropout else 0)
    sent = collectives.of_embedding(architecture, training, system)
    return _costs(architecture, (part,), training, system, sent, message=ELEMENT * size, checkpoint=None)


def head_costs(architecture: Architecture, training: Training, system: System) -> BlockCosts:
    """The last norm, the vocabulary head and the loss."""
    sent = collectives.of_head(architecture, training, system)
    return _costs(architecture, (_head(architecture, training),), training, system, sent, 0, None)


def _head(architecture: Architecture, training: Training) -> Part:
    """4 s b h (1 + v / h) held, logits in 32 bits: arXiv:2205.05198, section 4.3."""
    count, hidden, rows = tokens(training), architecture.hidden, architecture.vocabulary
    weights = rows * hidden // training.tensor
    logits = 4 * count * rows // training.tensor
    held = 2 * ELEMENT * count * hidden // _spread(training) + logits
    return Part(
        "head",
        weights + hidden,
        2 * count * weights,
        moved=3 * logits,
        held=held,
        kept=held - ELEMENT * count * hidden // _spread(training),
    )


def _costs(
    architecture: Architecture,
    parts: tuple[Part, ...],
    training: Training,
    system: System,
    sent: collectives.Exposed,
    message: int,
    checkpoint: int | None,
) -> BlockCosts:
    """The sum of parts; ``checkpoint`` is what full recomputation holds instead, None where it does not apply."""
    seconds = dict.fromkeys((Kind.F, Kind.I, Kind.W), Fraction(0))
    again = Fraction(0)
    for part in parts:
        weights = ELEMENT * part.parameters
        forward = roofline(system, part.products, weights if part.products else 0)
        scores, moving = roofline(system, part.scores, 0), roofline(system, 0, part.moved)
        seconds[Kind.F] += forward + scores + moving
        seconds[Kind.I] += forward + 2 * scores + moving
        seconds[Kind.W] += roofline(system, part.products, architecture.bytes_per_gradient * part.parameters)
        if training.flash_attention:
            again += roofline(system, part.matched, 0)
        elif training.recompute == "selective":
            again += scores + roofline(system, 0, part.softmax)
    full = training.recompute == "full" and checkpoint is not None
    whole = seconds[Kind.F] + sent.forward
    seconds[Kind.F] = whole
    seconds[Kind.I] += sent.backward + again + (whole if full else 0)
    seconds[Kind.B] = seconds[Kind.I] + seconds[Kind.W]
    held = checkpoint if full and checkpoint is not None else sum(part.held for part in parts)
    ranks = training.data * training.context
    kept = sum(part.kept for part in parts)
    dense = sum(part.parameters for part in parts if not part.expert)
    spread = sum(part.parameters for part in parts if part.expert)
    return BlockCosts(
        seconds,
        activation=held,
        static=_static(architecture, dense, ranks, training)
        + _static(architecture, spread, ranks // training.expert, training),
        weights=ELEMENT * (dense + spread),
        gradient=_reduced(architecture, dense, spread, training),
        message=message,
        stepped=_stepped(architecture, dense, ranks, training)
        + _stepped(architecture, spread, ranks // training.expert, training),
        freed=0 if full else max(0, held - kept),
    )


def _static(architecture: Architecture, parameters: int, copies: int, training: Training) -> int:
    """Weights, gradients and optimiser state: by default 18 bytes a parameter, 6 + 12 / copies, or 18 / copies."""
    held = (ELEMENT + architecture.bytes_per_gradient) * parameters
    if training.sharded_parameters:
        return -(-(held + architecture.bytes_per_state * parameters) // copies)
    if training.distributed_optimizer:
        return held + -(-architecture.bytes_per_state * parameters // copies)
    return held + architecture.bytes_per_state * parameters


def _stepped(architecture: Architecture, parameters: int, copies: int, training: Training) -> int:
    """Bytes that Adam moves: the gradient, a 32-bit weight and two moments both ways, and a 16-bit weight out."""
    moved = (architecture.bytes_per_gradient + 2 * architecture.bytes_per_state + ELEMENT) * parameters
    return -(-moved // copies) if training.distributed_optimizer or training.sharded_parameters else moved


def _reduced(architecture: Architecture, dense: int, spread: int, training: Training) -> int:
    """Bytes to all-reduce; those of experts, which fewer ranks share, as if all shared them and in the same time.

    Where optimiser state is spread, gradients are reduced and scattered, and weights gathered: half of each.
    """
    each = Fraction(architecture.bytes_per_gradient)
    if training.distributed_optimizer or training.sharded_parameters:
        each = (each + ELEMENT) / 2
    ranks = training.data * training.context
    few = ranks // training.expert
    share = Fraction((few - 1) * ranks, few * (ranks - 1)) if ranks > 1 else Fraction(0)
    return int(each * (dense + share * spread))


def roofline(system: System, flops: int, moved: int) -> Fraction:
    """Seconds of computing or of moving bytes through memory, whichever takes longer; none for nothing."""
    compute, memory = system.compute, system.memory
    if not flops and not moved:
        return Fraction(0)
    rate = compute.matrix * (compute.products or compute.efficiency)
    # At a rate of w / (w + half_work), w operations take as long as w + half_work at the full one.
    return max(
        (flops + compute.half_work) / rate + compute.latency if flops else Fraction(0),
        moved / (memory.bandwidth * memory.efficiency) + memory.latency,
    )


def parameters(architecture: Architecture) -> int:
    """Weights of the whole model, without layers of multi-token prediction."""
    alone = Training(sequence=1)
    layers = sum(
        part.parameters for layer in range(architecture.layers) for part in parts_of(architecture, alone, layer)
    )
    ends = architecture.vocabulary * (1 if architecture.tied else 2) + architecture.positions + 1
    return layers + ends * architecture.hidden


def flops(architecture: Architecture, training: Training, sequences: int) -> int:
    """Operations of the model for an iteration of ``sequences``: thrice the forward's, nothing recomputed.

    For a plain GPT this is 72 b s l h^2 (1 + s / 6h + v / 12 l h): arXiv:2205.05198, appendix A.
    """
    whole = Training(training.sequence, microbatch=1)
    forward = sum(
        part.products + part.scores
        for layer in range(architecture.layers)
        for part in parts_of(architecture, whole, layer)
    )
    head = _head(architecture, whole).products
    further = 2 * tokens(whole) * 2 * architecture.hidden**2 + head
    further += sum(part.products + part.scores for part in parts_of(architecture, whole, architecture.layers - 1))
    return 3 * sequences * (forward + head + architecture.prediction_layers * further)
