"""Engines that compute a sweep's points on other machines, each as a standard executor."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from explorer.core.errors import UsageError
from explorer.sweep.point import version

PATIENCE = 10
"""Seconds for which to try to reach a scheduler."""


@contextmanager
def connected(address: str) -> Iterator[tuple[Executor, int]]:
    """Reach a cluster.

    Parameters
    ----------
    address
        ``dask://HOST:PORT`` of a scheduler of Dask distributed, whose workers have this program installed.

    Yields
    ------
    executor, threads
        Where tasks are handed in, and how many are computed at once. A task whose worker dies is given to another.

    Raises
    ------
    UsageError
        If the address is none, Dask is missing, the scheduler does not answer, or workers are missing or run another
        version.
    """
    scheme, _, rest = address.partition("://")
    if scheme != "dask" or not rest.rpartition(":")[2].isdigit():
        raise UsageError(f"a cluster is given as dask://HOST:PORT, got {address!r}")
    if importlib.util.find_spec("distributed") is None:
        raise UsageError("clusters need Dask distributed: pip install 'pipeline-schedule-explorer[dask]'")
    from distributed import Client

    try:
        client: Any = Client(f"tcp://{rest}", timeout=PATIENCE)
    except (OSError, ValueError) as error:  # a time-out is an OSError
        raise UsageError(f"no scheduler answers at {address}: {error}") from None
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise UsageError(f"the scheduler at {address} has no workers; start some")
        for worker, theirs in client.run(version).items():
            if theirs != version():
                raise UsageError(f"the worker {worker} runs version {theirs}, this is {version()}; install the same")
        yield client.get_executor(pure=False), threads
