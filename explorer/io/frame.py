"""A timeline as a plain table: pandas, CSV or Parquet."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from io import BytesIO
from itertools import islice

import numpy as np
import pandas as pd

from explorer.core.errors import UsageError
from explorer.core.op import KINDS
from explorer.core.problem import Problem
from explorer.core.timeline import Timeline

_TIMES = ("start", "end", "free", "sent", "released", "arrival")
_ROWS_AT_ONCE = 50_000


def frame(timeline: Timeline, problem: Problem) -> pd.DataFrame:
    """One row an op, device by device in order.

    Returns
    -------
    DataFrame
        ``device``, ``position`` (in the device's order), ``op``, ``stage``, ``kind``, ``microbatch``, ``chunk``,
        ``overlaps_with_previous``, and times as 64-bit floats in the problem's unit: ``start``, ``end``, ``free`` (when
        the device may go on), ``sent``, ``released``, ``arrival`` (of the transfer that it causes; missing where none).
    """
    schedule = timeline.schedule
    letters = np.array([kind.name for kind in KINDS])[schedule.kind]
    ops = [
        f"{stage}{letter}{microbatch}"
        for stage, letter, microbatch in zip(
            schedule.stage.tolist(), letters.tolist(), schedule.microbatch.tolist(), strict=True
        )
    ]
    tick = problem.time.tick
    transfers = timeline.sent >= 0
    times = {
        name: np.where(transfers | (index < 3), getattr(timeline, name) * tick.numerator / tick.denominator, np.nan)
        for index, name in enumerate(_TIMES)
    }
    return pd.DataFrame(
        {
            "device": schedule.device,
            "position": np.arange(len(schedule)) - schedule.offsets[schedule.device],
            "op": ops,
            "stage": schedule.stage,
            "kind": letters,
            "microbatch": schedule.microbatch,
            "chunk": schedule.chunk,
            "overlaps_with_previous": schedule.joined,
            **times,
        }
    )


def csv(table: pd.DataFrame) -> Iterator[str]:
    """A table's lines as CSV, in large parts."""
    starts = iter(range(0, len(table), _ROWS_AT_ONCE))
    for start in islice(starts, 1):
        yield table.iloc[start : start + _ROWS_AT_ONCE].to_csv(index=False)
    for start in starts:
        yield table.iloc[start : start + _ROWS_AT_ONCE].to_csv(index=False, header=False)


def parquet(table: pd.DataFrame) -> bytes:
    """A table as a Parquet file.

    Raises
    ------
    UsageError
        If pyarrow is not there to write it.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError("writing Parquet needs pyarrow: pip install 'pipeline-schedule-explorer[parquet]'")
    buffer = BytesIO()
    table.to_parquet(buffer, engine="pyarrow", index=False)
    return buffer.getvalue()
