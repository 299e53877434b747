"""Pieces that static figures share: boxes in rows, tints, the width of text."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from explorer.core.op import Kind
from explorer.reports.figures import palette
from explorer.reports.figures.drawing import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FONT = "DejaVu Sans"
"""matplotlib brings it along, so that what is measured is what is drawn."""


def corners(device: Any, start: Any, end: Any, top: Any, bottom: Any) -> FloatArray:
    """(n, 4, 2) corners of boxes in rows; ``top`` and ``bottom`` from 0 to 1 within a row."""
    device, start, end = (np.asarray(values, np.float64) for values in (device, start, end))
    low, high = device + top, device + bottom
    return np.stack(
        [np.stack(corner, 1) for corner in ((start, low), (end, low), (end, high), (start, high))], 1
    )  # fmt: skip


def add_boxes(axes: Axes, boxes: FloatArray, **style: Any) -> None:
    """Draw boxes, as `corners` gives them, in a style of matplotlib's ``PolyCollection``."""
    from matplotlib.collections import PolyCollection

    if len(boxes):
        axes.add_collection(PolyCollection(list(boxes), **style), autolim=False)


def tint(kind: Kind, shade: float) -> tuple[float, float, float]:
    """A kind's colour, up to half way to white."""
    red, green, blue = (c + (1 - c) * 0.5 * shade for c in palette.channels(palette.COLOURS[kind]))
    return red, green, blue


@cache
def text_width(text: str) -> float:
    """How wide a text is at a font size of 1."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(family=FONT, size=10)
    return float(TextToPath().get_text_width_height_descent(text, font, False)[0]) / 10
