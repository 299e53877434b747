"""The colours and names that every picture shares, in the terminal, on paper and in the browser."""

from __future__ import annotations

from explorer.core.op import Kind

COLOURS = {Kind.F: "#56b4e9", Kind.I: "#e69f00", Kind.W: "#009e73", Kind.B: "#f0e442"}
"""Colours of Okabe and Ito (jfly.uni-koeln.de/color), distinct for colour-blind readers; letters say the same."""
NAMES = {Kind.F: "forward", Kind.I: "input gradient", Kind.W: "weight gradient", Kind.B: "backward"}
TRANSFER_COLOUR, WAIT_COLOUR, SYNC_COLOUR, STEP_COLOUR = "#d55e00", "#f9d8bd", "#cc79a7", "#0072b2"
IDLE_COLOUR, MEMORY_COLOUR, LIMIT_COLOUR, OVER_COLOUR = "#ececec", "#9a9a9a", "#b00020", "#d98090"


def channels(colour: str) -> tuple[float, float, float]:
    """Red, green and blue, each 0 to 1, of a colour such as ``#56b4e9``."""
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return red, green, blue
