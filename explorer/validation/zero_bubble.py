"""The measurements of the zero-bubble paper, arXiv:2401.10241.

Its throughputs come from ops as long as it measured them. Each send keeps its device busy, as with Megatron-LM's waits
for point-to-point messages; the bubble rates are those of its own model, in which transfers only delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from statistics import median
from typing import Any

from explorer import api
from explorer.config import catalogue
from explorer.config.recipe import AbstractCosts
from explorer.core.problem import Communication
from explorer.costs.problem import TransformerCosts
from explorer.costs.training import Piece, Training
from explorer.evaluation.results import Evaluation
from explorer.validation.results import Row, Study
from explorer.validation.tables import SYSTEM, gpt, table_of

FITTED = "1.5B"
"""The model whose throughputs the factor is fitted on; the others judge it."""

_SCHEDULES: dict[str, tuple[str, int]] = {
    "1F1B": ("1f1b", 0),
    "1F1B-I": ("interleaved-1f1b", 0),
    "ZB-H1": ("zb-h1", 0),
    "ZB-H2": ("zb-h2", 0),
    "ZB-1p": ("zb-auto", 1),
    "ZB-2p": ("zb-auto", 2),
}
"""Ours for the paper's, and the memory limit in activations a device of the pipeline; 0 for none."""

_TIMES = {"forward": "F", "input_grad": "I", "weight_grad": "W", "comm_time": "transfer"}


def studies() -> list[Study]:
    """Every study of that paper."""
    return [_bubbles(), _throughputs(), _few_microbatches(), _steps(), _memory()]


@cache
def _data() -> dict[str, Any]:
    return table_of("zero_bubble")


def _model(name: str) -> dict[str, Any]:
    return next(model for model in _data()["model"] if model["name"] == name)


def _ticks(row: dict[str, Any]) -> dict[str, Any]:
    return {name: Fraction(row[key]) / 1000 for name, key in _TIMES.items()}


def _freed_at_input(model: dict[str, Any]) -> Fraction:
    """Of what a layer's F stores, 34 h + 5 a s a token, W frees 32 h and I the rest (section 4 of the paper)."""
    width = model["hidden"]
    return 1 - Fraction(32 * width, 34 * width + 5 * model["heads"] * model["sequence"])


def _evaluate(row: dict[str, Any], paper: str, microbatches: int, communication: Communication) -> Evaluation:
    """One of the paper's schedules with a row's times, in s; automatic ones keep the longest device span short."""
    name, limit = _SCHEDULES[paper]
    model = _model(row["model"] if "model" in row else row["name"])
    options: dict[str, object] = {"chunks": model["chunks"]} if paper == "1F1B-I" else {}
    if limit:
        options["objective"] = "span"
    costs = AbstractCosts(
        unit="s",
        communication=communication,
        freed_at_input=_freed_at_input(model),
        memory_limit=str(limit * model["pipeline"]) if limit else None,
        **_ticks(row),
    )
    return api.evaluate(name, costs, model["pipeline"], microbatches, options=options, engine="longest-path")


def _samples(row: dict[str, Any], paper: str, microbatches: int) -> float:
    """Samples a GPU a second, if nothing took time but ops and sends."""
    model = _model(row["model"] if "model" in row else row["name"])
    span = _evaluate(row, paper, microbatches, Communication.BLOCKING).longest_device_span
    return float(microbatches * model["microbatch"] / model["pipeline"] / span)


def _bubbles() -> Study:
    rows = []
    for row in _data()["row"]:
        work = row["microbatches"] * sum(time for name, time in _ticks(row).items() if name != "comm_time")
        for paper, rate in row["bubble"].items():
            span = _evaluate(row, paper, row["microbatches"], Communication.LATENCY).longest_device_span
            rows.append(Row(f"{_size(row)}, {paper}", 1 - float(rate), float(work / span)))
    return Study(
        "bubble rates",
        _data()["source"],
        "1 - bubble rate",
        tuple(rows),
        "nothing fitted; the paper's own model, not a measurement, to four decimals. Of 1F1B-I the authors' tool lets "
        "devices run ahead of their input by a transfer each, ours does not; of ZB-2p ours may be the better order",
    )


def _throughput_pairs() -> Iterator[tuple[dict[str, Any], str, float, float]]:
    for row in _data()["row"]:
        for paper, measured in row["throughput"].items():
            yield row, paper, float(measured), _samples(row, paper, row["microbatches"])


@cache
def _factor() -> float:
    """What is measured for what we compute, on the model that it is fitted on."""
    return median(measured / ours for row, _, measured, ours in _throughput_pairs() if row["model"] == FITTED)


def _throughputs() -> Study:
    rows = tuple(
        Row(f"{_size(row)}, {paper}", measured, ours * _factor(), group=_size(row), fitted=row["model"] == FITTED)
        for row, paper, measured, ours in _throughput_pairs()
    )
    return Study(
        "throughput by schedule",
        _data()["source"],
        "samples a GPU a second",
        rows,
        f"fitted: one factor ({_factor():.3f}), on {FITTED}, and there too that sends keep their device busy; times of "
        "ops and transfers are the paper's",
    )


def _few_microbatches() -> Study:
    rows = []
    for few in _data()["few"]:
        times = next((row for row in _data()["row"] if row["model"] == few["model"]), _model(few["model"]))
        for paper, measured in few["throughput"].items():
            ours = _samples(times, paper, few["microbatches"]) * _factor()
            rows.append(Row(f"{_size(few)}, {paper}", float(measured), ours, group=_size(few)))
    return Study(
        "few microbatches",
        _data()["source"],
        "samples a GPU a second",
        tuple(rows),
        "nothing fitted on these: the factor is that of the throughputs; times of ops are those with many microbatches",
    )


def _steps() -> Study:
    rows = []
    for step in _data()["step"]:
        times = next((row for row in _data()["row"] if row["model"] == step["model"]), _model(step["model"]))
        result = _evaluate(times, "ZB-2p", step["microbatches"], Communication.BLOCKING)
        predicted = float(result.longest_device_span / result.makespan)
        rows.append(Row(_size(step), float(step["reduced"] / step["validated"]), predicted))
    return Study(
        "synchronised optimiser's step",
        _data()["source"],
        "throughput with an all-reduce before the step, relative to without",
        tuple(rows),
        "nothing fitted: longest device span over makespan of ZB-2p",
    )


def _memory() -> Study:
    rows = []
    for model in _data()["model"]:
        if "memory" not in model:
            continue
        training = Training(model["sequence"], model["microbatch"], flash_attention=False)
        architecture = replace(gpt(model), tied=False, positions=model["sequence"])
        layers, chunks = model["layers"], model["pipeline"] * model["chunks"]
        for paper, measured in model["memory"].items():
            # ZB-1p and ZB-2p have the limits of ZB-H1 and ZB-H2.
            name = {"ZB-1p": "zb-h1", "ZB-2p": "zb-h2"}.get(paper) or _SCHEDULES[paper][0]
            pieces, options = None, {}
            if paper == "1F1B-I":  # one layer a chunk, but for the ends, which hold the embedding and the head
                options = {"chunks": model["chunks"]}
                pieces = (
                    Piece(range(0), embedding=True),
                    *(Piece(range(layer, layer + 1)) for layer in range(layers)),
                    Piece(range(0), head=True),
                )
                assert len(pieces) == chunks, "the table's layers fill the chunks"
            costs = TransformerCosts(architecture, training, catalogue.load_system(SYSTEM), pieces)
            result = api.evaluate(
                name, costs, model["pipeline"], model["microbatches"], options=options, engine="longest-path"
            )
            peak = max(device.peak_memory or 0 for device in result.devices)
            rows.append(Row(f"{model['name']}, {paper}", float(measured), peak / 1e9, model["name"]))
    return Study(
        "peak memory",
        _data()["source"],
        "GB",
        tuple(rows),
        "nothing fitted; zb-h1 and zb-h2 stand for ZB-1p and ZB-2p, whose limits are the same; assumed are a "
        "vocabulary of 51200, and GB of 10^9 bytes",
    )


def _size(row: dict[str, Any]) -> str:
    return f"{row['model']}, {_model(row['model'])['pipeline']} x {row['microbatches']}"
