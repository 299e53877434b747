"""The formats that schedules and their timelines are written in, by name. Adding one is a function and a line here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from explorer.core.errors import Inapplicable, UsageError, nearest
from explorer.evaluation.results import Evaluation
from explorer.io import frame, megatron, native, pytorch, trace


@dataclass(frozen=True)
class Written:
    """A schedule in a format: its text in parts (or bytes as a whole), and what a person must know."""

    parts: Iterable[str] | bytes
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """A format.

    Parameters
    ----------
    summary
        One line.
    suffix
        What files in this format end in; of formats with the same suffix the first is meant by a file's name.
    write
        From a result to what is written.
    """

    summary: str
    suffix: str
    write: Callable[[Evaluation], Written]


def _native(result: Evaluation) -> Written:
    return Written([json.dumps(native.encode(result.schedule)) + "\n"])


def _for_pytorch(result: Evaluation) -> pytorch.Prepared:
    require_synchronous(result)
    return pytorch.prepare(result.schedule)


def require_synchronous(result: Evaluation) -> None:
    """Check that weights are updated once, after all microbatches, as runtimes do.

    Raises
    ------
    Inapplicable
        If the schedule is an asynchronous one.
    """
    if result.asynchrony is not None:
        raise Inapplicable(
            f"{result.name} updates weights between microbatches, and this runtime only after all of them"
        )


def _compute_only(result: Evaluation) -> Written:
    prepared = _for_pytorch(result)
    return Written(pytorch.compute_only(prepared.schedule), prepared.notes)


def _with_communication(result: Evaluation) -> Written:
    prepared = _for_pytorch(result)
    return Written(pytorch.with_communication(prepared.schedule), prepared.notes)


def _trace(result: Evaluation) -> Written:
    return Written(trace.write(result.timeline, result.problem))


def _timeline_csv(result: Evaluation) -> Written:
    return Written(frame.csv(frame.frame(result.timeline, result.problem)))


def _timeline_parquet(result: Evaluation) -> Written:
    return Written(frame.parquet(frame.frame(result.timeline, result.problem)))


def _megatron(result: Evaluation) -> Written:
    require_synchronous(result)
    return Written(megatron.options(result.schedule))


FORMATS = {
    "json": Format("the project's own: versioned, without loss; read and written", ".json", _native),
    "csv": Format(
        "ops alone, one line a device, for torch.distributed.pipelining and torchtitan; read and written",
        ".csv",
        _compute_only,
    ),
    "csv-comms": Format(
        "the same with sends, receives and gradient reduction; read and written", ".comms.csv", _with_communication
    ),
    "trace": Format("the timeline as a Chrome trace, for Perfetto", ".trace.json", _trace),
    "timeline-csv": Format("the timeline as a table, one row an op", ".timeline.csv", _timeline_csv),
    "timeline-parquet": Format("the same as Parquet; needs the extra parquet", ".parquet", _timeline_parquet),
    "megatron": Format("the options with which Megatron-Core runs the schedule", ".megatron.txt", _megatron),
}


def find(name: str | None, path: Path | None) -> Format:
    """The format of that name, or else the one that a file's name ends in; JSON where neither is given.

    Raises
    ------
    UsageError
        If there is none; the message says which are known.
    """
    if name is not None:
        if name.lower() not in FORMATS:
            raise UsageError(f"no format is called {name!r}; {nearest(name, FORMATS)}")
        return FORMATS[name.lower()]
    if path is None:
        return FORMATS["json"]
    endings = [form for form in FORMATS.values() if path.name.lower().endswith(form.suffix)]
    if not endings:
        known = ", ".join(form.suffix for form in FORMATS.values())
        raise UsageError(f"{path} ends in no format's suffix ({known}); give --format")
    return max(endings, key=lambda form: len(form.suffix))
