"""What a user's file says of a model and its training."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.costs.architecture import Architecture
from explorer.costs.training import Piece, Training


@dataclass(frozen=True)
class Launch:
    """A model and how it is to be trained, as far as a file says.

    Parameters
    ----------
    architecture
        None if the file does not give the model's sizes.
    training
        None if it says nothing of the training.
    pipeline, virtual
        Pipeline devices, and stages a device.
    schedule
        Its name, if the file gives one.
    pieces
        What stages hold, if it is uneven.
    """

    architecture: Architecture | None = None
    training: Training | None = None
    pipeline: int = 1
    virtual: int = 1
    schedule: str | None = None
    pieces: tuple[Piece, ...] | None = None
