"""Costs that were measured: a time for each kind of op of each stage, and one for transfers, from a TOML file.

resolution = "100 ns"    # to which times are rounded, once
transfer = "35 us"       # one message between two devices

[[stage]]                # stage 0, then the others in order
forward = "1.21 ms"
input_grad = "1.3 ms"    # input_grad and weight_grad, or backward, or all three
weight_grad = "1.1 ms"
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from explorer.config import table as stage_table
from explorer.config.decode import decode, measured, parse
from explorer.config.limits import memory_limit
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import Inapplicable, Malformed, UsageError
from explorer.core.files import read_text
from explorer.core.op import Kind
from explorer.core.placement import Placement
from explorer.core.problem import Communication, Network, Problem, Stash
from explorer.core.units import TimeBase

BYTES_PER_PARAMETER = 18
LARGEST = 2**50

KEYS = {Kind.F: "forward", Kind.I: "input_grad", Kind.W: "weight_grad", Kind.B: "backward"}


@dataclass(frozen=True)
class StageTimes:
    """Seconds that a stage's ops take; of the backward either the whole, or both halves."""

    forward: Fraction = measured("time")
    input_grad: Fraction | None = field(default=None, metadata={"dimension": "time"})
    weight_grad: Fraction | None = field(default=None, metadata={"dimension": "time"})
    backward: Fraction | None = field(default=None, metadata={"dimension": "time"})

    def __post_init__(self) -> None:
        halves = (self.input_grad is not None, self.weight_grad is not None)
        if halves[0] != halves[1] or (self.backward is None and not halves[0]):
            raise UsageError("a stage needs backward, or both input_grad and weight_grad")
        if any(value is not None and value < 0 for value in vars(self).values()):
            raise UsageError("a stage's times cannot be negative")

    def seconds(self, kind: Kind) -> Fraction:
        """Of one op; a backward that was only measured whole is halved, one measured in halves added up."""
        value: Fraction | None = getattr(self, KEYS[kind])
        if value is not None:
            return value
        if kind is Kind.B:
            return self.seconds(Kind.I) + self.seconds(Kind.W)
        return self.seconds(Kind.B) / 2


@dataclass(frozen=True)
class MeasuredCosts:
    """Costs of stages that were measured, for any schedule of these stages.

    Parameters
    ----------
    stages
        In order.
    transfer
        Seconds of one message between devices.
    resolution
        Seconds to which times are rounded.
    communication
        ``latency`` by default.
    common
        What `AbstractCosts` takes besides times: ``freed_at_input``, ``overlap``, ``memory_limit``, ``gradient_sync``.
    sizes
        Bytes of an activation and number of parameters of each stage, if they are known; a parameter takes 18 bytes
        with its gradient and Adam's state in mixed precision (arXiv:1910.02054, section 3.1).
    """

    stages: tuple[StageTimes, ...]
    transfer: Fraction
    resolution: Fraction
    communication: Communication | None = None
    common: tuple[tuple[str, Any], ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()

    def problem(self, placement: Placement) -> Problem:
        """The costs on a placement's chunks and devices.

        Raises
        ------
        Inapplicable
            If it cuts the model into another number of stages.
        """
        if placement.chunks != len(self.stages):
            raise Inapplicable(
                f"these costs were measured for {len(self.stages)} stages, and this schedule cuts the model into "
                f"{placement.chunks}"
            )
        common = dict(self.common)
        limit = common.pop("memory_limit", None) if self.sizes else None
        base = AbstractCosts(unit="s", **common).problem(placement)
        in_bytes = self._bytes(common.get("freed_at_input", Fraction(0))) if self.sizes else base.bytes
        if self.sizes:
            base = replace(base, memory_limit=memory_limit(limit, placement.devices, base.stash, in_bytes))
        time = TimeBase(self.resolution, "s", rounds=True)
        durations = [[time.ticks(stage.seconds(kind)) for kind in Kind] for stage in self.stages]
        mode = self.communication or (Communication.LATENCY if self.transfer else Communication.NONE)
        whole = time.ticks(self.transfer)
        occupies = mode in (Communication.LINK, Communication.BLOCKING)
        network = Network(
            names=("link",),
            link=np.zeros((placement.devices, placement.devices), np.int64),
            latency=np.array([0 if occupies else whole], np.int64),
            occupancy=np.full((1, placement.chunks, 1), whole if occupies else 0, np.int64),
        )
        return replace(
            base,
            time=time,
            durations=np.array([durations], np.int64),
            network=network,
            communication=mode,
            sync=np.zeros_like(base.sync),
            rounding=self.resolution / 2,
            bytes=in_bytes,
            notes=(*base.notes, *self._notes()),
        )

    def _bytes(self, freed_at_input: Fraction) -> Stash:
        held = np.array([[activation for activation, _ in self.sizes]], np.int64)
        freed = np.array([[int(activation * freed_at_input) for activation, _ in self.sizes]], np.int64)
        static = np.array([BYTES_PER_PARAMETER * parameters for _, parameters in self.sizes], np.int64)
        weights = np.array([2 * parameters for _, parameters in self.sizes], np.int64)
        return Stash(Fraction(1), held, freed, static, weights)

    def _notes(self) -> Iterator[str]:
        if any(stage.input_grad is None for stage in self.stages):
            yield "backwards were measured whole: where a schedule splits them, I and W take half each"
        elif any(stage.backward is None for stage in self.stages):
            yield "backwards were measured in halves: where a schedule fuses them, B takes the sum"


def load(path: Path, communication: Communication | None = None, **common: Any) -> MeasuredCosts:
    """Read measured costs.

    Raises
    ------
    UsageError
        If the file cannot be read.
    Malformed
        If it is no TOML, or a key is unknown, missing or wrong.
    """
    where = str(path)
    if path.suffix.lower() == ".csv":
        return _from_table(read_text(path), where, communication, common)
    table = parse(read_text(path), where)
    stages = table.pop("stage", None)
    if not isinstance(stages, list) or not stages or not all(isinstance(stage, dict) for stage in stages):
        raise Malformed("measured costs need a table [[stage]] for every stage", where)
    head = decode(_Head, table, where)
    if not head.resolution > 0 or head.transfer < 0:
        raise Malformed("the resolution must be positive, and the transfer not negative", where)
    times = tuple(decode(StageTimes, stage, f"{where}: stage {number}") for number, stage in enumerate(stages))
    return MeasuredCosts(times, head.transfer, head.resolution, communication, tuple(common.items()))


def _from_table(text: str, where: str, communication: Communication | None, common: dict[str, Any]) -> MeasuredCosts:
    """Costs from a table of `explorer.config.table`; transfers take no time."""
    lines, sized = stage_table.read(text, where)
    times = tuple(
        StageTimes(*(line.seconds.get(name) for name in stage_table.TIMES))  # type: ignore[arg-type]
        for line in lines
    )
    sizes = tuple((line.activation, line.parameters) for line in lines) if sized else ()
    if sum(activation + BYTES_PER_PARAMETER * parameters for activation, parameters in sizes) > LARGEST:
        raise Malformed("activations and parameters pass 2^50 bytes", where)
    return MeasuredCosts(times, Fraction(0), Fraction(1, 10**9), communication, tuple(common.items()), sizes)


@dataclass(frozen=True)
class _Head:
    resolution: Fraction = measured("time", "100 ns")
    transfer: Fraction = measured("time", "0 s")
