"""`explorer sweep`: many problems, resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.options import Json, Output
from explorer.core.errors import UsageError

if TYPE_CHECKING:
    from explorer.sweep.grid import Grid
    from explorer.sweep.run import Progress, Subjects

GridFile = Annotated[str, typer.Argument(metavar="GRID.toml", help="The grid; see docs/sweeps.md.")]
StoreFile = Annotated[
    str | None, typer.Option("--store", help="Where results are kept (default: the grid's name, .sqlite).")
]
Cluster = Annotated[str | None, typer.Option("--cluster", help="Compute there: dask://HOST:PORT.", show_default=False)]
Workers = Annotated[int | None, typer.Option("--workers", help="Processes (default: one a core).", show_default=False)]


def sweep(
    grid: GridFile,
    store: StoreFile = None,
    workers: Workers = None,
    cluster: Cluster = None,
    output: Output = None,
    json: Json = False,
) -> None:
    """Evaluate every point of a grid; what the store has is not computed again. --output writes .csv or .parquet."""
    from explorer.cli import console
    from explorer.core.files import write_bytes, write_text
    from explorer.io import frame
    from explorer.sweep import frame as results
    from explorer.sweep import grid as grids
    from explorer.sweep.point import version
    from explorer.sweep.run import sweep as run
    from explorer.sweep.store import Store

    target = None if output is None else Path(output)
    if target is not None and target.suffix not in (".csv", ".parquet"):
        raise UsageError(f"--output must end in .csv or .parquet, got {output}")
    if target is not None and not target.resolve().parent.is_dir():
        raise UsageError(f"{target} cannot be written: there is no folder {target.parent}")
    read = grids.load(Path(grid))
    path = Path(store) if store is not None else Path(grid).with_suffix(".sqlite")
    with Store(path, version()) as opened, _bar() as advance:
        state = run(read, _subjects(read), opened, workers=workers, cluster=cluster, progress=advance)
    if target is not None:
        table = results.load(path)
        if target.suffix == ".csv":
            write_text(target, frame.csv(table))
        else:
            write_bytes(target, [frame.parquet(table)])
    if json:
        console.show_json(
            {
                "store": str(path),
                "points": state.total,
                "known": state.known,
                "computed": state.computed,
                "elsewhere": state.elsewhere,
            }
        )
    else:
        typer.echo(f"{state.total} points, {state.known} of them known before; results in {path}")


def _subjects(grid: Grid) -> Subjects:
    """What the schedules of a grid name; the first that is unknown is an error."""
    from explorer import api
    from explorer.cli.subjects import parse_subject, typed
    from explorer.sweep import search

    found: dict[str, tuple[str, dict[str, object]]] = {}
    for text in grid.schedules:
        name, options = parse_subject(text)
        if name == search.NAME:
            found[text] = (name, search.options(options))
            continue
        named = api.resolve(name)
        if named is None:
            raise UsageError(f"a sweep needs schedules that exist for many sizes, and {text} holds one")
        found[text] = (name, typed(named, options))
    return found


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    """A bar on stderr with rate and time left, where a person looks."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="")

        def advance(state: Progress) -> None:
            speed = bar.tasks[0].speed
            rate = f"{speed:.0f} points/s" if speed else ""
            bar.update(task, total=state.total, completed=state.settled, rate=rate)

        yield advance
