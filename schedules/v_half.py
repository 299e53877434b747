"""V-Half: the V-shaped building block of half of 1F1B's memory."""

from __future__ import annotations

from explorer.core.schedule import Schedule
from schedules.building_block import repeated
from schedules.formula import Case, Formula
from schedules.registry import named
from schedules.v_min import block_formula


@named(
    "v-half",
    summary="V placement with half of 1F1B's memory and about half of its bubble at equal costs",
    source="pipeline parallelism with controllable memory, arXiv:2405.15362",
)
def v_half(devices: int, microbatches: int) -> Schedule:
    """Build V-Half: on the way down a device every other slot, on the way up a device a slot.

    The block at D = 2, the second chunk in lower case, W in the slots that are left::

        0: F . . . f . . . i . . . . I
        1: . . F f . . . . . . i . I .
    """
    return repeated(devices, microbatches, block)


def block(device: int, devices: int) -> tuple[int, int, int, int]:
    """The slots of F0, F1, I1, I0; where D is even, three slots of delay keep them apart."""
    delay = 3 if devices % 2 == 0 else 0
    turn = 3 * devices - 1 + delay
    return 2 * device, 3 * devices - 2 - device, turn + 2 * device, turn + 3 * devices - 1 - device


@v_half.closed_form
def _formula(case: Case) -> Formula:
    """Every device holds D//2 + 1 activations."""
    return block_formula(case, case.devices // 2 + 1)
