"""V-Min: the V-shaped building block that keeps activations for as short a time as possible."""

from __future__ import annotations

from fractions import Fraction

from explorer.core.schedule import Schedule
from schedules.building_block import repeated
from schedules.formula import Case, Formula
from schedules.registry import named


@named(
    "v-min",
    summary="V placement with about a third of 1F1B's memory and two thirds of its bubble at equal costs",
    source="pipeline parallelism with controllable memory, arXiv:2405.15362",
)
def v_min(devices: int, microbatches: int) -> Schedule:
    """Build V-Min: forwards and input gradients pass one device a slot, both ways.

    The block at D = 2, the second chunk in lower case, W in the slots that are left::

        0: F . . f i . . I
        1: . F f . . i I .
    """
    return repeated(devices, microbatches, block)


def block(device: int, devices: int) -> tuple[int, int, int, int]:
    """The slots of F0, F1, I1, I0; where 3 divides D, two slots of delay keep them apart."""
    delay = 2 if devices % 3 == 0 else 0
    turn = 2 * devices + delay
    return device, 2 * devices - 1 - device, turn + device, turn + 2 * devices - 1 - device


@v_min.closed_form
def _formula(case: Case) -> Formula:
    """Every device holds (D+4)//3 activations."""
    return block_formula(case, (case.devices + 4) // 3)


def block_formula(case: Case, most: int) -> Formula:
    """The memory of a block; no closed form of its time is known."""
    peak = Fraction(min(case.microbatches, most))
    return Formula("activations held until W; no exact form of the time", peak_activations=(peak,) * case.devices)
