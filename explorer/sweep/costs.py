"""From the costs that a grid names to costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from explorer.api import Costs
from explorer.config import catalogue
from explorer.config.modelled import ModelledCosts
from explorer.config.recipe import AbstractCosts
from explorer.config.system import System
from explorer.config.topology import Layout, Link
from explorer.core.errors import Inapplicable, UsageError, nearest
from explorer.core.placement import Placement
from explorer.core.problem import Communication, Problem
from explorer.core.units import duration, number, quantity
from explorer.costs.select import FLAGS, SETTINGS, choose, is_detailed, transformer_costs

TIMES = ("forward", "backward", "input_grad", "weight_grad", "comm_time", "sync_time", "optimizer_step")
ABSTRACT = (*TIMES, "per_stage")
MODELLED = (
    "system",
    "model",
    "embeddings",
    "optimizer",
    "latency",
    "bandwidth",
    "devices_per_node",
    "sync_on_links",
    *(name for name in SETTINGS if name != "global_batch"),
    "layout",
)
COMMON = ("communication", "gradient_sync", "mem_limit", "freed_at_input_grad", "overlap_factor", "data_parallel")
"""Names of the command line's options; ``latency`` and ``bandwidth`` replace those of a system's network."""


@dataclass(frozen=True)
class Impossible:
    """Costs that there cannot be, such as of a tensor parallelism that does not divide the heads."""

    reason: str

    def problem(self, placement: Placement) -> Problem:
        """Never.

        Raises
        ------
        Inapplicable
            With the reason.
        """
        raise Inapplicable(self.reason)


@lru_cache(maxsize=4096)
def costs_of(named: tuple[tuple[str, Any], ...]) -> Costs:
    """Costs from names and values, text as on the command line; `Impossible` where they contradict the model.

    Raises
    ------
    UsageError
        If abstract and modelled costs are mixed, or a value is wrong.
    """
    try:
        return _costs_of(named)
    except Inapplicable as reason:
        return Impossible(str(reason))


def _costs_of(named: tuple[tuple[str, Any], ...]) -> Costs:
    """Costs from names and values.

    Raises
    ------
    UsageError
        If abstract and modelled costs are mixed, or a value is wrong.
    """
    given = dict(named)
    abstract = [name for name in ABSTRACT if name in given]
    modelled = [name for name in MODELLED if name in given]
    if abstract and modelled:
        raise UsageError(f"{abstract[0]} gives abstract costs and {modelled[0]} modelled ones; give one or the other")
    common: dict[str, Any] = {"gradient_sync": _flag("gradient_sync", given.get("gradient_sync", True))}
    if "communication" in given:
        common["communication"] = _communication(str(given["communication"]))
    if given.get("mem_limit", "none") != "none":
        common["memory_limit"] = str(given["mem_limit"])
    for name, field in (("freed_at_input_grad", "freed_at_input"), ("overlap_factor", "overlap")):
        if name in given:
            common[field] = number(str(given[name]), name)
    copies = _count("data_parallel", given.get("data_parallel", 1))
    if abstract:
        return AbstractCosts(
            **_times(given), per_stage=_flag("per_stage", given.get("per_stage", False)), copies=copies, **common
        )
    per_node = given.get("devices_per_node")
    layout = Layout(None if per_node is None else _count("devices_per_node", per_node), (), copies)
    model = str(given.get("model", catalogue.DEFAULT_MODEL))
    embeddings = _flag("embeddings", given.get("embeddings", False))
    optimizer = _flag("optimizer", given.get("optimizer", False))
    on_links = _flag("sync_on_links", given.get("sync_on_links", False))
    settings = _settings(given)
    if is_detailed(model, settings):
        if embeddings:
            raise UsageError("costs layer by layer count the embedding and the head always; leave embeddings out")
        data = copies if "data_parallel" in given else None
        return transformer_costs(
            choose(model, settings, data),
            _system(given),
            settings.get("layout"),
            layout=replace(layout, copies=1),
            optimizer=optimizer,
            sync_on_links=on_links,
            **common,
        )
    return ModelledCosts(
        model=catalogue.load_model(model),
        system=_system(given),
        embeddings=embeddings,
        layout=layout,
        optimizer=optimizer,
        sync_on_links=on_links,
        **common,
    )


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """How the model is trained: text, flags and counts, each checked."""
    settings: dict[str, Any] = {}
    for name in (*SETTINGS, "layout"):
        if name in given:
            value = given[name]
            if name in ("recompute", "layout"):
                settings[name] = str(value)
            elif name in FLAGS:
                settings[name] = _flag(name, value)
            else:
                settings[name] = _count(name, value)
    return settings


def _times(given: dict[str, Any]) -> dict[str, Any]:
    read = {name: duration(str(given[name]), name) for name in TIMES if name in given}
    units: Iterable[str] = {unit for value, unit in read.values() if value}
    if len(set(units)) > 1:
        raise UsageError("give either all times a unit (1.1ms) or none (1)")
    unit = next(iter(units), "1")
    if unit == "s" and "forward" not in read:
        raise UsageError("give forward too: times with a unit have no default to go with")
    return {name: value for name, (value, _) in read.items()} | {"unit": unit}


def _system(given: dict[str, Any]) -> System:
    system = catalogue.load_system(str(given.get("system", catalogue.DEFAULT_SYSTEM)))
    if "latency" not in given and "bandwidth" not in given:
        return system
    network = system.links.network
    if network is None or network.times:
        raise UsageError("latency and bandwidth replace those of [links.network], which this system does not give")
    latency, bandwidth = network.latency, network.bandwidth
    if "latency" in given:
        latency = quantity(str(given["latency"]), "time", "latency")
    if "bandwidth" in given:
        bandwidth = quantity(str(given["bandwidth"]), "bandwidth", "bandwidth")
    return replace(system, links=replace(system.links, network=Link(latency, bandwidth)))


def _communication(text: str) -> Communication:
    try:
        return Communication(text.lower())
    except ValueError:
        raise UsageError(f"no communication mode is called {text!r}; {nearest(text, list(Communication))}") from None


def _flag(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise UsageError(f"{name} must be true or false, got {value!r}")
    return value


def _count(name: str, value: Any) -> int:
    if type(value) is not int:
        raise UsageError(f"{name} must be a whole number, got {value!r}")
    return value
