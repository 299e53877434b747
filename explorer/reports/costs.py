"""What the stages of a pipeline cost, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from explorer.core.op import Kind
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from explorer.core.units import as_number
from explorer.costs.explain import Line
from explorer.costs.training import Piece
from explorer.reports import numbers
from explorer.reports.tables import cautions

_KINDS = (Kind.F, Kind.I, Kind.W, Kind.B)


def holds(piece: Piece) -> str:
    """What a stage holds, in words."""
    layers = piece.layers
    parts = ["embedding"] * piece.embedding
    if len(layers) == 1:
        parts.append(f"layer {layers[0]}")
    elif layers:
        parts.append(f"layers {layers[0]}-{layers[-1]}")
    parts += [f"{piece.prediction} prediction"] * bool(piece.prediction) + ["head"] * piece.head
    return ", ".join(parts)


def table(problem: Problem, placement: Placement, pieces: Sequence[Piece] | None) -> RenderableType:
    """A row for every stage: times of its ops, activation of a microbatch, static memory."""
    shown = Table(title=f"{problem.title}: stages", title_justify="left")
    for column in (
        "stage",
        "devices",
        *(["holds"] if pieces else []),
        *(kind.name for kind in _KINDS),
        "activation",
        "static",
    ):
        shown.add_column(column, justify="left" if column in ("devices", "holds") else "right")
    time = problem.time
    for chunk, row in enumerate(_rows(problem, placement)):
        shown.add_row(
            str(chunk),
            ", ".join(map(str, row["devices"])),
            *([holds(pieces[chunk])] if pieces else []),
            *(numbers.time(time.value(int(problem.durations[0, chunk, kind])), time.unit) for kind in _KINDS),
            numbers.size(row["activation"]),
            numbers.size(row["static"]),
        )
    sent = ", ".join(
        f"{name} {numbers.time(time.value(int(hold + late)), time.unit)}"
        for name, hold, late in zip(
            problem.network.names, problem.network.occupancy[0, 0], problem.network.latency, strict=True
        )
    )
    foot = Text(f"a message takes, by kind of link: {sent}", "dim")
    return Group(shown, foot, *cautions(problem.notes))


def contract(problem: Problem, placement: Placement, pieces: Sequence[Piece] | None) -> dict[str, Any]:
    """The same for programs: times in the problem's unit, sizes in bytes."""
    rows = _rows(problem, placement)
    for chunk, piece in enumerate(pieces or ()):
        rows[chunk]["holds"] = {
            "first_layer": piece.layers.start,
            "layers": len(piece.layers),
            "embedding": piece.embedding,
            "head": piece.head,
            "prediction": piece.prediction,
        }
    return {"title": problem.title, "stages": rows, "time_unit": problem.time.unit, "notes": list(problem.notes)}


def _rows(problem: Problem, placement: Placement) -> list[dict[str, Any]]:
    stash = problem.bytes
    return [
        {
            "stage": chunk,
            "devices": list(placement.hosts[chunk]),
            **{kind.name: as_number(problem.time.value(int(problem.durations[0, chunk, kind]))) for kind in _KINDS},
            "activation": None if stash is None else int(stash.held[0, chunk]),
            "static": None if stash is None else int(stash.static[chunk]),
        }
        for chunk in range(placement.chunks)
    ]


def explanation(lines: Sequence[Line], title: str) -> Table:
    """Where each number comes from."""
    shown = Table(title=title, title_justify="left")
    for column in ("part", "what", "how", "value", "source"):
        shown.add_column(column, overflow="fold", justify="right" if column == "value" else "left")
    for line in lines:
        shown.add_row(line.part, line.what, line.formula, f"{numbers.plain(line.value, 4)} {line.unit}", line.source)
    return shown
