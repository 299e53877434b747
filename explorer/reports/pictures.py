"""Pictures as files: what is drawn follows from the file's suffix."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from explorer.core.errors import Inapplicable, UsageError
from explorer.core.files import write_text
from explorer.evaluation.results import Comparison, Evaluation
from explorer.reports import slots
from explorer.reports.figures import plot
from explorer.reports.figures.drawing import drawing
from explorer.reports.html import comparison as html_comparison
from explorer.reports.html import page

if TYPE_CHECKING:
    from explorer.reports.figures.winners import Grid
    from solvers.pareto import Frontier

FIGURE_SUFFIXES = plot.SUFFIXES
SUFFIXES = (*FIGURE_SUFFIXES, ".html")
TABLE_SUFFIXES = (".txt", ".md", ".tex", *FIGURE_SUFFIXES)


def require_suffix(path: Path, known: Sequence[str] = SUFFIXES) -> None:
    """Check that a picture can be written under this name, before anything is computed.

    Raises
    ------
    UsageError
        If its suffix is unknown, or matplotlib is needed and missing.
    """
    if path.suffix.lower() not in known:
        given = path.suffix or "files without suffix"
        raise UsageError(f"this is written to {', '.join(known)} files, not {given}: {path}")
    if path.suffix.lower() in FIGURE_SUFFIXES:
        plot.require()


def table(path: Path, result: Evaluation) -> None:
    """Write the idealised table of a schedule to a file.

    Raises
    ------
    Inapplicable
        If it has too many slots.
    UsageError
        See `require_suffix`; also if the file cannot be written.
    """
    require_suffix(path, TABLE_SUFFIXES)
    made = slots.slot_table(result)
    match path.suffix.lower():
        case ".txt":
            write_text(path, slots.text(made))
        case ".md":
            write_text(path, slots.markdown(made))
        case ".tex":
            write_text(path, slots.latex(made))
        case _:
            from explorer.reports.figures.slots import slots as draw

            plot.save(path, lambda: draw(made))


def timeline(path: Path, result: Evaluation) -> None:
    """Draw an evaluation's timeline to a file.

    Raises
    ------
    UsageError
        See `require_suffix`; also if the file cannot be written.
    """
    require_suffix(path)
    drawn = drawing(result)
    if path.suffix.lower() == ".html":
        write_text(path, page.viewer(drawn.title, [drawn]))
    else:
        from explorer.reports.figures.timeline import timeline

        plot.save(path, lambda: timeline(drawn))


def comparison(path: Path, result: Comparison) -> None:
    """Draw a comparison to a file: where each makespan goes and peaks of memory; timelines too in HTML.

    Raises
    ------
    Inapplicable
        If no schedule flushes: makespans of the others do not compare.
    UsageError
        See `require_suffix`; also if the file cannot be written.
    """
    require_suffix(path)
    if not result.rows:
        raise Inapplicable("a comparison is drawn by makespan, and none of these schedules flushes")
    if path.suffix.lower() == ".html":
        write_text(path, html_comparison.comparison(result))
    else:
        from explorer.reports.figures.comparison import comparison

        plot.save(path, lambda: comparison(result))


def frontier(path: Path, result: Frontier) -> None:
    """Draw makespan against memory to a file.

    Raises
    ------
    UsageError
        If the suffix is unknown, matplotlib is missing or the file cannot be written.
    """
    require_suffix(path, FIGURE_SUFFIXES)
    from explorer.reports.figures.frontier import curve, frontier

    plot.save(path, lambda: frontier(curve(result)))


def winners(path: Path, grid: Grid) -> None:
    """Draw a map of winners to a file.

    Raises
    ------
    UsageError
        If the suffix is unknown, matplotlib is missing or the file cannot be written.
    """
    require_suffix(path, FIGURE_SUFFIXES)
    from explorer.reports.figures.winners import winners

    plot.save(path, lambda: winners(grid))
