"""Computing a grid's points on all cores, resumably."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace

from explorer.core.errors import UsageError
from explorer.sweep import search
from explorer.sweep.cluster import connected
from explorer.sweep.costs import costs_of
from explorer.sweep.grid import Grid
from explorer.sweep.point import Row, Task, address, compute
from explorer.sweep.store import SILENCE, Store

BATCH = 16
"""Points that go to a worker at once."""
WAIT = 0.2
"""Seconds between two looks at points that another sweep has claimed."""

Subjects = Mapping[str, tuple[str, Mapping[str, object]]]
"""For each schedule of a grid, as it is written there, its name and its options."""


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands: points in all, known before, and computed since, by it and by others on the same store."""

    total: int
    known: int
    computed: int
    elsewhere: int = 0

    @property
    def settled(self) -> int:
        """How many points have a result."""
        return self.known + self.computed + self.elsewhere


def sweep(
    grid: Grid,
    subjects: Subjects,
    store: Store,
    *,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Callable[[Progress], None] = lambda state: None,
) -> Progress:
    """Compute every point of a grid that the store does not have.

    Parameters
    ----------
    workers
        Processes; as many as there are cores by default. With 0 everything runs in this process.
    cluster
        Where to compute instead; see `explorer.sweep.cluster.connected`.

    Returns
    -------
    Progress
        How many points there are, and how many of them were known.

    Raises
    ------
    UsageError
        If the grid is too large, some costs are wrong in themselves, there are fewer than 0 workers, or the cluster
        cannot be used.
    """
    if workers is not None and workers < 0:
        raise UsageError(f"the number of workers cannot be negative, got {workers}")
    count = os.cpu_count() or 1 if workers is None else workers
    tasks = {task.key: task for task in _tasks(grid, subjects)}
    known = store.done(list(tasks))
    left = {key: task for key, task in tasks.items() if key not in known}
    state = Progress(len(tasks), len(known), 0)
    progress(state)
    engine = _processes(min(count, -(-len(left) // BATCH))) if cluster is None else connected(cluster)
    with engine as (executor, at_once):
        for here, elsewhere in _drive(left, store, executor, 2 * at_once):
            state = replace(state, computed=state.computed + here, elsewhere=state.elsewhere + elsewhere)
            progress(state)
    return state


def _tasks(grid: Grid, subjects: Subjects) -> Iterator[Task]:
    for point in grid.points():
        name, options = subjects[point.schedule]
        yield Task(address(point), point, name, options, costs_of(point.costs))


def _drive(left: dict[str, Task], store: Store, executor: Executor | None, in_flight: int) -> Iterator[tuple[int, int]]:
    """Claim, hand out and record until nothing is left; yields how many points were settled, here and elsewhere."""
    waiting = list(left)
    running: dict[Future[list[Row]], list[str]] = {}
    while waiting or running:
        others: list[str] = []
        while waiting and len(running) < max(in_flight, 1):
            size = _batch(waiting, left)
            wanted, waiting = waiting[:size], waiting[size:]
            taken = store.claim(wanted)
            others += [key for key in wanted if key not in set(taken)]
            if taken:
                batch = [left[key] for key in taken]
                running[_submit(executor, batch)] = taken
        if running:
            yield _collect(running, left, store), 0
        elif others:
            time.sleep(WAIT)
        done = store.done(others)
        if done:
            yield 0, len(done)
        waiting += [key for key in others if key not in done]


def _batch(waiting: Sequence[str], left: Mapping[str, Task]) -> int:
    """How many of the next points go together: a search goes alone."""
    searches = [left[key].name == search.NAME for key in waiting[:BATCH]]
    return max(1, searches.index(True)) if any(searches) else BATCH


def _collect(running: dict[Future[list[Row]], list[str]], left: dict[str, Task], store: Store) -> int:
    while not (finished := wait(running, timeout=SILENCE / 3, return_when=FIRST_COMPLETED).done):
        store.show_life()
    settled = 0
    for future in finished:
        keys = running.pop(future)
        store.record((key, left[key].point.axes, row) for key, row in zip(keys, future.result(), strict=True))
        settled += len(keys)
    return settled


def _submit(executor: Executor | None, batch: Sequence[Task]) -> Future[list[Row]]:
    if executor is not None:
        return executor.submit(_compute_all, batch)
    future: Future[list[Row]] = Future()
    future.set_result(_compute_all(batch))
    return future


def _compute_all(batch: Sequence[Task]) -> list[Row]:
    return [compute(task) for task in batch]


@contextmanager
def _processes(workers: int) -> Iterator[tuple[Executor | None, int]]:
    if workers <= 0:
        yield None, 1
        return
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        yield executor, workers
    finally:
        executor.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """A worker whose sweep is killed ends too."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
