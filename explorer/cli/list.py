"""`explorer list`: what there is."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from explorer.cli.options import Json
from explorer.core.errors import UsageError, nearest

What = Annotated[
    str | None, typer.Argument(metavar="[schedules|systems|models|formats]", help="All of them if left out.")
]


def list_(what: What = None, json: Json = False) -> None:
    """List the schedules, systems, models and formats that are known by name."""
    from explorer.cli import console
    from explorer.reports import tables

    known = {"schedules": _schedules, "systems": _systems, "models": _models, "formats": _formats}
    if what is not None and what not in known:
        raise UsageError(f"nothing is listed under {what!r}; {nearest(what, known)}")
    found = {name: rows() for name, rows in known.items() if what in (None, name)}
    if json:
        console.show_json(found)
        return
    for name, rows in found.items():
        console.show(tables.listing(name, rows))


def _schedules() -> list[dict[str, Any]]:
    from explorer import api

    return [
        {"name": s.name, "options": dict(s.options), "summary": s.summary, "source": s.source}
        for s in sorted(api.known(), key=lambda s: s.name)
    ]


def _systems() -> list[dict[str, Any]]:
    from explorer.config import catalogue

    return [{"name": n, "summary": catalogue.described("systems", n)} for n in catalogue.names("systems")]


def _models() -> list[dict[str, Any]]:
    from explorer.config import catalogue

    return [{"name": n, "summary": catalogue.described("models", n)} for n in catalogue.names("models")]


def _formats() -> list[dict[str, Any]]:
    from explorer.io.formats import FORMATS

    return [{"name": name, "suffix": form.suffix, "summary": form.summary} for name, form in FORMATS.items()]
