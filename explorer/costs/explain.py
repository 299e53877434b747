"""How the numbers of a layer come about, line by line."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from explorer.config.system import System
from explorer.costs.architecture import Architecture
from explorer.costs.layers import ELEMENT, collectives_of, parts_of, roofline
from explorer.costs.training import Training

KORTHIKANTI, MEGATRON = "arXiv:2205.05198", "arXiv:2104.04473"


@dataclass(frozen=True)
class Line:
    """One number of an explanation: what it is of, how it comes about, and from where the formula is."""

    part: str
    what: str
    formula: str
    value: Fraction
    unit: str
    source: str


def explain(architecture: Architecture, training: Training, system: System, layer: int) -> list[Line]:
    """How the numbers of a layer come about."""
    lines = []
    parts = parts_of(architecture, training, layer)
    for part in parts:
        lines.append(Line(part.name, "weights", "on one device", Fraction(part.parameters), "", MEGATRON))
        if part.products:
            seconds = roofline(system, part.products, ELEMENT * part.parameters)
            how = f"2 x tokens x weights used = {part.products:.4g} operations"
            lines.append(Line(part.name, "products, F", how, 1000 * seconds, "ms", MEGATRON))
        if part.scores:
            seconds = roofline(system, part.scores, 0)
            how = f"4 s^2 b x width = {part.scores:.4g} operations; twice in I, besides what is computed again"
            lines.append(Line(part.name, "scores, F", how, 1000 * seconds, "ms", MEGATRON))
        if part.moved:
            how = f"{part.moved:.4g} bytes through memory"
            seconds = roofline(system, 0, part.moved)
            lines.append(Line(part.name, "element-wise, F", how, 1000 * seconds, "ms", "bytes / bandwidth"))
        how = f"{part.scores_held:.4g} of them scores" if part.scores_held else "inputs of what the backward needs"
        lines.append(Line(part.name, "held", how, Fraction(part.held, 2**20), "MiB", KORTHIKANTI))
    sent = collectives_of(architecture, training, system, parts)
    for what, seconds in (("collectives, F", sent.forward), ("collectives, I", sent.backward)):
        if seconds:
            lines.append(Line("layer", what, sent.how, 1000 * seconds, "ms", KORTHIKANTI))
    return lines
