"""V-ZB: the V-shaped building block of 1F1B's memory, which leaves almost no bubble."""

from __future__ import annotations

from explorer.core.schedule import Schedule
from schedules.building_block import repeated
from schedules.formula import Case, Formula
from schedules.registry import named
from schedules.v_min import block_formula


@named(
    "v-zb",
    summary="V placement with 1F1B's memory and almost no bubble at equal costs",
    source="pipeline parallelism with controllable memory, arXiv:2405.15362; slots derived here from its lifespans",
)
def v_zb(devices: int, microbatches: int) -> Schedule:
    """Build V-ZB: on the way down a device every fourth slot, on the way up a device every other slot.

    The block at D = 2, the second chunk in lower case, W in the slots that are left::

        0: F . . . . . . f i . . . . . . I
        1: . . . . F f . . . . . . i I . .
    """
    return repeated(devices, microbatches, block)


def block(device: int, devices: int) -> tuple[int, int, int, int]:
    """The slots of F0, F1, I1, I0: 0, 1, 2 and 3 slots after 4 devices, modulo the period, so never at once."""
    turn = 6 * (devices - 1)
    return 4 * device, turn + 1 - 2 * device, turn + 2 + 4 * device, 2 * turn + 3 - 2 * device


@v_zb.closed_form
def _formula(case: Case) -> Formula:
    """Every device holds D activations."""
    return block_formula(case, case.devices)
