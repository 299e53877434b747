"""torchtitan's TOML, as its train_configs were until 2025 (github.com/pytorch/torchtitan, config/job_config.py).

The file names a model's flavor and gives no sizes: those of `FLAVORS` ship with the project.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from explorer.config.decode import parse
from explorer.core.errors import Malformed, UsageError, nearest
from explorer.costs.architecture import Architecture
from explorer.costs.layout import split
from explorer.costs.reading.launch import Launch
from explorer.costs.training import Training

FLAVORS = {
    ("llama3", "8B"): "llama3-8b",
    ("llama3", "70B"): "llama3-70b",
    ("llama3", "405B"): "llama3-405b",
    ("deepseek_v3", "671B"): "deepseek-v3",
}
"""Models that ship, by name and flavor."""
SCHEDULES = {
    "1F1B": "1f1b",
    "GPipe": "gpipe",
    "LoopedBFS": "looped-bfs",
    "Interleaved1F1B": "interleaved-1f1b",
    "InterleavedZeroBubble": "interleaved-zb",
    "ZBVZeroBubble": "zb-v",
    "DualPipeV": "dualpipe-v",
}
"""Ours, by the names of torch.distributed.pipelining."""
_TABLES = ("parallelism", "training", "activation_checkpoint")
_PREFIX = "pipeline_parallel_"


def flavor(text: str, where: str) -> str:
    """The name of the shipped model that the file is for.

    Raises
    ------
    Malformed
        If it is no TOML.
    UsageError
        If its model does not ship; the message says which do.
    """
    model = _table(parse(text, where), "model", where)
    wanted = (str(model.get("name", "")), str(model.get("flavor", "")))
    if wanted not in FLAVORS:
        known = ", ".join(f"{name} {size}" for name, size in FLAVORS)
        raise UsageError(
            f"{where}: the sizes of {' '.join(wanted).strip() or 'no model'} are not known; known: {known}"
        )
    return FLAVORS[wanted]


def launch(text: str, where: str, architecture: Architecture) -> Launch:
    """How a torchtitan file trains a model.

    Raises
    ------
    Malformed
        If a value is of the wrong type.
    UsageError
        If the schedule is not known, or the local batch is no whole number of microbatches.
    """
    given = parse(text, where)
    parallelism, training, checkpoint = (_Table(_table(given, name, where), f"{where}: [{name}]") for name in _TABLES)
    pipeline = parallelism.count("pipeline_parallel_degree", 1)
    name = parallelism.text(f"{_PREFIX}schedule", "1F1B")
    by_name = {known.lower(): ours for known, ours in SCHEDULES.items()}
    if name.lower() not in by_name:
        raise UsageError(f"{where}: no schedule is called {name!r}; {nearest(name, list(SCHEDULES))}")
    schedule = by_name[name.lower()]
    assumed = []
    shard = parallelism.whole("data_parallel_shard_degree", -1)
    if shard == -1:
        assumed.append("data_parallel_shard_degree is -1: assumed is 1 data-parallel copy, give --data-parallel")
    data = max(1, shard) * parallelism.count("data_parallel_replicate_degree", 1)
    local = training.count("local_batch_size", training.count("batch_size", 8))
    microbatch = parallelism.count(f"{_PREFIX}microbatch_size", 1) if pipeline > 1 else local
    if local % microbatch:
        raise UsageError(f"{where}: a local batch of {local} is no whole number of microbatches of {microbatch}")
    mode, batch = checkpoint.text("mode", "selective"), training.whole("global_batch_size", -1)
    if mode == "selective":
        assumed.append(
            "torchtitan's selective checkpointing of ops or of some layers is not modelled: nothing is recomputed"
        )
    stages, pieces = _stages(parallelism, architecture, pipeline, schedule)
    tensor = parallelism.count("tensor_parallel_degree", 1)
    expert = parallelism.count("expert_parallel_degree", 1)
    told = replace(architecture, assumed=(*architecture.assumed, *assumed))
    return Launch(
        told,
        Training(
            sequence=training.count("seq_len", 2048),
            microbatch=microbatch,
            global_batch=batch if batch > 0 else local * max(data, expert),
            tensor=tensor,
            context=parallelism.count("context_parallel_degree", 1),
            expert=expert,
            data=max(data, expert),
            sequence_parallel=tensor > 1,
            recompute="none" if mode == "selective" else mode,
            sharded_parameters=shard != 1,
        ),
        pipeline,
        stages // pipeline,
        schedule,
        pieces,
    )


def _stages(parallelism: _Table, architecture: Architecture, pipeline: int, schedule: str) -> tuple[int, Any]:
    """How many stages there are, and what they hold: the ends have fewer layers, as their weights say."""
    less = [parallelism.whole(f"{_PREFIX}{end}_stage_less_layers", 1) for end in ("first", "last")]
    whole = architecture.layers + sum(less)
    each = parallelism.whole(f"{_PREFIX}layers_per_stage", 0)
    stages = -(-whole // each) if each else pipeline * (1 if schedule in ("1f1b", "gpipe") else 2)
    if stages == 1:
        return 1, None
    if stages % pipeline:
        raise UsageError(
            f"{architecture.layers} layers, with {' and '.join(map(str, less))} for the ends, at {each} a stage make "
            f"{stages} stages, no multiple of {pipeline} devices"
        )
    even, more = divmod(whole, stages)
    first, last = even + (more > 0) - less[0], even - less[1]
    return stages, split(architecture, stages, max(first, 0), max(last, 0))


class _Table:
    def __init__(self, given: Mapping[str, Any], where: str) -> None:
        self.given, self.where = given, where

    def whole(self, name: str, default: int) -> int:
        value = self.given.get(name, default)
        if type(value) is not int:
            raise Malformed(f"{name} must be a whole number, got {value!r}", self.where)
        return value

    def count(self, name: str, default: int) -> int:
        value = self.whole(name, default)
        if value < 1:
            raise Malformed(f"{name} must be at least 1, got {value}", self.where)
        return value

    def text(self, name: str, default: str) -> str:
        value = self.given.get(name, default)
        if not isinstance(value, str):
            raise Malformed(f"{name} must be text, got {value!r}", self.where)
        return value


def _table(given: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    value = given.get(name, {})
    if not isinstance(value, dict):
        raise Malformed(f"{name} must be a table", where)
    return value
