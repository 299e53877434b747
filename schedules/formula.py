"""Level one: the closed formula of a schedule's source, with the assumptions under which it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True)
class Case:
    """What a closed formula may depend on.

    Parameters
    ----------
    devices, microbatches
        The size of the run.
    options
        The schedule's own options, defaults filled in.
    forward, input_grad, weight_grad, backward
        Time of one microbatch's share of work on one device; ``backward`` is the fused one.
    uniform
        Whether every device does the same work, chunks are equal and microbatches are alike. Formulas assume it.
    overlap
        What an overlapped F&B takes, as a fraction of the sum of its parts.
    unit_stash
        Whether every microbatch's activation on one device is 1, in equal parts for equal shares of the model, and is
        held until the whole backward is done. Formulas of peaks assume it.
    """

    devices: int
    microbatches: int
    forward: Fraction
    input_grad: Fraction
    weight_grad: Fraction
    backward: Fraction
    options: Mapping[str, object] = field(default_factory=dict)
    uniform: bool = True
    overlap: Fraction = Fraction(1)
    unit_stash: bool = True

    @property
    def work(self) -> Fraction:
        """What one device computes in all, with the fused backward."""
        return self.microbatches * (self.forward + self.backward)

    @property
    def split_work(self) -> Fraction:
        """What one device computes in all, with the backward split into its halves."""
        return self.microbatches * (self.forward + self.input_grad + self.weight_grad)

    def count(self, option: str) -> int:
        """The value of an option that counts something."""
        value = self.options[option]
        assert isinstance(value, int), f"{option} counts something"
        return value


@dataclass(frozen=True)
class Formula:
    """What the closed form says; None where it does not apply, and then ``assumptions`` says why.

    Parameters
    ----------
    assumptions
        Under which it holds, or the reason why it does not apply here.
    makespan
        In the unit of the case's costs, without transfers.
    bubble_ratio
        Idle over makespan, as the mean over devices.
    peak_activations
        One a device, in device units.
    longest_device_span
        From the first start to the last end on one device, in the unit of the case's costs; given where it is shorter
        than the makespan, as in the zero-bubble family.
    """

    assumptions: str
    makespan: Fraction | None = None
    bubble_ratio: Fraction | None = None
    peak_activations: tuple[Fraction, ...] | None = None
    longest_device_span: Fraction | None = None

    @classmethod
    def idle(
        cls,
        case: Case,
        idle: Fraction,
        peak_activations: Sequence[Fraction | int] | None,
        assumptions: str,
        *,
        split: bool = False,
        span_idle: Fraction | None = None,
    ) -> Formula:
        """From the idle time that every device has within the makespan.

        Parameters
        ----------
        case
            Of which the work per device is taken.
        idle
            makespan - busy, the same on every device.
        peak_activations
            One a device; None where no closed form is known.
        assumptions
            Under which it holds.
        split
            Whether the schedule splits its backwards into I and W.
        span_idle
            longest device span - busy, where that differs from ``idle``.
        """
        if not case.uniform:
            return cls("needs equal stages and equal microbatches")
        work = case.split_work if split else case.work
        makespan = work + idle
        peaks = None if peak_activations is None else tuple(map(Fraction, peak_activations))
        span = None if span_idle is None else work + span_idle
        return cls(assumptions, makespan, idle / makespan if makespan else Fraction(0), peaks, span)

    @classmethod
    def inapplicable(cls, reason: str) -> Formula:
        """No formula here, and why."""
        return cls(reason)
