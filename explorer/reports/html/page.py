"""A page: template, style, script and the timelines' data in one file."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from explorer.core.op import KINDS
from explorer.evaluation.metrics import Part
from explorer.reports.figures import palette
from explorer.reports.figures.drawing import Drawing
from explorer.reports.numbers import scale

VIEWER = """<main id="viewer">
<noscript>The timelines are drawn by a script, which this browser does not run.</noscript>
</main>"""
"""Where the script puts the timelines; once a page."""
SCRIPTS = ("timeline.js", "panel.js", "viewer.js")
_TYPES = {"u1": np.uint8, "i4": np.int32, "f8": np.float64}


def page(title: str, body: str, drawings: Sequence[Drawing], *, focus: bool = False) -> Iterator[str]:
    """The parts of an HTML file.

    Parameters
    ----------
    title
        Of the window.
    body
        HTML; holds `VIEWER` once where there are drawings.
    drawings
        Timelines, one above the other on one time axis, in units of the longest.
    focus
        Whether the first timeline takes the keyboard and the mouse wheel at once.
    """
    given = {
        "TITLE": escape(title),
        "STYLE": _resource("style.css"),
        "BODY": body,
        "DATA": json.dumps(_data(drawings, focus)).replace("<", "\\u003c"),
        "SCRIPT": "\n".join(map(_resource, SCRIPTS)) if drawings else "",
    }
    text, *rest = _resource("page.html").split("%")
    yield text
    for place, part in enumerate(rest):
        yield part if place % 2 else given[part]


def viewer(title: str, drawings: Sequence[Drawing]) -> Iterator[str]:
    """A page that shows timelines and nothing else."""
    return page(title, f"<h1>{escape(title)}</h1>\n{VIEWER}", drawings, focus=True)


def _resource(name: str) -> str:
    return files("explorer.reports.html").joinpath(name).read_text("utf-8")


def _data(drawings: Sequence[Drawing], focus: bool) -> dict[str, Any]:
    kinds = {kind for drawn in drawings for kind in np.unique(drawn.schedule.kind).tolist()}
    whole = [drawn.problem.time.value(drawn.timeline.makespan) for drawn in drawings]
    units = [scale(max(whole), drawn.problem.time.unit) for drawn in drawings]
    return {
        "focus": focus,
        "unit": units[0][1] if units else "",
        "palette": {
            "kinds": [
                {"letter": k.name, "name": palette.NAMES[k], "colour": palette.COLOURS[k], "used": k in kinds}
                for k in KINDS
            ],
            "idle": palette.IDLE_COLOUR,
            "wait": palette.WAIT_COLOUR,
            "transfer": palette.TRANSFER_COLOUR,
            "sync": palette.SYNC_COLOUR,
            "update": palette.STEP_COLOUR,
            "memory": palette.MEMORY_COLOUR,
            "limit": palette.LIMIT_COLOUR,
            "over": palette.OVER_COLOUR,
            "sends": any(len(drawn.sends.start) for drawn in drawings),
            "limited": any(drawn.memory.limit is not None for drawn in drawings),
            "synchronises": any(len(drawn.synced) for drawn in drawings),
            "updates": any(len(drawn.updates.start) for drawn in drawings),
        },
        "timelines": [
            _timeline(drawn, float(drawn.problem.time.tick / factor))
            for drawn, (factor, _) in zip(drawings, units, strict=True)
        ],
    }


def _timeline(drawn: Drawing, per_tick: float) -> dict[str, Any]:
    """One timeline: what it is called, and its columns behind each other, each padded to 8 bytes."""
    header, blob = [], bytearray()
    for name, (kind, values) in _columns(drawn).items():
        column = np.ascontiguousarray(values, np.dtype(_TYPES[kind]).newbyteorder("<"))
        header.append([name, kind, len(column)])
        blob += column.tobytes()
        blob += bytes(-len(blob) % 8)
    return {
        "title": drawn.title,
        "caption": drawn.caption,
        "makespan": drawn.timeline.makespan,
        "perTick": per_tick,
        "inBytes": drawn.memory.in_bytes,
        "columns": header,
        "packed": base64.b64encode(gzip.compress(bytes(blob), 6, mtime=0)).decode(),
    }


def _columns(drawn: Drawing) -> dict[str, tuple[str, NDArray[Any]]]:
    """By the names that the script uses; ticks as 64-bit floats, which hold them exactly."""
    schedule, ran, memory, crossings = drawn.schedule, drawn.timeline, drawn.memory, drawn.crossings
    parts = list(Part)
    return {
        "offsets": ("i4", schedule.offsets),
        "stage": ("i4", schedule.stage),
        "kind": ("u1", schedule.kind),
        "microbatch": ("i4", schedule.microbatch),
        "chunk": ("i4", schedule.chunk),
        "chunkRank": ("i4", drawn.chunk_rank),
        "part": ("u1", drawn.part),
        "start": ("f8", ran.start),
        "end": ("f8", ran.end),
        "free": ("f8", ran.free),
        "sent": ("f8", ran.sent),
        "arrival": ("f8", ran.arrival),
        "source": ("i4", drawn.source),
        "during": ("f8", memory.during),
        "held": ("f8", memory.after),
        "base": ("f8", memory.base),
        "limit": ("f8", np.empty(0) if memory.limit is None else memory.limit),
        "crossSource": ("i4", crossings.source),
        "crossTarget": ("i4", crossings.target),
        **{
            f"{name}{field.capitalize()}": ("i4" if field == "device" else "f8", getattr(spans, field))
            for name, spans in (
                ("wait", drawn.waits),
                ("send", drawn.sends),
                ("sync", drawn.syncs),
                ("update", drawn.updates),
            )
            for field in ("device", "start", "end")
        },
        "pathPart": ("u1", np.array([parts.index(step.part) for step in drawn.path])),
        "pathRow": ("i4", np.array([step.row for step in drawn.path])),
        "pathStart": ("f8", np.array([step.start for step in drawn.path])),
        "pathEnd": ("f8", np.array([step.end for step in drawn.path])),
    }
