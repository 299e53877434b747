"""How a model is trained: batch, parallel degrees, what is recomputed and what is sharded."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.core.errors import UsageError

RECOMPUTE = ("none", "selective", "full")
"""Nothing; the attention scores (arXiv:2205.05198, section 5); whole layers from their inputs."""


@dataclass(frozen=True)
class Training:
    """One iteration's work and how it is spread.

    Parameters
    ----------
    sequence
        Tokens a sequence.
    microbatch
        Sequences a microbatch (of one data-parallel copy).
    global_batch
        Sequences an iteration, over all copies; None for as many as the microbatches make.
    tensor, context, expert, data
        Degrees of parallelism besides the pipeline's. Experts are spread over groups of ``expert`` devices taken from
        ``data`` x ``context``, which it must divide.
    sequence_parallel
        Whether what tensor parallelism repeats is split along the sequence (arXiv:2205.05198, section 4.2.2).
    recompute
        One of `RECOMPUTE`.
    flash_attention
        Whether scores are never held.
    distributed_optimizer
        Whether optimiser state is spread over the data-parallel copies (ZeRO 1).
    sharded_parameters
        Whether weights and gradients are too (FSDP, ZeRO 3).
    """

    sequence: int
    microbatch: int = 1
    global_batch: int | None = None
    tensor: int = 1
    context: int = 1
    expert: int = 1
    data: int = 1
    sequence_parallel: bool = False
    recompute: str = "none"
    flash_attention: bool = True
    distributed_optimizer: bool = False
    sharded_parameters: bool = False

    def __post_init__(self) -> None:
        for name in ("sequence", "microbatch", "tensor", "context", "expert", "data"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.global_batch is not None and self.global_batch < 1:
            raise UsageError(f"the global batch must be at least 1, got {self.global_batch}")
        if self.recompute not in RECOMPUTE:
            raise UsageError(f"recompute must be one of {', '.join(RECOMPUTE)}, got {self.recompute!r}")
        if self.data * self.context % self.expert:
            raise UsageError(
                f"expert-parallel groups of {self.expert} do not divide data x context = {self.data * self.context}"
            )


@dataclass(frozen=True)
class Piece:
    """What one chunk of the pipeline holds, in order of the model.

    Parameters
    ----------
    layers
        The transformer layers, from 0.
    embedding, head
        Whether it holds them.
    prediction
        Layers of multi-token prediction.
    """

    layers: range
    embedding: bool = False
    head: bool = False
    prediction: int = 0
