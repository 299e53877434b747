"""Collectives inside an op: tensor, expert and context parallelism, as far as nothing hides them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from explorer.config.system import System
from explorer.config.topology import crowding
from explorer.costs.architecture import Architecture
from explorer.costs.training import Training


@dataclass(frozen=True)
class Exposed:
    """Seconds of collectives in F and in I (none are in W), and of what they are made."""

    forward: Fraction = Fraction(0)
    backward: Fraction = Fraction(0)
    how: str = ""


def of_layer(
    architecture: Architecture,
    training: Training,
    system: System,
    *,
    experts: bool,
    scores: tuple[Fraction, Fraction] = (Fraction(0), Fraction(0)),
) -> Exposed:
    """Two all-reduces in F and two in I (arXiv:1909.08053, section 3); two all-to-alls of experts in each.

    Experts are split by tensor parallelism too, as is Megatron-LM's default: the tokens that visit them, each as often
    as it visits one, are gathered and reduced in place of the MLP's, and once more for shared experts.

    With sequence parallelism an all-reduce becomes a reduce-scatter and an all-gather of the same volume
    (arXiv:2205.05198, section 4.2.2). Keys and values of context parallelism go round while scores are computed
    (arXiv:2310.01889, section 3), for ``scores`` seconds in F and in I; what lasts longer is exposed. In I their
    gradients go round with them.
    """
    t, size = training.tensor, 2 * (training.sequence * training.microbatch // training.context) * architecture.hidden
    reduced = ring(system, t, 1, size)
    said = [f"2 all-reduces of {size / 2**20:.4g} MiB over {t}"] if t > 1 else []
    each = 2 * reduced
    if experts and architecture.experts is not None and t > 1:
        rounds = 1 + architecture.experts.active + bool(architecture.experts.shared_feed_forward)
        each, said = rounds * reduced, [f"{rounds} all-reduces of {size / 2**20:.4g} MiB over {t}"]
    if experts and architecture.experts is not None and training.expert > 1:
        e, copies = training.expert, architecture.experts.active * size // t
        kind = system.link(0, t * (e - 1))
        link = system.link_at(kind)
        exchange = link.occupancy(Fraction(copies * (e - 1), e)) * crowding(system, kind, t * e) + link.startup
        each += 2 * exchange
        said.append(f"2 all-to-alls of {copies / 2**20:.4g} MiB over {e}")
    turn = _turn(architecture, training, system)
    if turn:
        said.append(f"keys and values round {training.context} ranks beyond the scores' time")
    exposed = [max(Fraction(0), times * turn - hidden) for times, hidden in zip((1, 2), scores, strict=True)]
    return Exposed(each + exposed[0], each + exposed[1], how=", ".join(said))


def _turn(architecture: Architecture, training: Training, system: System) -> Fraction:
    """Seconds in which keys and values go once round the context-parallel ranks."""
    c, t, latent = training.context, training.tensor, architecture.latent
    if c == 1:
        return Fraction(0)
    width = 2 * architecture.key_value_heads * architecture.head_width
    if latent is not None:
        width = architecture.heads * (latent.plain + latent.rotary + latent.value)
    size = Fraction(2 * width * training.sequence * training.microbatch, c * t)
    kind = system.link(0, t * (c - 1))
    link = system.link_at(kind)
    return (c - 1) * (link.occupancy(size) * crowding(system, kind, t) + link.startup)


def of_embedding(architecture: Architecture, training: Training, system: System) -> Exposed:
    """One all-reduce of its rows, forward: the vocabulary is split."""
    size = 2 * (training.sequence * training.microbatch // training.context) * architecture.hidden
    return Exposed(ring(system, training.tensor, 1, size))


def of_head(architecture: Architecture, training: Training, system: System) -> Exposed:
    """One all-reduce of its input's gradient in I; with sequence parallelism half of it in F, as an all-gather.

    arXiv:1909.08053, section 3; arXiv:2205.05198, section 4.2.2. Logits stay split, the loss reduces single numbers.
    """
    size = 2 * (training.sequence * training.microbatch // training.context) * architecture.hidden
    whole = ring(system, training.tensor, 1, size)
    return Exposed(whole / 2, whole / 2) if training.sequence_parallel else Exposed(backward=whole)


def ring(system: System, count: int, stride: int, size: int) -> Fraction:
    """An all-reduce of ``size`` bytes among ``count`` slots, ``stride`` apart: 2 (n-1) steps of size / n."""
    if count < 2:
        return Fraction(0)
    link = system.link_at(system.link(0, (count - 1) * stride))
    return 2 * (count - 1) * (link.occupancy(Fraction(size, count)) + link.startup)
