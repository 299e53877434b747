"""Models: a stack of equal transformer blocks."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.core.errors import UsageError


@dataclass(frozen=True)
class Model:
    """A transformer: equal blocks between an embedding and a vocabulary head.

    Parameters
    ----------
    description
        One line.
    blocks
        How many there are.
    hidden, heads, sequence
        Width, attention heads and tokens a sequence.
    feed_forward
        Inner width of the MLP.
    gated
        Whether the MLP has a gate (three matrices instead of two).
    vocabulary
        Rows of the embedding and of the head, each with weights of its own; 0 where not given.
    key_value_width
        Width of keys and of values; ``hidden`` unless heads share them.
    global_batch
        Sequences a training step.
    flash_attention
        Whether attention scores are recomputed in the backward rather than held.
    bytes_per_element
        Of weights and activations.
    bytes_per_gradient
        Of a gradient, as it is held and all-reduced.
    bytes_per_parameter
        Weight, gradient and optimiser state together.

    Raises
    ------
    UsageError
        If a size is not positive.
    """

    description: str
    blocks: int
    hidden: int
    heads: int
    sequence: int
    feed_forward: int
    global_batch: int
    gated: bool = False
    vocabulary: int = 0
    key_value_width: int = 0
    flash_attention: bool = True
    bytes_per_element: int = 2
    bytes_per_gradient: int = 4
    bytes_per_parameter: int = 18

    def __post_init__(self) -> None:
        for name in (
            "blocks", "hidden", "heads", "sequence", "feed_forward", "global_batch", "bytes_per_element",
            "bytes_per_gradient", "bytes_per_parameter",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.vocabulary < 0:
            raise UsageError(f"vocabulary cannot be negative, got {self.vocabulary}")
        if not 0 <= self.key_value_width <= self.hidden:
            raise UsageError(
                f"key_value_width must be between 0 (as hidden) and {self.hidden}, got {self.key_value_width}"
            )
