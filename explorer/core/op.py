"""Operations, as a person reads them, in the grammar of ``torch.distributed.pipelining``.

========  ==============================================================================
letter    meaning
========  ==============================================================================
``F``     forward
``I``     gradient with respect to the input (the zero-bubble papers call this B)
``W``     gradient with respect to the weights
``B``     full backward, I and W fused in one op
========  ==============================================================================

``2F0`` is stage 2, forward, microbatch 0. A stage is a position on the microbatch's route.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from explorer.core.errors import Malformed


class Kind(IntEnum):
    """What an op computes; the values index cost tables."""

    F = 0
    I = 1
    W = 2
    B = 3

    @property
    def letter(self) -> str:
        """The letter used in text form."""
        return self.name


KINDS = tuple(Kind)
_OP = re.compile(r"([0-9]{1,9})([FIWB])([0-9]{1,9})")


class Op(NamedTuple):
    """One operation: ``kind`` of ``microbatch`` at ``stage`` of that microbatch's route."""

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{Kind(self.kind).name}{self.microbatch}"

    @classmethod
    def parse(cls, text: str, where: str = "") -> Op:
        """Read ``<stage><F|I|W|B><microbatch>``, strictly.

        Raises
        ------
        Malformed
            If anything else stands there, also behind a good beginning.
        """
        match = _OP.fullmatch(text)
        if match is None:
            raise Malformed(f"{text!r} is not an op; expected <stage><F|I|W|B><microbatch>, such as 2F0", where)
        return cls(int(match[1]), Kind[match[2]], int(match[3]))


class Overlapped(NamedTuple):
    """Two ops that run as one occupancy of the device, such as DualPipe's F&B."""

    first: Op
    second: Op

    def __str__(self) -> str:
        return f"({self.first};{self.second})OVERLAP_F_B"


Entry = Op | Overlapped
"""One occupancy in a device's order."""


def F(stage: int, microbatch: int) -> Op:
    """Forward."""
    return Op(stage, Kind.F, microbatch)


def I(stage: int, microbatch: int) -> Op:  # noqa: E743 - the field's letter
    """Gradient with respect to the input."""
    return Op(stage, Kind.I, microbatch)


def W(stage: int, microbatch: int) -> Op:
    """Gradient with respect to the weights."""
    return Op(stage, Kind.W, microbatch)


def B(stage: int, microbatch: int) -> Op:
    """Full backward."""
    return Op(stage, Kind.B, microbatch)
