"""Settings that could be, and which of them are legal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import product

import schedules
from explorer.config.recipe import AbstractCosts
from explorer.config.system import System
from explorer.core.errors import UsageError
from explorer.core.placement import loop, vee
from explorer.costs.architecture import Architecture
from explorer.costs.balance import balanced
from explorer.costs.degrees import misfit, nearest_divisor, tensor_misfit
from explorer.costs.layout import format_layout, split
from explorer.costs.problem import TransformerCosts
from explorer.costs.training import Piece, Training
from explorer.evaluation.case import case_of

SCHEDULES = ("1f1b", "interleaved-1f1b", "zb-h1", "zb-v", "v-half")
"""Those tried unless others are asked for; 1F1B and its interleaved kin are what Megatron-LM runs."""
_MICROBATCHES = (1, 2, 4, 8)
_LEAST_TOKENS = 8192
"""Tokens that a context-parallel rank has at least: shorter sequences are not split."""
_CHUNKS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20)


class Pattern(Enum):
    """Which stages a schedule puts on one device."""

    ROUND = "round and round"
    VEE = "down the devices and up again"
    OTHER = "in another way"


@dataclass(frozen=True)
class Shape:
    """What a plan needs to know of a schedule, whatever the sizes.

    Parameters
    ----------
    stages
        A device, by default.
    pattern
        Which of them.
    splits
        Whether W runs apart from I.
    dealt
        Whether the number of stages a device is an option of its own.
    flushes
        Whether weights are updated once, at the end.
    """

    stages: int
    pattern: Pattern
    splits: bool
    dealt: bool
    flushes: bool


@cache
def shape(name: str) -> Shape:
    """The shape of a schedule, read off a small one."""
    named = schedules.find(name)
    costs = AbstractCosts()
    small = named(*_SMALL, recipe=costs.problem)
    placement = small.placement
    case = case_of(costs.problem(placement), placement, {}, split=small.splits_backward)
    stages = placement.stages // placement.devices
    pattern = Pattern.OTHER
    if stages and placement == loop(*_SMALL, stages):
        pattern = Pattern.ROUND
    elif placement == vee(*_SMALL):
        pattern = Pattern.VEE
    return Shape(
        max(stages, 1), pattern, small.splits_backward, "chunks" in named.options, named.asynchrony(case) is None
    )


_SMALL = (4, 8)
"""Devices and microbatches of the schedule that `shape` looks at."""


@dataclass(frozen=True)
class Wish:
    """What is to be trained, and on what.

    Parameters
    ----------
    devices, global_batch, sequence
        GPUs, sequences an iteration, tokens a sequence.
    schedules
        By name.
    memory
        Bytes of a device that may be used; all that the system has by default.
    """

    architecture: Architecture
    system: System
    devices: int
    global_batch: int
    sequence: int
    schedules: tuple[str, ...] = SCHEDULES
    memory: int | None = None

    def __post_init__(self) -> None:
        for name in ("devices", "global_batch", "sequence"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name.replace('_', ' ')} must be at least 1, got {getattr(self, name)}")
        if self.memory is not None and not 0 < self.memory <= self.system.memory.size:
            raise UsageError(
                f"a device has {int(self.system.memory.size)} bytes, of which {self.memory} cannot be used"
            )
        if self.system.nodes and self.devices > self.system.nodes * self.system.devices_per_node:
            raise UsageError(
                f"{self.devices} devices are asked for, and the system has "
                f"{self.system.nodes * self.system.devices_per_node}"
            )

    @property
    def room(self) -> int:
        """Bytes of a device that may be used."""
        return int(self.system.memory.size) if self.memory is None else self.memory


@dataclass(frozen=True)
class Candidate:
    """One setting.

    Parameters
    ----------
    tensor, pipeline, context, expert, microbatch
        Degrees, and sequences a microbatch.
    schedule, virtual
        Its name, and stages a device.
    recompute
        See `explorer.costs.training.RECOMPUTE`.
    balanced
        Whether layers are spread by time (`explorer.costs.balance`) rather than by number.
    sequence_parallel, distributed_optimizer
        As of `explorer.costs.training.Training`.
    """

    tensor: int
    pipeline: int
    microbatch: int
    schedule: str = "1f1b"
    virtual: int = 1
    recompute: str = "none"
    expert: int = 1
    context: int = 1
    balanced: bool = False
    sequence_parallel: bool = True
    distributed_optimizer: bool = True

    def data(self, wish: Wish) -> int:
        """Data-parallel copies."""
        return wish.devices // self.group

    @property
    def group(self) -> int:
        """Devices of one copy."""
        return self.tensor * self.pipeline * self.context

    def microbatches(self, wish: Wish) -> int:
        """Of one copy."""
        return wish.global_batch // (self.microbatch * self.data(wish))

    def training(self, wish: Wish) -> Training:
        """The same, as costs take it, with flash attention."""
        return Training(
            wish.sequence,
            self.microbatch,
            wish.global_batch,
            tensor=self.tensor,
            context=self.context,
            expert=self.expert,
            data=self.data(wish),
            sequence_parallel=self.sequence_parallel and self.tensor > 1,
            recompute=self.recompute,
            distributed_optimizer=self.distributed_optimizer,
        )

    @property
    def stages(self) -> int:
        """Of the pipeline."""
        return self.pipeline * self.virtual

    def costs(self, wish: Wish) -> TransformerCosts:
        """Of an iteration with the optimiser's step."""
        return TransformerCosts(
            wish.architecture,
            self.training(wish),
            wish.system,
            memory_limit=f"{wish.room} B",
            optimizer=True,
            balance=self.balanced,
        )

    def pieces(self, wish: Wish) -> tuple[Piece, ...]:
        """What each stage holds."""
        if self.balanced:
            return balanced(wish.architecture, self.training(wish), wish.system, self.stages)
        return split(wish.architecture, self.stages)

    @property
    def options(self) -> dict[str, object]:
        """The schedule's own."""
        return {"chunks": self.virtual} if shape(self.schedule).dealt else {}

    def words(self, wish: Wish) -> list[str]:
        """As `explorer evaluate` and `explorer export` take it, behind a model and a system."""
        training = self.training(wish)
        given = {
            "--pp": self.pipeline,
            "-M": self.microbatches(wish),
            **{f"--{name}": value for name, value in self.options.items()},
            "--tp": self.tensor,
            "--cp": self.context,
            "--ep": self.expert,
            "--data-parallel": training.data,
            "--sequence": wish.sequence,
            "--microbatch-size": self.microbatch,
            "--global-batch": wish.global_batch,
            "--recompute": self.recompute,
            "--layout": format_layout(self.pieces(wish)),
            "--mem-limit": f"{wish.room}B",
        }
        words = [word for name, value in given.items() for word in (name, str(value))]
        if training.sequence_parallel:
            words.append("--sequence-parallel")
        if training.distributed_optimizer:
            words.append("--distributed-optimizer")
        return [*words, "--optimizer"]

    def flags(self, wish: Wish) -> str | None:
        """As Megatron-LM takes it; None for a schedule that it does not have."""
        if self.schedule not in ("1f1b", "interleaved-1f1b"):
            return None
        words = [
            f"--tensor-model-parallel-size {self.tensor}",
            f"--pipeline-model-parallel-size {self.pipeline}",
            f"--micro-batch-size {self.microbatch}",
        ]
        if self.distributed_optimizer:
            words.append("--use-distributed-optimizer")
        if self.sequence_parallel and self.tensor > 1:
            words.append("--sequence-parallel")
        if self.context > 1:
            words.append(f"--context-parallel-size {self.context}")
        if self.expert > 1:
            words.append(f"--expert-model-parallel-size {self.expert}")
        if self.pipeline > 1 and (self.balanced or wish.architecture.layers % self.stages):
            # It tells the stages a device too: Megatron-LM takes no other argument for them beside it.
            words.append(f"--pipeline-model-parallel-layout '{format_layout(self.pieces(wish))}'")
        elif self.virtual > 1:
            words.append(f"--num-virtual-stages-per-pipeline-rank {self.virtual}")
        if self.recompute == "full":
            words.append("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
        if self.recompute == "selective":
            words.append("--recompute-granularity selective")
        return " ".join(words)


_TITAN = {
    "1f1b": "1F1B",
    "gpipe": "GPipe",
    "interleaved-1f1b": "Interleaved1F1B",
    "zb-v": "ZBVZeroBubble",
    "interleaved-zb": "InterleavedZeroBubble",
    "dualpipe-v": "DualPipeV",
}
"""Names of torch.distributed.pipelining for ours."""


def titan_flags(candidate: Candidate, wish: Wish) -> str | None:
    """As torchtitan takes it; None where it has no such schedule or pipeline, or spreads layers in another way.

    Copies are sharded there (FSDP), which needs less memory than a distributed optimiser, and more messages.
    """
    layers = wish.architecture.layers
    if candidate.schedule not in _TITAN or candidate.balanced or candidate.pipeline == 1 or layers % candidate.stages:
        return None
    words = {
        "parallelism.pipeline_parallel_degree": candidate.pipeline,
        "parallelism.pipeline_parallel_schedule": _TITAN[candidate.schedule],
        "parallelism.pipeline_parallel_microbatch_size": candidate.microbatch,
        "parallelism.pipeline_parallel_layers_per_stage": layers // candidate.stages,
        "parallelism.pipeline_parallel_first_stage_less_layers": 0,
        "parallelism.pipeline_parallel_last_stage_less_layers": 0,
        "parallelism.tensor_parallel_degree": candidate.tensor,
        "parallelism.context_parallel_degree": candidate.context,
        "parallelism.expert_parallel_degree": candidate.expert,
        "parallelism.data_parallel_shard_degree": candidate.data(wish),
        "training.local_batch_size": candidate.microbatch * candidate.microbatches(wish),
        "training.seq_len": wish.sequence,
        "activation_checkpoint.mode": candidate.recompute,
    }
    return " ".join(f"--{name} {value}" for name, value in words.items())


def illegal(candidate: Candidate, wish: Wish) -> str | None:
    """Why a setting cannot run, with the nearest that can; None if nothing is known to be against it."""
    if not shape(candidate.schedule).flushes:
        return (
            f"{candidate.schedule} updates its weights within the run, and the iteration of a plan ends with one step "
            "of the optimiser; `explorer evaluate` runs it without one"
        )
    if wrong := tensor_misfit(wish.architecture, candidate.tensor, wish.system):
        return wrong
    if wish.devices % candidate.group:
        inside = candidate.tensor * candidate.context
        return (
            f"tensor x context x pipeline parallelism of {candidate.group} does not divide {wish.devices} devices; "
            + (
                f"nearest is a pipeline of {nearest_divisor(wish.devices // inside, candidate.pipeline)}"
                if wish.devices % inside == 0
                else f"nor does {inside} of the first two"
            )
        )
    ranks = candidate.data(wish) * candidate.context
    if ranks % candidate.expert:
        near = nearest_divisor(ranks, candidate.expert)
        return (
            f"expert parallelism of {candidate.expert} does not divide {ranks} data- and context-parallel ranks; "
            f"nearest is {near}"
        )
    return (
        misfit(wish.architecture, candidate.training(wish), wish.system)
        or _illegal_batch(candidate, wish)
        or _illegal_stages(candidate, wish)
    )


def sparse(candidate: Candidate, wish: Wish) -> str | None:
    """Why a setting that may run leaves most devices idle, so that a plan tries others first; None if it does not."""
    count, pipeline, each = (
        candidate.microbatches(wish),
        candidate.pipeline,
        candidate.microbatch * candidate.data(wish),
    )
    if count >= pipeline:
        return None
    return (
        f"{count} microbatches are fewer than {pipeline} pipeline devices, which leaves most of them idle; fewer "
        "data-parallel copies (more tensor parallelism), smaller microbatches or a batch of at least "
        f"{pipeline * each} give more"
    )


def _illegal_batch(candidate: Candidate, wish: Wish) -> str | None:
    data = candidate.data(wish)
    if wish.global_batch % (candidate.microbatch * data):
        each = candidate.microbatch * data
        near = max(each * candidate.pipeline, round(wish.global_batch / each) * each)
        return (
            f"a batch of {wish.global_batch} is no whole number of microbatches of {candidate.microbatch} in {data} "
            f"copies; nearest is a batch of {near}"
        )
    count, pipeline = candidate.microbatches(wish), candidate.pipeline
    if candidate.schedule == "interleaved-1f1b" and count % pipeline:
        near = max(1, round(count / pipeline)) * pipeline
        return f"interleaved stages need a multiple of {pipeline} microbatches, got {count}; nearest is {near}"
    return None


SAME_LAYERS = "layers spread by time are spread by number as well here"


def _illegal_stages(candidate: Candidate, wish: Wish) -> str | None:
    layers, stages = wish.architecture.layers, candidate.stages
    if candidate.schedule == "interleaved-1f1b" and layers % stages and not candidate.balanced:
        placed = layers // stages * stages
        legal = [n for n in range(1, layers // candidate.pipeline + 1) if layers % (candidate.pipeline * n) == 0]
        near = f"legal are {', '.join(map(str, legal))}" if legal else f"{candidate.pipeline} does not divide {layers}"
        return (
            f"{layers} layers do not divide into {candidate.pipeline} x {candidate.virtual} stages: only {placed} "
            f"would be placed evenly; {near} stages a device, or give a layout"
        )
    if layers < stages:
        return f"{layers} layers do not fill {stages} stages; use at most {layers}"
    if candidate.recompute == "full" and shape(candidate.schedule).splits:
        return (
            f"{candidate.schedule} runs W apart from I, and after recomputing whole layers that holds more than is "
            "modelled; use 1f1b or interleaved-1f1b, or recompute nothing"
        )
    if candidate.schedule != "1f1b" and candidate.pipeline == 1:
        return f"{candidate.schedule} on one pipeline device is 1f1b"
    if candidate.balanced and candidate.pieces(wish) == split(wish.architecture, stages):
        return SAME_LAYERS
    return None


def candidates(wish: Wish) -> Iterator[Candidate]:
    """Every setting of the grid, legal or not: degrees that divide, microbatches to 8, stages, recomputation."""
    tensors = [t for t in _powers(wish.system.devices_per_node) if wish.devices % t == 0]
    experts = [1] if wish.architecture.experts is None else list(_powers(wish.architecture.experts.count))
    contexts = list(_powers(max(1, wish.sequence // _LEAST_TOKENS)))
    for tensor, context in product(tensors, contexts):
        rest = wish.devices // (tensor * context)
        pipelines = [p for p in range(1, min(rest, wish.architecture.layers) + 1) if rest % p == 0]
        for pipeline, microbatch, recompute, expert in product(pipelines, _MICROBATCHES, ("none", "full"), experts):
            base = Candidate(tensor, pipeline, microbatch, recompute=recompute, expert=expert, context=context)
            yield from _with_schedules(base, wish.schedules)


def _with_schedules(base: Candidate, names: tuple[str, ...]) -> Iterator[Candidate]:
    for name in names:
        known = shape(name)
        for virtual, by_time in product(_CHUNKS if known.dealt else (known.stages,), (False, True)):
            yield replace(base, schedule=name, virtual=virtual, balanced=by_time)


def _powers(most: int) -> Iterator[int]:
    power = 1
    while power <= most:
        yield power
        power *= 2
