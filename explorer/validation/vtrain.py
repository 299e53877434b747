"""Runs of small models on one node of 8 A100, from Bang et al., arXiv:2312.12391: how deeper pipelines scale.

A layer of such a model is over sooner than the host has launched it. So an op of a layer takes at least `HOST`, or its
backward twice that. Gradients are reduced in buckets while backwards run, so their all-reduce is not exposed.
Every eighth pair of the published runs that differ in the degrees of pipeline and data parallelism only.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.resources import files

from explorer.config import catalogue
from explorer.costs.problem import TransformerCosts
from explorer.costs.training import Training
from explorer.validation.results import Row, Study
from explorer.validation.tables import SYSTEM, gpt, iteration_seconds

SOURCE = "github.com/VIA-Research/vTrain (f8dda84), data/ground_truth_single.csv; Bang et al., arXiv:2312.12391"
EFFICIENCY, HOST = Fraction("0.45"), Fraction("0.0012")
"""Of matrix products, and seconds to launch a layer's F, I or W: the best of steps of 0.05 and 0.1 ms on the times of
every second pair."""


@dataclass(frozen=True)
class Pair:
    """Two runs on as many GPUs.

    Parameters
    ----------
    sizes
        What both share, by column of the table.
    runs
        Pipeline devices, and milliseconds of an iteration, of the shallower and of the deeper one.
    """

    sizes: dict[str, int]
    runs: tuple[tuple[int, float], tuple[int, float]]

    @property
    def title(self) -> str:
        """Everything but times and depths."""
        size = self.sizes
        model = f"{size['layers']} x {size['hidden']}, tensor {size['tensor']}"
        return f"{size['gpus']} GPUs, {model}, batch {size['batch']} of {size['microbatch']}"

    def data(self, depth: int) -> int:
        """Data-parallel copies."""
        return self.sizes["gpus"] // (self.sizes["tensor"] * depth)

    def microbatches(self, depth: int) -> int:
        """Of a copy."""
        return self.sizes["batch"] // (self.sizes["microbatch"] * self.data(depth))


def pairs() -> Iterator[Pair]:
    """The table."""
    text = files("explorer.validation").joinpath("data").joinpath("vtrain.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        runs = (int(row["pipeline"]), float(row["ms"])), (int(row["deeper_pipeline"]), float(row["deeper_ms"]))
        sizes = {name: int(value) for name, value in row.items() if not name.endswith(("ms", "pipeline"))}
        yield Pair(sizes, runs)


def milliseconds(pair: Pair, depth: int, efficiency: Fraction = EFFICIENCY, host: Fraction = HOST) -> float:
    """Milliseconds of an iteration with a pipeline of so many devices."""
    size, system = pair.sizes, catalogue.load_system(SYSTEM)
    system = replace(
        system,
        compute=replace(system.compute, products=efficiency, half_work=Fraction(0)),
        overheads=replace(system.overheads, layer=host),
    )
    model = replace(gpt({"name": "vTrain", **size}), positions=size["sequence"])
    training = Training(
        size["sequence"], size["microbatch"], tensor=size["tensor"], data=pair.data(depth), flash_attention=False
    )
    costs = TransformerCosts(model, training, system, gradient_sync=False, optimizer=True)
    return 1000 * iteration_seconds(costs, depth, pair.microbatches(depth))


def studies() -> list[Study]:
    """Times of an iteration, and how much longer it takes with a deeper pipeline: our model's and the plain rule's.

    The plain rule: an iteration of m microbatches on p devices takes (m + p - 1) / p.
    """
    times, ours, plain = [], [], []
    for number, pair in enumerate(pairs()):
        fitted = number % 2 == 0
        predicted = [milliseconds(pair, depth) for depth, _ in pair.runs]
        rule = [(pair.microbatches(depth) + depth - 1) / depth for depth, _ in pair.runs]
        (depth, measured), (deeper, longer) = pair.runs
        times += [
            Row(f"{pair.title}, pipeline {count}", ms, value, fitted=fitted)
            for (count, ms), value in zip(pair.runs, predicted, strict=True)
        ]
        what = f"{pair.title}, pipeline {depth} to {deeper}"
        ours.append(Row(what, longer / measured, predicted[1] / predicted[0], fitted=fitted))
        plain.append(Row(what, longer / measured, rule[1] / rule[0], fitted=fitted))
    told = (
        f"fitted, on the times of every second pair: matrix products at {float(EFFICIENCY):g} of their peak, and "
        f"{1000 * float(HOST):g} ms at least an F, I or W of a layer; the all-reduce of gradients taken as hidden, and "
        "a vocabulary of 51200"
    )
    aside = "for comparison, on the same rows: nothing but (m + p - 1) / p"
    return [
        Study("times of small models", SOURCE, "ms", tuple(times), told),
        Study("deeper pipelines", SOURCE, "ratio of iteration times", tuple(ours), told),
        Study("deeper pipelines, plain rule", SOURCE, "ratio of iteration times", tuple(plain), aside),
    ]
