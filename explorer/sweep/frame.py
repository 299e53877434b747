"""A store's results as a table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from explorer.core.errors import UsageError
from explorer.sweep.point import version
from explorer.sweep.store import Store


def load(path: Path) -> pd.DataFrame:
    """All results of a store, one row a point: its axes, then what `explorer.sweep.point.compute` found there.

    Raises
    ------
    UsageError
        If there is no such store, it is empty or cannot be read, or another version wrote it.
    Malformed
        If it is none, or is damaged.
    """
    with Store(path, version(), create=False) as store:
        table = pd.DataFrame([{**point, **row} for point, row in store.rows()])
    if table.empty:
        raise UsageError(f"the store {path} holds no result yet")
    axes = [name for name in ("schedule", "devices", "microbatches") if name in table.columns]
    return table[[*axes, *(name for name in table.columns if name not in axes)]].sort_values(
        axes, kind="stable", ignore_index=True
    )
