"""One device: a process that runs its part of schedules through PyTorch's runtime."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from explorer.runtime.job import Job
from explorer.runtime.stage import ROWS, WIDTH, Block, Ran, TimedStage, sleep_until


@dataclass(frozen=True)
class Record:
    """What one device did in the measured step.

    Parameters
    ----------
    ran
        Its ops in the order in which they ran.
    gradient_error, loss_error
        The largest difference from the unsplit model, relative to its largest gradient or loss.
    """

    ran: tuple[Ran, ...]
    gradient_error: float
    loss_error: float


def serve(rank: int, devices: int, folder: str, timeout: float, parent: Connection) -> None:
    """Join the process group, then run jobs as they come, until told to stop or the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent cleans up
    log = os.open(Path(folder) / f"rank{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/rendezvous",
            rank=rank,
            world_size=devices,
            timeout=timedelta(seconds=timeout),
        )
        parent.send(None)
        while (job := parent.recv()) is not None:
            parent.send(_run(rank, job, Path(folder)))
    except EOFError:
        return
    except Exception as error:
        parent.send(f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")


def _run(rank: int, job: Job, folder: Path) -> Record:
    path = folder / f"schedule{rank}.csv"
    path.write_text(job.text)
    made = np.memmap(folder / "made", np.float64, "r+", shape=(2, len(job.home), job.microbatches))
    stages = [TimedStage(job, stage, made) for stage, home in enumerate(job.home) if home == rank]
    runtime = _PipelineScheduleRuntime(stages, job.microbatches, loss_fn=torch.nn.functional.mse_loss, scale_grads=True)
    runtime._load_csv(str(path), format="compute_comms" if job.talks else "compute_only")
    inputs, targets = _data(job.microbatches)
    given = (inputs,) if job.home[0] == rank else ()
    wanted = {"target": targets} if job.home[-1] == rank else {}
    losses: list[torch.Tensor] = []
    for measures in (False, True):  # the first step sets up buffers and connections
        for stage in stages:
            stage.measures = measures
            stage.block.zero_grad()
        _start_together(rank)
        with _profiled(rank, job.profile if measures else ""):
            runtime.step(*given, losses=losses, return_outputs=False, **wanted)
    ran = sorted((entry for stage in stages for entry in stage.ran), key=lambda entry: entry.start)
    return Record(tuple(ran), *_errors(job, stages, losses, inputs, targets))


@contextmanager
def _profiled(rank: int, folder: str) -> Iterator[None]:
    """Have PyTorch's profiler write what happens to a file of this rank's, if there is a folder for it."""
    if not folder:
        yield
        return
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        yield
    profiler.export_chrome_trace(str(Path(folder) / f"rank{rank}.json.gz"))


def _data(microbatches: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, different for every microbatch; the same in every process."""
    dice = torch.Generator().manual_seed(10**6)
    shape = (ROWS * microbatches, WIDTH)
    return (
        torch.randn(shape, generator=dice, dtype=torch.float64),
        torch.randn(shape, generator=dice, dtype=torch.float64),
    )


def _start_together(rank: int) -> None:
    dist.barrier()
    moment = torch.tensor([time.monotonic() + 0.02], dtype=torch.float64)
    dist.broadcast(moment, src=0)
    sleep_until(float(moment))


def _errors(
    job: Job, stages: list[TimedStage], losses: list[torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor
) -> tuple[float, float]:
    """How far gradients and losses are from those of the unsplit model, by PyTorch's own backward, on the same data."""
    blocks = [Block(stage) for stage in range(len(job.home))]
    x = inputs
    for block in blocks:
        x = block.whole(x)
    torch.nn.functional.mse_loss(x, targets).backward()
    worst = 0.0
    for stage in stages:
        for ours, true in zip(stage.block.parameters(), blocks[stage.stage_index].parameters(), strict=True):
            worst = _larger(worst, _difference(ours.grad, true.grad))
    if not losses:
        return worst, 0.0
    parts = zip(x.detach().chunk(job.microbatches), targets.chunk(job.microbatches), strict=True)
    true_losses = torch.stack([torch.nn.functional.mse_loss(*part) for part in parts])
    return worst, _difference(torch.stack(losses).detach(), true_losses)


def _difference(ours: Any, true: Any) -> float:
    """The largest relative difference; infinite where there is no number to compare."""
    if ours is None:
        return math.inf
    apart, size = float((ours - true).abs().max()), float(true.abs().max())
    if math.isnan(apart) or math.isnan(size):
        return math.inf
    return apart / size if size else (0.0 if apart == 0 else math.inf)


def _larger(one: float, other: float) -> float:
    """The larger; infinite if either is no number, which ``max`` would pass over."""
    return math.inf if math.isnan(one) or math.isnan(other) else max(one, other)
