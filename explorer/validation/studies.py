"""The published tables that we predict, one function each.

Numbers of a system are fitted on the rows that say so, and the others judge them.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from fractions import Fraction
from importlib.resources import files
from statistics import median
from typing import Any

from explorer import api
from explorer.config import catalogue
from explorer.config.decode import parse
from explorer.config.recipe import AbstractCosts
from explorer.config.system import System
from explorer.core.op import Kind
from explorer.costs.architecture import Architecture
from explorer.costs.layers import layer_costs
from explorer.costs.problem import TransformerCosts
from explorer.costs.training import Training
from explorer.validation.results import Row, Study

SYSTEM = "a100-sxm"
SEQUENCE, VOCABULARY = 2048, 51200
"""Of the models of arXiv:2205.05198 and arXiv:2104.04473."""


def korthikanti_layers() -> Study:
    """Times of one layer of a model of 22B parameters."""
    table = _table("korthikanti")
    model, system = _gpt(table["model"][0]), catalogue.load_system(SYSTEM)
    rows = []
    for case in table["layer"]:
        training = Training(
            SEQUENCE,
            table["model"][0]["microbatch"],
            tensor=8,
            sequence_parallel=case.get("sequence_parallel", False),
            recompute=case.get("recompute", "none"),
            flash_attention=False,
        )
        seconds = layer_costs(model, training, system, 0).seconds
        for kind in (Kind.F, Kind.B):
            predicted = 1000 * float(seconds[kind])
            fitted = kind is Kind.F and case["name"] == "baseline"
            rows.append(Row(f"{case['name']}, {kind.name}", float(case[kind.name]), predicted, fitted=fitted))
    return Study(
        "layer times",
        table["source"],
        "ms",
        tuple(rows),
        "fitted: the efficiency of matrix products (0.7), on the baseline's forward; the memory's (0.8) is estimated",
    )


def korthikanti_iterations() -> Study:
    """Times of an iteration of models of 22B to 1T parameters."""
    table = _table("korthikanti")
    rows = []
    for model in table["model"]:
        for recompute in ("full", "selective"):
            training = Training(
                SEQUENCE,
                model["microbatch"],
                tensor=8,
                sequence_parallel=recompute == "selective",
                recompute=recompute,
                flash_attention=False,
            )
            microbatches = model["batch"] // model["microbatch"]
            predicted = _iteration(_gpt(model), training, model["pipeline"], microbatches, model["chunks"])
            rows.append(Row(f"{model['name']}, {recompute} recomputation", float(model[recompute]), predicted))
    return Study(
        "iteration times",
        table["source"],
        "s",
        tuple(rows),
        "nothing fitted on these; selective recomputation with sequence parallelism; the optimiser's step is added",
    )


def megatron_throughput() -> Study:
    """FLOP/s a GPU of ten models in training, from 1.7B to 1T parameters."""
    table = _table("megatron")
    rows = []
    for model in table["model"]:
        tensor, pipeline, layers = model["tensor"], model["pipeline"], model["layers"]
        data = model["devices"] // (tensor * pipeline)
        microbatches = model["batch"] // data
        fitting = [n for n in (1, 2, 3, 4) if layers % (pipeline * n) == 0 and microbatches % pipeline == 0]
        chunks = max(fitting, default=1) if pipeline > 1 else 1
        training = Training(SEQUENCE, tensor=tensor, data=data, recompute="full", flash_attention=False)
        seconds = _iteration(_gpt(model), training, pipeline, microbatches, chunks)
        width = model["hidden"]
        # The paper's own count, with what is recomputed: its section 5.1.
        extra = 1 + SEQUENCE / (6 * width) + VOCABULARY / (16 * layers * width)
        flops = 96 * model["batch"] * SEQUENCE * layers * width**2 * extra
        rows.append(Row(model["name"], float(model["tflops"]), flops / seconds / model["devices"] / 1e12))
    return Study(
        "throughput of ten models",
        table["source"],
        "TFLOP/s a GPU",
        tuple(rows),
        "nothing fitted on these; the table does not say microbatches and stages a device: 1 sequence, and the most "
        "stages up to 4 that divide layers and microbatches",
    )


_SCHEDULES: dict[str, tuple[str, int]] = {"1F1B": ("1f1b", 0), "ZB-1p": ("zb-auto", 1), "ZB-2p": ("zb-auto", 2)}
"""Ours for the paper's, and the memory limit in activations a device of the pipeline; 0 for none."""


def _zero_bubble() -> list[tuple[dict[str, Any], str, float, float]]:
    """Row of the table, schedule, our makespan in s and bubble ratio by the paper's definition."""
    found = []
    for row in _table("zero_bubble")["row"]:
        times: dict[str, Any] = {name: Fraction(row[key]) / 1000 for name, key in _TIMES.items()}
        for paper, (name, limit) in _SCHEDULES.items():
            memory = str(limit * row["pipeline"]) if limit else None
            costs = AbstractCosts(unit="s", memory_limit=memory, **times)
            result = api.evaluate(name, costs, row["pipeline"], row["microbatches"], engine="longest-path")
            work = row["microbatches"] * (times["forward"] + times["input_grad"] + times["weight_grad"])
            span = result.longest_device_span
            found.append((row, paper, float(span), float((span - work) / span)))
    return found


_TIMES = {"forward": "F", "input_grad": "I", "weight_grad": "W", "comm_time": "transfer"}


def zero_bubble() -> tuple[Study, Study]:
    """Bubble rates by the paper's own model, and throughputs measured, of 1F1B, ZB-1p and ZB-2p."""
    source = _table("zero_bubble")["source"]
    found = _zero_bubble()
    bubbles = [
        Row(_name(row, paper), 1 - float(row["bubble"][paper]), 1 - bubble, group=_name(row, ""))
        for row, paper, _, bubble in found
    ]
    ideal = [
        (row, paper, row["microbatches"] * row["microbatch"] / row["pipeline"] / span) for row, paper, span, _ in found
    ]
    models = list(dict.fromkeys(row["model"] for row, *_ in found))
    fits = set(models[::2])
    slower = median(
        float(row["throughput"][paper]) / value
        for row, paper, value in ideal
        if row["model"] in fits and paper == "1F1B"
    )
    rows = [
        Row(
            _name(row, paper),
            float(row["throughput"][paper]),
            value * slower,
            group=_name(row, ""),
            fitted=row["model"] in fits and paper == "1F1B",
        )
        for row, paper, value in ideal
    ]
    return (
        Study(
            "bubble rates",
            source,
            "1 - bubble rate",
            tuple(bubbles),
            "the paper's own model, not a measurement, bubble rates to four decimals; its ZB-2p keeps the longest "
            "device span short, ours (zb-auto) the makespan",
        ),
        Study(
            "throughput by schedule",
            source,
            "samples a GPU a second",
            tuple(rows),
            f"fitted: one factor ({slower:.3f}) on all, on 1F1B of {' and '.join(sorted(fits))}; times of ops and "
            "transfers are the paper's",
        ),
    )


_SAME_LIMIT = {"1F1B": "1f1b", "ZB-1p": "zb-h1", "ZB-2p": "zb-h2"}
"""Ours with the same activations in flight."""


def zero_bubble_memory() -> Study:
    """Memory at the peak of 1F1B, ZB-1p and ZB-2p."""
    table = _table("zero_bubble")
    rows = []
    for model in table["model"]:
        training = Training(model["sequence"], model["microbatch"], flash_attention=False)
        architecture = replace(_gpt(model), tied=False, positions=model["sequence"])
        costs = TransformerCosts(architecture, training, catalogue.load_system(SYSTEM))
        for paper, name in _SAME_LIMIT.items():
            result = api.evaluate(name, costs, model["pipeline"], model["microbatches"], engine="longest-path")
            peak = max(device.peak_memory or 0 for device in result.devices)
            rows.append(Row(f"{model['name']}, {paper}", float(model["memory"][paper]), peak / 1e9, model["name"]))
    return Study(
        "peak memory",
        table["source"],
        "GB",
        tuple(rows),
        "nothing fitted; zb-h1 and zb-h2 stand for ZB-1p and ZB-2p, whose limits are the same; assumed are a "
        "vocabulary of 51200, and GB of 10^9 bytes",
    )


VTRAIN = "github.com/VIA-Research/vTrain (f8dda84), data/ground_truth_single.csv; Bang et al., arXiv:2312.12391"
_SMALL = Fraction(1, 5)
"""Efficiency of matrix products of width 1024 and 2048 on an A100, fitted on every second row of the table."""


def vtrain_scaling() -> tuple[Study, Study]:
    """How much longer an iteration takes with a deeper pipeline on as many GPUs: our model's and the plain rule's.

    The plain rule: an iteration of m microbatches on p devices takes (m + p - 1) / p. Every eighth pair of the
    published runs on one node of 8 A100 that differ in the degrees of pipeline and data parallelism only.
    """
    system = catalogue.load_system(SYSTEM)
    system = replace(system, compute=replace(system.compute, products=_SMALL))
    text = files("explorer.validation").joinpath("data").joinpath("vtrain.csv").read_text("utf-8")
    ours, plain = [], []
    for number, row in enumerate(csv.DictReader(text.splitlines())):
        case = {name: float(value) if name.endswith("ms") else int(value) for name, value in row.items()}
        depths = (int(case["pipeline"]), int(case["deeper_pipeline"]))
        measured = case["deeper_ms"] / case["ms"]
        runs = [_vtrain_run(case, depth) for depth in depths]
        seconds = [
            _iteration(model, training, depth, count, 1, system)
            for depth, (model, training, count) in zip(depths, runs, strict=True)
        ]
        rule = [(count + depth - 1) / depth for depth, (_, _, count) in zip(depths, runs, strict=True)]
        size = (
            f"{case['gpus']} GPUs, {case['layers']} x {case['hidden']}, tensor {case['tensor']}, batch {case['batch']}"
        )
        what = f"{size} of {case['microbatch']}, pipeline {depths[0]} to {depths[1]}"
        ours.append(Row(what, measured, seconds[1] / seconds[0], fitted=number % 2 == 0))
        plain.append(Row(what, measured, rule[1] / rule[0], fitted=number % 2 == 0))
    told = "fitted: the efficiency of matrix products (0.2: the models are small), on every second row"
    aside = "for comparison, on the same rows: nothing but (m + p - 1) / p"
    return (
        Study("deeper pipelines", VTRAIN, "ratio of iteration times", tuple(ours), told),
        Study("deeper pipelines, plain rule", VTRAIN, "ratio of iteration times", tuple(plain), aside),
    )


def _vtrain_run(case: dict[str, Any], depth: int) -> tuple[Architecture, Training, int]:
    """A model, its training and its microbatches at one depth of the pipeline."""
    data = case["gpus"] // (case["tensor"] * depth)
    model = replace(_gpt({"name": "vTrain", **case}), positions=case["sequence"])
    training = Training(case["sequence"], case["microbatch"], tensor=case["tensor"], data=data, flash_attention=False)
    return model, training, case["batch"] // (case["microbatch"] * data)


def all_studies() -> list[Study]:
    """Every study, in the order in which it is told."""
    return [
        korthikanti_layers(),
        korthikanti_iterations(),
        megatron_throughput(),
        *zero_bubble(),
        zero_bubble_memory(),
        *vtrain_scaling(),
    ]


def _name(row: dict[str, Any], schedule: str) -> str:
    size = f"{row['model']}, {row['pipeline']} x {row['microbatches']}"
    return f"{size}, {schedule}" if schedule else size


def _iteration(
    model: Architecture,
    training: Training,
    pipeline: int,
    microbatches: int,
    chunks: int,
    system: System | None = None,
) -> float:
    """Seconds from the first forward to the end of the optimiser's step."""
    costs = TransformerCosts(model, training, system or catalogue.load_system(SYSTEM), optimizer=True)
    name, options = ("interleaved-1f1b", {"chunks": chunks}) if chunks > 1 else ("1f1b", {})
    result = api.evaluate(name, costs, pipeline, microbatches, options=options, engine="longest-path")
    return float(result.makespan)


def _gpt(model: dict[str, Any]) -> Architecture:
    heads, hidden = model["heads"], model["hidden"]
    return Architecture(
        model["name"], model["layers"], hidden, heads, heads, hidden // heads, 4 * hidden, VOCABULARY, tied=True,
        positions=SEQUENCE,
    )  # fmt: skip


def _table(name: str) -> dict[str, Any]:
    file = f"{name}.toml"
    return parse(files("explorer.validation").joinpath("data").joinpath(file).read_text("utf-8"), file)
