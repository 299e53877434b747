"""Named schedules: a function each, registered by a decorator, found by importing the package."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from explorer.core.errors import Inapplicable, UsageError, nearest
from explorer.core.placement import Placement
from explorer.core.problem import Problem
from explorer.core.schedule import Schedule
from schedules.formula import Case, Formula
from schedules.steady import Asynchrony

Recipe = Callable[[Placement], Problem]
"""What things cost on any placement; a schedule that plans with real costs takes one as its ``recipe`` argument."""

_SIZES = ("devices", "microbatches")
_RESERVED = (*_SIZES, "recipe")


@dataclass(eq=False)
class NamedSchedule:
    """A schedule of the field, under its name.

    Parameters
    ----------
    name
        Lower case, with hyphens.
    build
        ``(devices, microbatches, *, options...) -> Schedule``. Its keyword parameters are the schedule's options; one
        called ``recipe`` is filled with the run's costs.
    summary
        One line.
    source
        The paper or repository that defines it.
    """

    name: str
    build: Callable[..., Schedule]
    summary: str
    source: str
    _formula: Callable[[Case], Formula] | None = field(default=None, repr=False)
    _caution: Callable[[Case], str | None] | None = field(default=None, repr=False)
    _asynchrony: Callable[[Case], Asynchrony] | None = field(default=None, repr=False)

    def closed_form(self, function: Callable[[Case], Formula]) -> Callable[[Case], Formula]:
        """Decorate the function that gives this schedule's closed formula."""
        self._formula = function
        return function

    def caution(self, function: Callable[[Case], str | None]) -> Callable[[Case], str | None]:
        """Decorate the function that says, in one sentence, where this schedule is used outside its regime."""
        self._caution = function
        return function

    def asynchronous(self, function: Callable[[Case], Asynchrony]) -> Callable[[Case], Asynchrony]:
        """Decorate the function that gives weight versions and staleness: this schedule never flushes."""
        self._asynchrony = function
        return function

    @property
    def options(self) -> dict[str, object]:
        """The schedule's own options with their defaults, ``recipe`` left out."""
        parameters = inspect.signature(self.build).parameters
        return {name: p.default for name, p in parameters.items() if name not in _RESERVED}

    @property
    def plans_with_costs(self) -> bool:
        """Whether the order depends on what things cost."""
        return "recipe" in inspect.signature(self.build).parameters

    def __call__(self, devices: int, microbatches: int, *, recipe: Recipe | None = None, **options: Any) -> Schedule:
        """Build it.

        Raises
        ------
        Inapplicable
            If the schedule does not exist for these sizes; the message says which would do.
        UsageError
            If it has no such option, or the option cannot have that value.
        """
        for what, size in zip(_SIZES, (devices, microbatches), strict=True):
            if size < 1:
                raise UsageError(f"{what} must be at least 1, got {size}")
        known = self.options
        for option in options:
            if option not in known:
                hint = nearest(option, known) if known else "it has none"
                raise UsageError(f"{self.name} has no option {option!r}; {hint}")
            self._require_type(option, options[option])
        if self.plans_with_costs:
            options["recipe"] = recipe
        built = self.build(devices, microbatches, **options)
        if (built.devices, built.microbatches) != (devices, microbatches):
            raise UsageError(
                f"{self.name} built {built!r}, not one of {devices} devices and {microbatches} microbatches"
            )
        return built

    def _require_type(self, option: str, value: object) -> None:
        """Refuse what an option that counts cannot be; other types are the schedule's own matter."""
        annotation = str(inspect.signature(self.build).parameters[option].annotation)
        optional = annotation == "int | None"
        if (annotation == "int" or (optional and value is not None)) and type(value) is not int:
            raise UsageError(f"option {option} of {self.name} must be a whole number, got {value!r}")

    def formula(self, case: Case) -> Formula:
        """Level one for this case."""
        if self._formula is None:
            return Formula.inapplicable("no closed form is known")
        formula = self._formula(self._filled(case))
        if case.unit_stash or formula.peak_activations is None:
            return formula
        assumptions = f"{formula.assumptions}; peaks need equal activations, held until the backward is done"
        return replace(formula, peak_activations=None, assumptions=assumptions)

    @property
    def closed_form_text(self) -> str:
        """What the closed form says, in words; empty where there is none."""
        return inspect.getdoc(self._formula) or "" if self._formula else ""

    def cautions(self, case: Case) -> tuple[str, ...]:
        """Warnings for this case: none, or one sentence."""
        said = self._caution and self._caution(self._filled(case))
        return (said,) if said else ()

    def asynchrony(self, case: Case) -> Asynchrony | None:
        """Weight versions and staleness in the steady state; None for a schedule that flushes."""
        return self._asynchrony(self._filled(case)) if self._asynchrony else None

    def _filled(self, case: Case) -> Case:
        options: Mapping[str, object] = {**self.options, **case.options}
        return Case(**{**vars(case), "options": options})


_REGISTRY: dict[str, NamedSchedule] = {}


def named(name: str, *, summary: str, source: str) -> Callable[[Callable[..., Schedule]], NamedSchedule]:
    """Register the decorated function as a named schedule."""
    return lambda build: register(NamedSchedule(name, build, summary, source))


def register(schedule: NamedSchedule) -> NamedSchedule:
    """Make a schedule known under its name.

    Raises
    ------
    UsageError
        If another has that name.
    """
    if schedule.name in _REGISTRY:
        raise UsageError(f"two schedules are called {schedule.name!r}")
    return _REGISTRY.setdefault(schedule.name, schedule)


def find(name: str) -> NamedSchedule:
    """The schedule of that name.

    Raises
    ------
    UsageError
        If there is none; the message says which names are near.
    """
    try:
        return _REGISTRY[name.lower()]
    except KeyError:
        raise UsageError(f"no schedule is called {name!r}; {nearest(name, _REGISTRY)}") from None


def every() -> tuple[NamedSchedule, ...]:
    """All named schedules, in the order of their registration."""
    return tuple(_REGISTRY.values())


def require_multiple(name: str, microbatches: int, of: int, why: str = "") -> None:
    """Check that a number of microbatches is a multiple.

    Raises
    ------
    Inapplicable
        Saying which numbers near it would do.
    """
    if microbatches % of:
        below, above = microbatches // of * of, -(-microbatches // of) * of
        near = f"{below} or {above}" if below else f"{above}"
        raise Inapplicable(f"{name} needs microbatches divisible by {of}{why}, got {microbatches}; {near} would do")
