"""The published tables that we predict, one function each.

Numbers of a system are fitted on the rows that say so, and the others judge them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from explorer.config import catalogue
from explorer.core.errors import UsageError, nearest
from explorer.core.op import Kind
from explorer.costs.architecture import Architecture
from explorer.costs.layers import layer_costs
from explorer.costs.problem import TransformerCosts
from explorer.costs.training import Training
from explorer.validation import vtrain, zero_bubble
from explorer.validation.results import Row, Study
from explorer.validation.tables import SEQUENCE, SYSTEM, VOCABULARY, gpt, iteration_seconds, table_of

_FITTED = (
    "fitted: matrix products at 0.78 of their peak, half of that at 4e10 operations, on the iterations with full "
    "recomputation"
)


def korthikanti_layers() -> Study:
    """Times of one layer of a model of 22B parameters."""
    table = table_of("korthikanti")
    model, system = gpt(table["model"][0]), catalogue.load_system(SYSTEM)
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
        f"{_FITTED}, and on the baseline's forward; the memory's efficiency (0.8) is estimated",
    )


def korthikanti_iterations() -> Study:
    """Times of an iteration of models of 22B to 1T parameters."""
    table = table_of("korthikanti")
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
            predicted = _iteration(gpt(model), training, model["pipeline"], microbatches, model["chunks"])
            what = f"{model['name']}, {recompute} recomputation"
            rows.append(Row(what, float(model[recompute]), predicted, fitted=recompute == "full"))
    return Study(
        "iteration times",
        table["source"],
        "s",
        tuple(rows),
        f"{_FITTED}; selective recomputation goes with sequence parallelism; the optimiser's step is added",
    )


def megatron_throughput() -> Study:
    """FLOP/s a GPU of ten models in training, from 1.7B to 1T parameters."""
    table = table_of("megatron")
    rows = []
    for model in table["model"]:
        tensor, pipeline, layers = model["tensor"], model["pipeline"], model["layers"]
        data = model["devices"] // (tensor * pipeline)
        seconds = min(
            _iteration(
                gpt(model),
                Training(SEQUENCE, size, tensor=tensor, data=data, recompute="full", flash_attention=False),
                pipeline,
                model["batch"] // (data * size),
                _chunks(pipeline, layers, model["batch"] // (data * size)),
            )
            for size in (1, 2, 4, 8)
            if model["batch"] % (data * size) == 0
        )
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
        "nothing fitted on these; the table does not say microbatches and stages a device: taken are the fastest of 1, "
        "2, 4 and 8 sequences, and the most stages up to 4 that divide layers and microbatches",
    )


def _chunks(pipeline: int, layers: int, microbatches: int) -> int:
    """The most stages a device, up to 4, that divide the layers; one where microbatches are no multiple of devices."""
    if pipeline == 1 or microbatches % pipeline:
        return 1
    return max(number for number in (1, 2, 3, 4) if number == 1 or layers % (pipeline * number) == 0)


STUDIES: dict[str, Callable[[], list[Study]]] = {
    "korthikanti": lambda: [korthikanti_layers(), korthikanti_iterations()],
    "megatron": lambda: [megatron_throughput()],
    "zero-bubble": zero_bubble.studies,
    "vtrain": vtrain.studies,
}
"""By the source that they recompute, in the order in which they are told."""


def all_studies(names: Collection[str] = ()) -> list[Study]:
    """Every study of the sources that are named; of all by default.

    Raises
    ------
    UsageError
        If there is no such source.
    """
    for name in names:
        if name not in STUDIES:
            raise UsageError(f"no published measurements are called {name!r}; {nearest(name, STUDIES)}")
    return [study for name, of in STUDIES.items() if not names or name in names for study in of()]


def _iteration(model: Architecture, training: Training, pipeline: int, microbatches: int, chunks: int) -> float:
    costs = TransformerCosts(model, training, catalogue.load_system(SYSTEM), optimizer=True)
    return iteration_seconds(costs, pipeline, microbatches, chunks)
