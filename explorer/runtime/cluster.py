"""The devices: one process each on this machine, started together, bounded in time, and never left behind."""

from __future__ import annotations

import importlib.util
import multiprocessing
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from explorer.core.errors import ExplorerError, UsageError
from explorer.runtime.job import Job

if TYPE_CHECKING:
    from explorer.runtime.worker import Record

MOST_DEVICES = 64
"""Processes that are started at most; each imports torch."""
PATIENCE = 1.0
"""Seconds in which all processes may end by themselves when told to."""
START_LIMIT = 120.0
"""Seconds in which all processes must have imported torch and found one another."""


class RunFailed(ExplorerError):
    """A run broke off or did not end in time; its processes have been ended."""

    exit_code = 1


def require_torch() -> None:
    """Check that PyTorch can be imported.

    Raises
    ------
    UsageError
        Saying how to install it.
    """
    if importlib.util.find_spec("torch") is None:
        raise UsageError("running schedules needs PyTorch: pip install 'pipeline-schedule-explorer[torch]'")


class Cluster:
    """Processes that wait for jobs; use it as a context, which ends them.

    Parameters
    ----------
    devices
        How many.
    timeout
        Seconds after which a process gives up waiting for another one, beyond what ops are set to take.
    """

    def __init__(self, devices: int, timeout: float = 30.0) -> None:
        require_torch()
        if devices > MOST_DEVICES:
            raise UsageError(f"a run starts a process for each device, {MOST_DEVICES} at most, not {devices}")
        self.devices, self.timeout = devices, timeout
        self._processes: list[Any] = []
        self._pipes: list[Connection] = []

    def __enter__(self) -> Cluster:
        self._folder = tempfile.TemporaryDirectory(prefix="explorer-run-", ignore_cleanup_errors=True)
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _start(self) -> None:
        context: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
        context.set_forkserver_preload(["explorer.runtime.worker"])  # torch is imported once, not by every process
        for rank in range(self.devices):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(rank, self.devices, self._folder.name, self.timeout, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._processes.append(process)
            self._pipes.append(ours)
        self._collect(START_LIMIT)

    def run(self, job: Job) -> list[Record]:
        """Run one warm-up step and one measured step.

        Returns
        -------
        list of Record
            One a device.

        Raises
        ------
        RunFailed
            If a process fails or the time is over; the cluster is then at an end.
        """
        if not self._processes:
            raise RunFailed("this cluster has ended")
        np.zeros((2, len(job.home), job.microbatches)).tofile(Path(self._folder.name) / "made")
        for pipe in self._pipes:
            pipe.send(job)
        longest = sum(job.seconds.values()) + 2 * job.latency * len(job.home) * job.microbatches
        return self._collect(longest + 2 * self.timeout)

    def _collect(self, limit: float) -> list[Any]:
        """One answer from each process; the first that fails ends all."""
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + limit
        while len(answers) < self.devices:
            open_pipes = [pipe for rank, pipe in enumerate(self._pipes) if rank not in answers]
            ready = wait(open_pipes, max(0.0, deadline - time.monotonic()))
            if not ready:
                late = sorted(set(range(self.devices)) - answers.keys())
                self._end()
                raise RunFailed(
                    f"device {', '.join(map(str, late))} did not answer within {limit:.0f} s; all processes were ended"
                )
            for pipe in ready:
                rank = self._pipes.index(pipe)  # type: ignore[arg-type]
                try:
                    answer = self._pipes[rank].recv()
                except EOFError:
                    answer = "its process ended"
                if isinstance(answer, str):
                    self._end()
                    raise RunFailed(f"device {rank}: {answer}; all processes were ended")
                answers[rank] = answer
        return [answers[rank] for rank in range(self.devices)]

    def _end(self) -> None:
        """Tell the processes to stop, and see to it that they do."""
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.send(None)
            pipe.close()
        deadline = time.monotonic() + PATIENCE
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        self._processes, self._pipes = [], []
        self._folder.cleanup()


def _serve(*arguments: Any) -> None:
    """Import torch in the child only."""
    from explorer.runtime.worker import serve

    serve(*arguments)
