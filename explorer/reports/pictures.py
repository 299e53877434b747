"""Pictures as files: what is drawn follows from the file's suffix."""

from __future__ import annotations

from pathlib import Path

from explorer.core.errors import UsageError
from explorer.evaluation.results import Evaluation
from explorer.reports.figures import plot
from explorer.reports.figures.drawing import drawing

SUFFIXES = plot.SUFFIXES


def require_suffix(path: Path) -> None:
    """Check that a picture can be written under this name, before anything is computed.

    Raises
    ------
    UsageError
        If its suffix is unknown, or matplotlib is needed and missing.
    """
    if path.suffix.lower() not in SUFFIXES:
        given = path.suffix or "files without suffix"
        raise UsageError(f"pictures are written to {', '.join(SUFFIXES)} files, not {given}: {path}")
    plot.require()


def timeline(path: Path, result: Evaluation) -> None:
    """Draw an evaluation's timeline to a file.

    Raises
    ------
    UsageError
        See `require_suffix`; also if the file cannot be written.
    """
    require_suffix(path)
    from explorer.reports.figures.timeline import timeline

    plot.save(path, lambda: timeline(drawing(result)))
