"""The options that commands share, declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from explorer.core.errors import UsageError

if TYPE_CHECKING:
    from explorer.api import Costs
    from explorer.costs.select import Chosen
    from schedules.registry import NamedSchedule

DEVICES = MICROBATCHES = 8
"""The source paper's operating point (arXiv:2605.24006)."""

_SIZE, _SCHEDULE, _ABSTRACT, _MODELLED, _TRAINING, _RUN = (
    "Size", "Schedule", "Abstract costs (one microbatch's share of work on one device)", "Modelled or measured costs",
    "Training (costs layer by layer)", "Execution",
)  # fmt: skip


def _option(*names: str, help: str, panel: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False)


@dataclass(frozen=True)
class ProblemOptions:
    """What is run, and what it costs; text as given, None where not given."""

    devices: Annotated[
        int | None,
        _option("--devices", "-D", "--pp", help="Pipeline devices (default: 8, or of a file).", panel=_SIZE),
    ] = None
    microbatches: Annotated[
        int | None,
        _option("--microbatches", "-M", help="Number of microbatches (default: 8, or the file's).", panel=_SIZE),
    ] = None
    chunks: Annotated[
        int | None, _option("--chunks", help="Chunks a device (interleaved schedules).", panel=_SCHEDULE)
    ] = None
    waves: Annotated[int | None, _option("--waves", help="Waves (Hanayo).", panel=_SCHEDULE)] = None
    variant: Annotated[
        str | None, _option("--variant", help="Variant of a schedule that has several.", panel=_SCHEDULE)
    ] = None
    option: Annotated[
        list[str] | None,
        _option(
            "--option",
            "-o",
            help="Any other option of a schedule, as NAME=VALUE; see `explorer list`.",
            panel=_SCHEDULE,
        ),
    ] = None
    split_backward: Annotated[
        bool, _option("--split-backward", help="Run every backward as I, then W.", panel=_SCHEDULE)
    ] = False
    fused_backward: Annotated[
        bool, _option("--fused-backward", help="Run every I with its W as one B.", panel=_SCHEDULE)
    ] = False
    forward: Annotated[
        str | None, _option("--forward", help="Time of a forward, such as 1 or 1.1ms (default: 1).", panel=_ABSTRACT)
    ] = None
    backward: Annotated[
        str | None, _option("--backward", help="Time of a full backward (default: 2 forwards).", panel=_ABSTRACT)
    ] = None
    input_grad: Annotated[
        str | None,
        _option("--input-grad", help="Time of an input gradient (default: half a backward).", panel=_ABSTRACT),
    ] = None
    weight_grad: Annotated[
        str | None,
        _option("--weight-grad", help="Time of a weight gradient (default: half a backward).", panel=_ABSTRACT),
    ] = None
    comm_time: Annotated[
        str | None, _option("--comm-time", help="Time of one transfer between devices (default: 0).", panel=_ABSTRACT)
    ] = None
    sync_time: Annotated[
        str | None,
        _option(
            "--sync-time", help="Time to all-reduce one device's share of the gradients (default: 0).", panel=_ABSTRACT
        ),
    ] = None
    optimizer_step: Annotated[
        str | None,
        _option("--optimizer-step", help="Time of the optimiser on one device's share (default: 0).", panel=_ABSTRACT),
    ] = None
    per_stage: Annotated[
        bool,
        _option("--per-stage", help="Costs are those of a stage, not of a device's share.", panel=_ABSTRACT),
    ] = False
    stage_factors: Annotated[
        str | None,
        _option(
            "--stage-factors", help="Relative cost along the model, in equal pieces: 1.2,1,1,1.5.", panel=_ABSTRACT
        ),
    ] = None
    microbatch_factors: Annotated[
        str | None,
        _option("--microbatch-factors", help="Relative length of each microbatch.", panel=_ABSTRACT),
    ] = None
    memory_factors: Annotated[
        str | None,
        _option("--memory-factors", help="Relative activation memory along the model, likewise.", panel=_ABSTRACT),
    ] = None
    system: Annotated[
        str | None, _option("--system", help="System, by name or TOML file (default: paper-h100).", panel=_MODELLED)
    ] = None
    model: Annotated[
        str | None,
        _option(
            "--model",
            help="Model, by name or file: TOML, config.json, Megatron-LM, torchtitan (default: paper-128x4096).",
            panel=_MODELLED,
        ),
    ] = None
    tensor_parallel: Annotated[
        int | None, _option("--tensor-parallel", "--tp", help="Devices that share every layer.", panel=_TRAINING)
    ] = None
    context_parallel: Annotated[
        int | None, _option("--context-parallel", "--cp", help="Devices that share every sequence.", panel=_TRAINING)
    ] = None
    expert_parallel: Annotated[
        int | None, _option("--expert-parallel", "--ep", help="Devices that share the experts.", panel=_TRAINING)
    ] = None
    sequence: Annotated[int | None, _option("--sequence", help="Tokens a sequence.", panel=_TRAINING)] = None
    microbatch_size: Annotated[
        int | None, _option("--microbatch-size", help="Sequences a microbatch (default: 1).", panel=_TRAINING)
    ] = None
    global_batch: Annotated[
        int | None,
        _option("--global-batch", help="Sequences an iteration; gives -M where that is left out.", panel=_TRAINING),
    ] = None
    sequence_parallel: Annotated[
        bool, _option("--sequence-parallel", help="Split norms and residuals along the sequence.", panel=_TRAINING)
    ] = False
    recompute: Annotated[
        str | None, _option("--recompute", help="none, selective or full (default: none).", panel=_TRAINING)
    ] = None
    distributed_optimizer: Annotated[
        bool, _option("--distributed-optimizer", help="Spread optimiser state over the copies.", panel=_TRAINING)
    ] = False
    fsdp: Annotated[
        bool, _option("--fsdp", help="Spread weights and gradients over the copies too.", panel=_TRAINING)
    ] = False
    layout: Annotated[
        str | None,
        _option(
            "--layout",
            help="What stages hold: balanced, or as Megatron-LM writes it: Et*3|(tt|)*29,L.",
            panel=_TRAINING,
        ),
    ] = None
    embeddings: Annotated[
        bool,
        _option("--embeddings", help="Count the embedding and the vocabulary head as well.", panel=_MODELLED),
    ] = False
    optimizer: Annotated[
        bool, _option("--optimizer", help="Count the optimiser's step, from the bytes it moves.", panel=_MODELLED)
    ] = False
    sync_on_links: Annotated[
        bool,
        _option(
            "--sync-on-links",
            help="Gradient all-reduces hold the links and NICs that their rings pass (default: they do not).",
            panel=_MODELLED,
        ),
    ] = False
    measured: Annotated[
        str | None, _option("--costs", help="Measured costs: of `explorer calibrate`, or .csv.", panel=_MODELLED)
    ] = None
    devices_per_node: Annotated[
        int | None,
        _option("--devices-per-node", help="Pipeline devices in a node (default: all of its).", panel=_MODELLED),
    ] = None
    device_map: Annotated[
        str | None,
        _option("--device-map", help="Slot in the system of each pipeline device, such as 0,8,1,9.", panel=_MODELLED),
    ] = None
    data_parallel: Annotated[
        int | None,
        _option("--data-parallel", help="Copies of the pipeline that all-reduce their gradients.", panel=_RUN),
    ] = None
    communication: Annotated[
        str | None, _option("--communication", help="none, latency, link or blocking.", panel=_RUN)
    ] = None
    messages: Annotated[
        str,
        _option("--messages", help="In mode link: independent, fifo-pair or fifo-device [independent].", panel=_RUN),
    ] = "independent"
    no_gradient_sync: Annotated[
        bool, _option("--no-gradient-sync", help="Leave the replicas' gradient all-reduce out.", panel=_RUN)
    ] = False
    overlap_factor: Annotated[
        str | None,
        _option("--overlap-factor", help="Time of an overlapped F&B, as a fraction of F + B (default: 1).", panel=_RUN),
    ] = None
    freed_at_input_grad: Annotated[
        str | None,
        _option("--freed-at-input-grad", help="Share of an activation that I frees (default: 0).", panel=_RUN),
    ] = None
    mem_limit: Annotated[
        str | None,
        _option(
            "--mem-limit",
            help="Per device: activations (4) or bytes (40GiB); one, or one a device.",
            panel=_RUN,
        ),
    ] = None
    engine: Annotated[str, _option("--engine", help="auto, longest-path or cp-sat (default: auto).", panel=_RUN)] = (
        "auto"
    )

    @property
    def split(self) -> str | None:
        """``"split"``, ``"fused"``, or None to leave backwards as they are."""
        if self.split_backward and self.fused_backward:
            raise UsageError("--split-backward and --fused-backward contradict each other")
        return "split" if self.split_backward else "fused" if self.fused_backward else None

    @property
    def schedule_options(self) -> dict[str, str | int]:
        """The options meant for schedules, by their parameter names; values of ``--option`` as text."""
        given: dict[str, str | int] = {}
        for text in self.option or ():
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise UsageError(f"--option must be NAME=VALUE, got {text!r}")
            key = name.replace("-", "_")
            if key in given:
                raise UsageError(f"--option {name} is given twice")
            given[key] = value
        for name in ("chunks", "waves", "variant"):
            if (value := getattr(self, name)) is not None:
                if name in given:
                    raise UsageError(f"--{name} and --option {name} both set it; leave one out")
                given[name] = value
        return given

    def is_given(self, name: str) -> bool:
        """Whether an option is there: a number that is 0 is, a flag that is off is not."""
        value = getattr(self, name)
        return value is not None and value is not False

    @property
    def training(self) -> dict[str, Any]:
        """What is given of the training, by the names of `explorer.costs.select.SETTINGS`; and the layout."""
        return {name: getattr(self, name) for name in _TRAINING_NAMES if self.is_given(name)}

    @cached_property
    def chosen(self) -> Chosen | None:
        """The model in training, where costs are layer by layer: its file is read once."""
        from explorer.cli.costs import chosen

        return chosen(self)

    @property
    def sizes(self) -> tuple[int, int]:
        """Pipeline devices and microbatches: as given, else what the model's file or the batch says, else 8 and 8.

        Raises
        ------
        UsageError
            If the batch is no whole number of microbatches.
        """
        from explorer.cli.costs import sizes

        return sizes(self)

    @property
    def begins_costs(self) -> bool:
        """Whether the options give costs of their own, rather than change others."""
        return any(self.is_given(name) for name in ("forward", "backward", "system", "model", "measured"))

    def launched(self, named: NamedSchedule, own: Mapping[str, object]) -> dict[str, str | int]:
        """The options meant for a schedule: given ones, else its stages a device as the model's file has them.

        Parameters
        ----------
        own
            Those behind the schedule's name, which win.
        """
        given = self.schedule_options
        if "chunks" in named.options and "chunks" not in {*given, *own}:
            launch = None if self.chosen is None else self.chosen.launch
            if launch is not None and launch.virtual > 1:
                given["chunks"] = launch.virtual
        return given

    def costs(self) -> Costs:
        """The costs that these options describe.

        Raises
        ------
        UsageError
            If abstract and modelled costs are mixed, or a value is no number.
        """
        from explorer.cli.costs import from_options

        return from_options(self)


_TRAINING_NAMES = (
    "tensor_parallel", "context_parallel", "expert_parallel", "sequence", "microbatch_size", "global_batch",
    "sequence_parallel", "recompute", "distributed_optimizer", "fsdp", "layout",
)  # fmt: skip


def shares_problem_options(command: Callable[..., None]) -> Any:
    """Give a command whose first parameter is a `ProblemOptions` its fields as options of its own."""
    own = inspect.signature(command, eval_str=True).parameters
    hints = get_type_hints(ProblemOptions, include_extras=True)
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(ProblemOptions)
    ]
    rest = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in list(own.values())[1:]]

    def run(**given: Any) -> None:
        problem = ProblemOptions(**{field.name: given.pop(field.name) for field in fields(ProblemOptions)})
        command(problem, **given)

    run.__signature__ = inspect.Signature(rest + shared)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in rest + shared}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.", show_default=False)]
Output = Annotated[str | None, typer.Option("--output", help="Write to this file.", show_default=False)]
