"""A pipeline stage whose computing is real and whose times are set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.distributed.pipelining import PipelineStage

from explorer.core.op import Kind
from explorer.runtime.job import Job, OpKey

WIDTH = 8
ROWS = 2
"""Features, and rows of a microbatch; small, since it is the clock that is held against the prediction."""


class _SplitLinear(torch.autograd.Function):  # type: ignore[misc]
    """A linear map whose backward makes the input's gradient only, and keeps what the weights' gradient needs.

    An ordinary function would run its whole backward in I and again in W.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, kept: list[Any]) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.kept = kept
        return x @ weight.T + bias

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        ctx.kept.append((x.detach(), gradient.detach()))
        return (gradient @ weight if ctx.needs_input_grad[0] else None), None, None, None


class Block(torch.nn.Module):  # type: ignore[misc]
    """One stage's part of the model: tanh of a linear map, with weights that follow from the stage's number."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        dice = torch.Generator().manual_seed(stage)
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, WIDTH, generator=dice, dtype=torch.float64) / WIDTH**0.5)
        self.bias = torch.nn.Parameter(torch.randn(WIDTH, generator=dice, dtype=torch.float64))
        self.kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, width) to (rows, width)."""
        result: torch.Tensor = _SplitLinear.apply(x, self.weight, self.bias, self.kept)
        return torch.tanh(result)

    def whole(self, x: torch.Tensor) -> torch.Tensor:
        """The same, with PyTorch's own backward."""
        return torch.tanh(torch.nn.functional.linear(x, self.weight, self.bias))

    def weight_gradient(self) -> Callable[[], None]:
        """What completes the backward that has just run; for ``dw_builder``."""
        kept = list(self.kept)
        self.kept.clear()

        def run() -> None:
            for x, gradient in kept:
                _accumulate(self.weight, gradient.T @ x)
                _accumulate(self.bias, gradient.sum(0))

        return run


def _accumulate(parameter: torch.nn.Parameter, gradient: torch.Tensor) -> None:
    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


class Ran(NamedTuple):
    """When an op ran, on the clock that all processes of this machine share."""

    op: OpKey
    start: float
    end: float


class TimedStage(PipelineStage):  # type: ignore[misc]
    """PyTorch's stage; each op sleeps until its set time has passed, and is written down.

    Parameters
    ----------
    job
        Times, places and emulated latency.
    stage
        Its number.
    made
        (2, stages, microbatches) when each activation (0) and gradient (1) was made, shared by all processes.
    """

    def __init__(self, job: Job, stage: int, made: Any) -> None:
        self.block = Block(stage)
        super().__init__(
            self.block,
            stage,
            len(job.home),
            torch.device("cpu"),
            input_args=torch.zeros(ROWS, WIDTH, dtype=torch.float64, requires_grad=stage > 0),
            output_args=torch.zeros(ROWS, WIDTH, dtype=torch.float64, requires_grad=True),
            dw_builder=self.block.weight_gradient,
        )
        self.job, self.made = job, made
        self.measures = False
        self.ran: list[Ran] = []

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        """F."""
        self._deliver(0, self.stage_index - 1, fwd_chunk_id)
        with self._timed(Kind.F, fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, full_backward: bool = True, **kwargs: Any) -> None:
        """B or I."""
        self._deliver(1, self.stage_index + 1, bwd_chunk_id)
        with self._timed(Kind.B if full_backward else Kind.I, bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, *args, full_backward=full_backward, **kwargs)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        """W."""
        with self._timed(Kind.W, bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, *args, **kwargs)

    def _deliver(self, product: int, source: int, microbatch: int) -> None:
        """Wait until the emulated latency has passed since another device made what this op needs."""
        home = self.job.home
        if self.measures and 0 <= source < len(home) and home[source] != home[self.stage_index]:
            sleep_until(float(self.made[product, source, microbatch]) + self.job.latency)

    @contextmanager
    def _timed(self, kind: Kind, microbatch: int) -> Iterator[None]:
        key = (self.stage_index, kind, microbatch)
        start = time.monotonic()
        yield
        if not self.measures:
            return
        sleep_until(start + self.job.seconds[key])
        end = time.monotonic()
        self.ran.append(Ran(key, start, end))
        if kind != Kind.W:
            self.made[int(kind != Kind.F), self.stage_index, microbatch] = end


def sleep_until(moment: float) -> None:
    """Sleep, never short, until the shared clock shows ``moment``."""
    while (left := moment - time.monotonic()) > 0:
        time.sleep(left)
