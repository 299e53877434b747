"""matplotlib, loaded only when a figure is drawn, and figures as files."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from explorer.core.errors import UsageError
from explorer.core.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".pdf", ".png")
WIDTH = 7.2
"""Inches: two columns of a paper."""
DPI = 200
STYLE = {
    "font.family": "sans-serif",
    "font.size": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.4,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "explorer",  # the same figure is the same file
    "pdf.fonttype": 42,
}


def require() -> None:
    """Check that matplotlib is there.

    Raises
    ------
    UsageError
        If it is not; the message says how to install it.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("drawing figures needs matplotlib: pip install 'pipeline-schedule-explorer[plot]'")


def figure(height: float) -> Figure:
    """An empty figure of the common width; call it inside `styled`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    empty = Figure(figsize=(WIDTH, height), dpi=DPI)
    FigureCanvasAgg(empty)
    return empty


def save(path: Path, draw: Callable[[], Figure]) -> None:
    """Draw a figure and write it in the format of the file's suffix, one of `SUFFIXES`.

    Raises
    ------
    UsageError
        If matplotlib is missing or the file cannot be written.
    """
    write_bytes(path, [rendered(path.suffix.lower(), draw)])


def rendered(suffix: str, draw: Callable[[], Figure]) -> bytes:
    """A figure in the common style, as a file in the format of one of `SUFFIXES` holds it.

    Raises
    ------
    UsageError
        If matplotlib is missing.
    """
    require()
    import matplotlib as mpl

    buffer = BytesIO()
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}[suffix]
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]
        draw().savefig(buffer, format=suffix[1:], metadata=undated)
    return buffer.getvalue()
