"""Megatron-LM's arguments: in a shell script, in a YAML map of arguments, or on a command line.

Names are those of github.com/NVIDIA/Megatron-LM, megatron/training/arguments.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from explorer.core.errors import Malformed, UsageError
from explorer.costs.architecture import MOST_LAYERS, Architecture, Experts, Latent
from explorer.costs.layout import parse_layout, split
from explorer.costs.reading.launch import Launch
from explorer.costs.training import Piece, Training

_ARGUMENT = re.compile(r"--[a-z][a-z0-9_-]*")
_KNOWN = (
    "--num-layers", "--hidden-size", "--ffn-hidden-size", "--num-attention-heads", "--num-query-groups",
    "--kv-channels", "--vocab-size", "--seq-length", "--max-position-embeddings", "--micro-batch-size",
    "--global-batch-size", "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size",
    "--expert-model-parallel-size", "--num-experts", "--moe-router-topk", "--moe-ffn-hidden-size",
    "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank", "--recompute-granularity",
    "--sequence-parallel", "--use-distributed-optimizer", "--pipeline-model-parallel-layout",
)  # fmt: skip
"""Arguments that are read: another that is nearly one of them is a slip of the pen, and would be missed silently."""
_MISTAKEN = {
    "--tp": "--tensor-model-parallel-size",
    "--pp": "--pipeline-model-parallel-size",
    "--cp": "--context-parallel-size",
    "--ep": "--expert-model-parallel-size",
    "--tensor-parallel-size": "--tensor-model-parallel-size",
    "--pipeline-parallel-size": "--pipeline-model-parallel-size",
    "--expert-parallel-size": "--expert-model-parallel-size",
    "--context-model-parallel-size": "--context-parallel-size",
    "--mbs": "--micro-batch-size",
    "--gbs": "--global-batch-size",
    "--sequence-length": "--seq-length",
}
"""Names of other tools for arguments that are read."""
SHARDED = ("--use-torch-fsdp2", "--use-megatron-fsdp", "--use-custom-fsdp")
_LAYOUT = "--pipeline-model-parallel-layout"
_LAYERS_EACH, _STAGES_EACH = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"
_ENDS = ("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers")
_COUNTED = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
_EXCLUSIVE = (((_LAYOUT,), (_LAYERS_EACH,), (_STAGES_EACH,)), ((_LAYOUT,), _ENDS, _COUNTED))
"""What tells how many stages there are, and what tells how many layers they have: one way each."""
_VARIABLE = re.compile(r"\$\{?(\w+)(?:\[@\])?(?::-([^}]*))?\}?")
_ASSIGNED = re.compile(r"(?:^|;)\s*(?:export\s+)?(\w+)=([^(\s;]*)\s*(?=;|#|$)", re.MULTILINE)
_YAML = (".yaml", ".yml")
_KEY = r"^[ \t]*[\"']?(?:--)?([a-z][a-z0-9_-]*)[\"']?[ \t]*:"
_MAPPED = re.compile(_KEY + r"(?=[ \t])", re.MULTILINE)
_NULL = re.compile(_KEY + r"(?:[ \t]+(?:(?i:null)|~))?[ \t\r]*(?:[ \t]#.*)?$", re.MULTILINE)
"""A key without a value, or with null: one that is not given, or the heading of others."""
_TRUE, _FALSE = ("true", "yes", "on", "y"), ("false", "no", "off", "n")
"""Words of YAML 1.1 for a flag, in any case."""


def launch(text: str, where: str) -> Launch:
    """What the arguments in a file say.

    Raises
    ------
    Malformed
        If a needed one is missing or wrong, with its line.
    UsageError
        If they contradict each other.
    """
    if where.endswith(_YAML):
        text = _MAPPED.sub(r"--\1:", _NULL.sub("", text))
    return _Arguments(arguments(text, where), where).launch()


def arguments(text: str, where: str) -> dict[str, tuple[str, int]]:
    """Arguments with their value (empty for a flag) and line; later ones win, as for Megatron-LM itself."""
    variables = {name: value.strip("'\"") for name, value in _ASSIGNED.findall(text)}
    found: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line.rstrip().removesuffix("\\"), comments=True)
        except ValueError as error:
            raise Malformed(f"cannot be read as shell words: {error}", f"{where}:{number}") from None
        place = 0
        while place < len(words):
            name, _, value = words[place].strip("()").partition("=")
            name = name.removesuffix(":").replace("_", "-")
            place += 1
            if not _ARGUMENT.fullmatch(name):
                continue
            if not value and place < len(words) and not words[place].startswith("--"):
                value = words[place].strip("()")
                place += 1
            near = [_MISTAKEN[name]] if name in _MISTAKEN else get_close_matches(name, _KNOWN, 1, 0.92)
            if near and name not in _KNOWN and not name.startswith(("--encoder", "--decoder")):
                raise Malformed(f"there is no argument {name}; did you mean {near[0]}?", f"{where}:{number}")
            found[name] = (_filled(value, variables), number)
    return found


def _filled(value: str, variables: Mapping[str, str]) -> str:
    """A value with the script's own variables put in, as far as they are known."""

    def one(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name in variables:
            return _filled(variables[name], {k: v for k, v in variables.items() if k != name})
        return default if default is not None else match[0]

    return _VARIABLE.sub(one, value)


@dataclass(frozen=True)
class Settings:
    """How arguments spread and recompute a model, by Megatron-LM's defaults; names as in the arguments."""

    tensor: int
    pipeline: int
    virtual: int
    context: int
    expert: int
    microbatch: int
    recompute: str
    sequence_parallel: bool
    distributed_optimizer: bool
    sharded: bool


def settings(given: dict[str, tuple[str, int]], where: str, layers: int) -> Settings:
    """What `arguments` say of how a model of so many layers is trained.

    Raises
    ------
    Malformed
        If there are none, or a value is no positive whole number.
    UsageError
        If layers would be left out.
    """
    if not given:
        raise Malformed("no argument such as --tensor-model-parallel-size is given", where)
    return _Arguments(given, where).settings(layers)


class _Arguments:
    def __init__(self, given: dict[str, tuple[str, int]], where: str) -> None:
        self.given, self.where = given, where

    def count(self, name: str, default: int | None = None) -> int:
        if name not in self.given:
            if default is None:
                raise Malformed(f"the argument {name} is missing", self.where)
            return default
        text, line = self.given[name]
        if not re.fullmatch(r"\d{1,12}", text) or not int(text):
            unset = "; it is a variable that the file does not set" if "$" in text else ""
            raise Malformed(f"{name} must be a positive whole number, got {text!r}{unset}", f"{self.where}:{line}")
        return int(text)

    def flag(self, *names: str) -> bool:
        return any(self._is_true(name) for name in names if name in self.given)

    def _is_true(self, name: str) -> bool:
        """A flag's word; none is true, and so is what is the shell's own behind it, such as ``| tee log``."""
        text, line = self.given[name]
        word = text.lower()
        if word in _FALSE:
            return False
        if word and word not in _TRUE and (self.where.endswith(_YAML) or word.isalnum()):
            raise Malformed(f"{name} must be true or false, got {text!r}", f"{self.where}:{line}")
        return True

    def require_modelled(self) -> None:
        """Refuse what changes an iteration in a way that is not modelled."""
        experts = self.given.get("--expert-tensor-parallel-size")
        if experts is not None and experts[0] != self.given.get("--tensor-model-parallel-size", ("1",))[0]:
            raise Malformed(
                "--expert-tensor-parallel-size must be --tensor-model-parallel-size: other splits of experts are not "
                "modelled",
                f"{self.where}:{experts[1]}",
            )
        self.require_recompute_modelled()
        for ways in _EXCLUSIVE:
            told = [name for way in ways if (name := next(filter(self.is_set, way), None))]
            if len(told) > 1:
                raise Malformed(
                    f"{told[0]} and {told[1]} both say what stages hold, and only one is obeyed; leave one out",
                    f"{self.where}:{self.given[told[1]][1]}",
                )

    def require_recompute_modelled(self) -> None:
        """Refuse recomputation that is neither of the attention nor of every layer by itself."""
        granularity = self.recompute()
        if "--recompute-method" in self.given:
            method, line = self.given["--recompute-method"]
            if method == "block":
                raise Malformed(
                    "--recompute-method block recomputes only some layers, which is not modelled; uniform is",
                    f"{self.where}:{line}",
                )
            if method != "uniform":
                raise Malformed(f"--recompute-method must be uniform or block, got {method!r}", f"{self.where}:{line}")
            if granularity == "selective":
                raise Malformed(
                    "--recompute-method goes with --recompute-granularity full, not with selective recomputation",
                    f"{self.where}:{line}",
                )
        together = self.count("--recompute-num-layers", 1)
        if granularity == "full" and together != 1:
            raise Malformed(
                f"--recompute-num-layers {together} keeps the input of one layer in {together} and has {together} in "
                "memory while they are recomputed, which is not modelled; 1 is",
                f"{self.where}:{self.given['--recompute-num-layers'][1]}",
            )

    def is_set(self, name: str) -> bool:
        return self.flag(name) if name in _COUNTED else name in self.given

    def recompute(self) -> str:
        if self.flag("--recompute-activations"):
            return "selective"
        return self.given.get("--recompute-granularity", ("",))[0] or "none"

    def settings(self, layers: int) -> Settings:
        self.require_modelled()
        tensor, pipeline = (self.count(f"--{what}-model-parallel-size", 1) for what in ("tensor", "pipeline"))
        return Settings(
            tensor=tensor,
            pipeline=pipeline,
            virtual=self.virtual(layers, pipeline),
            context=self.count("--context-parallel-size", 1),
            expert=self.count("--expert-model-parallel-size", 1),
            microbatch=self.count("--micro-batch-size", 1),
            recompute=self.recompute(),
            sequence_parallel=self.flag("--sequence-parallel") and tensor > 1,
            distributed_optimizer=self.flag("--use-distributed-optimizer"),
            sharded=self.flag(*SHARDED),
        )

    def launch(self) -> Launch:
        architecture = self.architecture()
        found = self.settings(architecture.layers)
        pieces, virtual = self.stages(architecture, found.pipeline, found.virtual)
        return Launch(architecture, self.training(found), found.pipeline, virtual, pieces=pieces)

    def architecture(self) -> Architecture:
        hidden, heads = self.count("--hidden-size"), self.count("--num-attention-heads")
        layers, gated = self.count("--num-layers"), self.flag("--swiglu")
        if layers > MOST_LAYERS:
            raise Malformed(f"at most {MOST_LAYERS} layers, got {layers}", self.where)
        inner = self.count("--ffn-hidden-size", max(8 * hidden // 3 // 64 * 64, 1) if gated else 4 * hidden)
        experts = None
        assumed = []
        if "--fp8-format" in self.given:
            assumed.append(f"{self.where} trains with 8-bit products: times are those of 16 bits")
        if "--num-experts" in self.given:
            if "--moe-router-topk" not in self.given:
                assumed.append(f"{self.where} gives no --moe-router-topk: assumed are 2 experts a token")
            experts = Experts(
                self.count("--num-experts"),
                self.count("--moe-router-topk", 2),
                self.count("--moe-ffn-hidden-size", inner),
                self.count("--moe-shared-expert-intermediate-size", 0),
            )
        if "--vocab-size" not in self.given:
            assumed.append(f"{self.where} gives no --vocab-size: assumed is GPT-2's, padded to 50304")
        groups = self.count("--num-query-groups", 1) if self.flag("--group-query-attention") else heads
        return Architecture(
            name="model",
            layers=layers,
            hidden=hidden,
            heads=heads,
            key_value_heads=groups,
            head_width=self.head_width(hidden, heads),
            feed_forward=inner,
            vocabulary=self.count("--vocab-size", 50304),
            gated=gated,
            tied=not self.flag("--untie-embeddings-and-output-weights"),
            dropout=self.given.get("--hidden-dropout", ("0.1",))[0] not in ("0", "0.0"),
            positions=self.positions(),
            experts=experts,
            expert_layers=self.expert_layers(layers) if experts else frozenset(),
            latent=self.latent(),
            prediction_layers=self.count("--mtp-num-layers", 0),
            assumed=tuple(assumed),
        )

    def head_width(self, hidden: int, heads: int) -> int:
        if "--kv-channels" not in self.given and hidden % heads:
            raise Malformed(f"{heads} heads do not divide a width of {hidden}; give --kv-channels", self.where)
        return self.count("--kv-channels", max(hidden // heads, 1))

    def latent(self) -> Latent | None:
        """Multi-head latent attention, with Megatron-LM's defaults of its widths."""
        if not self.flag("--multi-latent-attention"):
            return None
        return Latent(
            self.count("--q-lora-rank", 0),
            self.count("--kv-lora-rank", 32),
            self.count("--qk-head-dim", 128),
            self.count("--qk-pos-emb-head-dim", 64),
            self.count("--v-head-dim", 128),
        )

    def positions(self) -> int:
        """Rows of learned positions, which are Megatron-LM's default."""
        kind = self.given.get("--position-embedding-type", ("learned_absolute",))[0]
        if kind != "learned_absolute" or self.flag("--use-rotary-position-embeddings", "--no-position-embedding"):
            return 0
        return self.count("--max-position-embeddings", self.count("--seq-length"))

    def expert_layers(self, layers: int) -> frozenset[int]:
        if "--moe-layer-freq" not in self.given:
            return frozenset(range(layers))
        text, line = self.given["--moe-layer-freq"]
        if text.isdigit() and int(text):
            return frozenset(range(0, layers, int(text)))
        total, told = list[int](), 0
        for part in text.strip("()").split("+"):
            match = re.fullmatch(r"\s*\(?\[([01](?:,\s*[01])*)\](?:\*(\d{1,12}))?\)?\s*", part)
            if not match:
                raise Malformed(
                    f"--moe-layer-freq must be a number or such as [0]*3+[1]*58, got {text!r}", f"{self.where}:{line}"
                )
            unit, times = [int(one) for one in match[1].split(",")], int(match[2] or 1)
            told += len(unit) * times
            if told <= layers:
                total += unit * times
        if told != layers:
            raise Malformed(f"--moe-layer-freq tells of {told} layers, and there are {layers}", f"{self.where}:{line}")
        return frozenset(layer for layer, one in enumerate(total) if one)

    def training(self, found: Settings) -> Training:
        return Training(
            sequence=self.count("--seq-length"),
            microbatch=found.microbatch,
            global_batch=self.count("--global-batch-size") if "--global-batch-size" in self.given else None,
            tensor=found.tensor,
            context=found.context,
            expert=found.expert,
            data=self.count("--data-parallel-size", found.expert),
            sequence_parallel=found.sequence_parallel,
            recompute=found.recompute,
            distributed_optimizer=found.distributed_optimizer,
            sharded_parameters=found.sharded,
        )

    def virtual(self, layers: int, pipeline: int) -> int:
        """Stages a device."""
        if _LAYERS_EACH not in self.given:
            return self.count(_STAGES_EACH, 1)
        uneven = [name for name in _ENDS if name in self.given]
        if uneven:
            raise UsageError(f"{self.where}: {uneven[0]} goes with {_STAGES_EACH}")
        each = self.count(_LAYERS_EACH)
        layers += sum(map(self.flag, _COUNTED))
        virtual = layers // (pipeline * each)
        placed = virtual * pipeline * each
        if placed != layers:
            legal = [f"{n}" for n in range(1, layers // pipeline + 1) if layers % (pipeline * n) == 0]
            near = f"legal are {', '.join(legal)} a virtual stage" if legal else f"{pipeline} does not divide {layers}"
            raise UsageError(
                f"{layers} layers on {pipeline} devices, {each} a virtual stage: only {placed} would be placed; {near}"
            )
        return virtual

    def stages(self, architecture: Architecture, pipeline: int, virtual: int) -> tuple[tuple[Piece, ...] | None, int]:
        """What stages hold if the arguments say so, and how many a device has."""
        layers, stages = architecture.layers, pipeline * virtual
        if _LAYOUT in self.given:
            return parse_layout(self.given[_LAYOUT][0], architecture, pipeline)
        ends = [self.flag(name) for name in _COUNTED]
        if any(ends):
            each, over = divmod(layers + sum(ends), stages)
            if over:
                raise UsageError(
                    f"{layers} layers and what counts as one at the ends make {layers + sum(ends)}, no multiple of "
                    f"{stages} stages; give --pipeline-model-parallel-layout, or other degrees"
                )
            return split(architecture, stages, each - ends[0], each - ends[1]), virtual
        first, last = (self.count(name) if name in self.given else None for name in _ENDS)
        if first is None and last is None:
            if layers % stages:
                raise UsageError(
                    f"{layers} layers do not divide into {pipeline} x {virtual} stages, as Megatron-LM wants it "
                    "without a layout; give --pipeline-model-parallel-layout, or other degrees"
                )
            return None, virtual
        if virtual > 1:
            raise UsageError(
                f"{self.where}: --decoder-first-pipeline-num-layers and its kin are read with one stage a device only; "
                "give --pipeline-model-parallel-layout instead"
            )
        return split(architecture, pipeline, first, last), virtual
