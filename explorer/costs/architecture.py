"""What a model is made of, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.core.errors import UsageError

MOST_LAYERS = 10_000


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1): ranks and widths a head.

    Parameters
    ----------
    query_rank
        Width to which queries are compressed; 0 if they are not.
    key_value_rank
        Width to which keys and values are compressed together.
    plain, rotary
        Widths of a head's query and key without and with rotary positions.
    value
        Width of a head's value.
    """

    query_rank: int
    key_value_rank: int
    plain: int
    rotary: int
    value: int


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the MLP.

    Parameters
    ----------
    count
        Experts among which the router chooses.
    active
        How many of them a token visits (top-k).
    feed_forward
        Inner width of each.
    shared_feed_forward
        Inner width of all shared experts together; 0 if there are none.
    """

    count: int
    active: int
    feed_forward: int
    shared_feed_forward: int = 0


@dataclass(frozen=True)
class Architecture:
    """A transformer: layers between an embedding and a vocabulary head.

    Parameters
    ----------
    name
        What it is called in messages.
    layers
        Transformer layers, those of multi-token prediction not counted.
    hidden, heads, key_value_heads, head_width
        Width, query heads, heads of keys and values (grouped queries), width of a head.
    feed_forward
        Inner width of the dense MLP.
    gated
        Whether the MLPs have a gate (three matrices instead of two).
    vocabulary
        Rows of the embedding and of the head.
    dropout
        Whether it drops out: masks are held then.
    tied
        Whether the head shares the embedding's weights.
    positions
        Rows of learned positions; 0 for rotary or none.
    latent
        Multi-head latent attention instead of plain one.
    experts
        Of layers with a mixture of experts.
    expert_layers
        Which layers (from 0) have experts; the others are dense.
    prediction_layers
        Layers of multi-token prediction after the last one (DeepSeek-V3, arXiv:2412.19437, section 2.2).
    bytes_per_gradient
        Of a parameter's gradient, as held and as all-reduced.
    bytes_per_state
        Of a parameter's optimiser state; by default a 32-bit copy and Adam's two moments (arXiv:1910.02054, section
        3.1).
    assumed
        What the file did not say, in one sentence each.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    key_value_heads: int
    head_width: int
    feed_forward: int
    vocabulary: int
    gated: bool = False
    tied: bool = False
    dropout: bool = False
    positions: int = 0
    latent: Latent | None = None
    experts: Experts | None = None
    expert_layers: frozenset[int] = frozenset()
    prediction_layers: int = 0
    bytes_per_gradient: int = 4
    bytes_per_state: int = 12
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "key_value_heads", "head_width", "feed_forward", "vocabulary"):
            if getattr(self, name) < 1:
                raise UsageError(f"{self.name}: {name} must be at least 1, got {getattr(self, name)}")
        for kind, count in (("layers", self.layers), ("layers of multi-token prediction", self.prediction_layers)):
            if count > MOST_LAYERS:
                raise UsageError(f"{self.name}: at most {MOST_LAYERS} {kind}, got {count}")
        if self.heads % self.key_value_heads:
            raise UsageError(f"{self.name}: {self.key_value_heads} key-value heads do not divide {self.heads} heads")
        if self.expert_layers and self.experts is None:
            raise UsageError(f"{self.name}: layers with experts, but no experts")
        if any(not 0 <= layer < self.layers for layer in self.expert_layers):
            raise UsageError(f"{self.name}: experts in a layer that is not there")
        if self.experts is not None and not 1 <= self.experts.active <= self.experts.count:
            raise UsageError(f"{self.name}: a token cannot visit {self.experts.active} of {self.experts.count} experts")

    def alike(self, layer: int) -> int:
        """The first layer that has what this one has: experts, or a dense MLP."""
        if layer in self.expert_layers:
            return min(self.expert_layers)
        return next(first for first in range(layer + 1) if first not in self.expert_layers)
