"""From options to costs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explorer.api import Costs
from explorer.cli.options import DEVICES, MICROBATCHES, ProblemOptions
from explorer.config import catalogue
from explorer.config.recipe import AbstractCosts
from explorer.core.errors import UsageError, nearest
from explorer.core.problem import Communication
from explorer.core.units import duration, number

if TYPE_CHECKING:
    from explorer.costs.select import Chosen
    from explorer.costs.training import Training
    from explorer.io.kept import KeptCosts

_TIMES = ("forward", "backward", "input_grad", "weight_grad", "comm_time", "sync_time", "optimizer_step")
_FACTORS = ("stage_factors", "microbatch_factors", "memory_factors")
_MODELLED = ("system", "model", "embeddings", "optimizer", "devices_per_node", "device_map", "sync_on_links")


def from_options(options: ProblemOptions) -> Costs:
    """Abstract costs if any is given, else modelled ones (the source paper's operating point by default).

    Raises
    ------
    UsageError
        If abstract and modelled costs are mixed, times have different units, or a value is no number.
    """
    abstract = [name for name in (*_TIMES, *_FACTORS, "per_stage") if options.is_given(name)]
    modelled = [name for name in (*_MODELLED, *options.training) if options.is_given(name)]
    copies = 1 if options.data_parallel is None else options.data_parallel
    if abstract and modelled:
        raise UsageError(
            f"{_flag(abstract[0])} gives abstract costs and {_flag(modelled[0])} modelled ones; give one or the other"
        )
    common = _execution(options)
    common["freed_at_input"] = common["freed_at_input"] or Fraction(0)
    if options.measured is not None:
        if abstract or modelled:
            raise UsageError(f"--costs gives measured costs; leave {_flag((abstract + modelled)[0])} out")
        if copies > 1:
            raise UsageError("measured costs know of no gradient all-reduce; leave --data-parallel out")
        from explorer.config import measured

        return measured.load(Path(options.measured), **common)
    if abstract:
        return AbstractCosts(
            **_times(options), **_factors(options), per_stage=options.per_stage, copies=copies, **common
        )
    return _modelled(options, copies, common)


def _execution(options: ProblemOptions) -> dict[str, Any]:
    """How things are run, whatever they cost."""
    common: dict[str, Any] = {
        "communication": _communication(options.communication),
        "gradient_sync": not options.no_gradient_sync,
        "memory_limit": options.mem_limit,
        "freed_at_input": _share(options.freed_at_input_grad),
    }
    if options.overlap_factor is not None:
        common["overlap"] = number(options.overlap_factor, "--overlap-factor")
    return common


def kept(options: ProblemOptions, found: KeptCosts, file: Path) -> Costs:
    """The costs in a result of a search, run as the options have it.

    Raises
    ------
    UsageError
        If an option says what things cost.
    """
    for name in (*_TIMES, *_FACTORS, "per_stage", *_MODELLED, *options.training, "data_parallel"):
        if options.is_given(name):
            raise UsageError(
                f"{file} keeps the costs of its search, which {_flag(name)} does not go with; give others whole, with "
                "--forward, --model, --system or --costs"
            )
    return replace(found, **_execution(options))


def _modelled(options: ProblemOptions, copies: int, common: dict[str, Any]) -> Costs:
    """Costs of a model on a system: layer by layer where that is asked for, else of equal blocks."""
    from explorer.config.modelled import ModelledCosts
    from explorer.config.topology import Layout

    model = catalogue.DEFAULT_MODEL if options.model is None else options.model
    system = catalogue.DEFAULT_SYSTEM if options.system is None else options.system
    layout = Layout(options.devices_per_node, _slots(options.device_map), copies)
    common |= {
        "title": f"{model} on {system}",
        "optimizer": options.optimizer,
        "sync_on_links": options.sync_on_links,
    }
    if options.chosen is None:
        return ModelledCosts(
            model=catalogue.load_model(model),
            system=catalogue.load_system(system),
            embeddings=options.embeddings,
            layout=layout,
            **common,
        )
    if options.embeddings:
        raise UsageError("costs layer by layer count the embedding and the head always; leave --embeddings out")
    from explorer.costs.select import transformer_costs

    if options.freed_at_input_grad is None:
        common["freed_at_input"] = None
    return transformer_costs(
        options.chosen,
        catalogue.load_system(system),
        options.layout,
        layout=replace(layout, copies=1),
        **common,
    )


def chosen(options: ProblemOptions) -> Chosen | None:
    """The model in training where costs are layer by layer; see `ProblemOptions.chosen`."""
    if options.model is None and not options.training:
        return None
    from explorer.costs.select import choose, is_detailed

    model = options.model or catalogue.DEFAULT_MODEL
    if not is_detailed(model, options.training):
        return None
    return choose(model, options.training, options.data_parallel)


def sizes(options: ProblemOptions) -> tuple[int, int]:
    """Pipeline devices and microbatches; see `ProblemOptions.sizes`."""
    devices, microbatches = options.devices, options.microbatches
    if devices is None and options.measured is not None:
        from explorer.config import measured

        devices = len(measured.load(Path(options.measured)).stages) // (options.chunks or 1)
    model = options.chosen if devices is None or microbatches is None else None
    if model is not None:
        if devices is None and model.launch is not None and model.launch.pipeline > 1:
            devices = model.launch.pipeline
        if microbatches is None and model.training.global_batch is not None:
            microbatches = _microbatches(model.training)
    return DEVICES if devices is None else devices, MICROBATCHES if microbatches is None else microbatches


def _microbatches(training: Training) -> int:
    each = training.microbatch * training.data
    if training.global_batch is None or training.global_batch % each:
        raise UsageError(
            f"a global batch of {training.global_batch} is no whole number of microbatches of {training.microbatch} in "
            f"{training.data} copies; it must be a multiple of {each}"
        )
    return training.global_batch // each


def _slots(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text is not None else ()
    except ValueError:
        raise UsageError(f"--device-map must be slots such as 0,8,1,9, got {text!r}") from None


def _times(options: ProblemOptions) -> dict[str, Any]:
    given = {name: duration(text, _flag(name)) for name in _TIMES if (text := getattr(options, name)) is not None}
    units = {unit for value, unit in given.values() if value}
    if len(units) > 1:
        raise UsageError("give either all times a unit (1.1ms) or none (1)")
    unit = units.pop() if units else "1"
    if unit == "s" and "forward" not in given:
        raise UsageError("give --forward too: times with a unit have no default to go with")
    return {name: value for name, (value, _) in given.items()} | {"unit": unit}


def _factors(options: ProblemOptions) -> dict[str, Any]:
    return {
        name: tuple(number(part, _flag(name)) for part in text.split(","))
        for name in _FACTORS
        if (text := getattr(options, name)) is not None
    }


def _share(text: str | None) -> Fraction | None:
    if text is None:
        return None
    share = number(text, "--freed-at-input-grad")
    if not 0 <= share <= 1:
        raise UsageError(f"--freed-at-input-grad must be a share between 0 and 1, got {text}")
    return share


def _communication(text: str | None) -> Communication | None:
    if text is None:
        return None
    try:
        return Communication(text.lower())
    except ValueError:
        raise UsageError(f"no communication mode is called {text!r}; {nearest(text, list(Communication))}") from None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
