"""A user's own setting, from Megatron-LM arguments, as one that a plan weighs."""

from __future__ import annotations

from dataclasses import replace

from explorer.core.errors import UsageError
from explorer.costs.architecture import Architecture
from explorer.costs.layout import parse_layout
from explorer.costs.reading.megatron import SHARDED, arguments, settings
from explorer.plan.candidates import Candidate, Wish

_UNWEIGHED = (
    *SHARDED,
    "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers",
    "--account-for-embedding-in-pipeline-split",
    "--account-for-loss-in-pipeline-split",
)


def own_setting(text: str, wish: Wish) -> Candidate:
    """The setting that arguments describe.

    Raises
    ------
    UsageError
        If an argument contradicts the wish, or is not weighed by a plan.
    Malformed
        If a value is no positive whole number, or an argument is misspelt.
    """
    given = arguments(text, "--mine")
    written = {name: value for name, (value, _) in given.items()}
    found = settings(given, "--mine", wish.architecture.layers)
    own = Candidate(
        found.tensor,
        found.pipeline,
        found.microbatch,
        "interleaved-1f1b" if found.virtual > 1 else "1f1b",
        found.virtual,
        found.recompute,
        found.expert,
        found.context,
        sequence_parallel=found.sequence_parallel,
        distributed_optimizer=found.distributed_optimizer,
    )
    _check_agreement(written, wish, own.group)
    layout = written.get("--pipeline-model-parallel-layout")
    return own if layout is None else _with_layout(own, layout, wish)


def _with_layout(own: Candidate, layout: str, wish: Wish) -> Candidate:
    """A setting whose layers are spread as a layout says, if that is one of the two ways that a plan weighs."""
    pieces, virtual = parse_layout(layout, wish.architecture, own.pipeline)
    laid = replace(own, virtual=virtual, schedule="interleaved-1f1b" if virtual > 1 else "1f1b")
    for by_time in (False, True):
        if (candidate := replace(laid, balanced=by_time)).pieces(wish) == pieces:
            return candidate
    raise UsageError(
        "--mine: a plan weighs layers spread evenly and balanced by time, and this layout is neither; evaluate it with "
        "`explorer evaluate --layout`"
    )


def _check_agreement(written: dict[str, str], wish: Wish, group: int) -> None:
    """Arguments that contradict the question, or that a plan does not weigh, are errors: they would be passed over."""
    asked = {"--global-batch-size": wish.global_batch, "--seq-length": wish.sequence, **_sizes(wish.architecture)}
    if wish.devices % group == 0:
        asked["--data-parallel-size"] = wish.devices // group
    for name, value in asked.items():
        agrees = _nearly if name == "--vocab-size" else str.__eq__
        if name in written and not agrees(written[name], str(value)):
            raise UsageError(f"--mine: {name} {written[name]} contradicts the {value} that the plan is for")
    for name in _UNWEIGHED:
        if name in written:
            raise UsageError(f"--mine: {name} is not weighed by a plan; leave it out")


def _nearly(written: str, value: str) -> bool:
    """Whether they may be the same vocabulary: Megatron-LM pads it, models are told of with it padded or not."""
    return written.isdecimal() and abs(int(written) - int(value)) * 50 < int(value)


def _sizes(architecture: Architecture) -> dict[str, int]:
    """A model's sizes, as the arguments that give them; a model without experts has 0 of them."""
    experts = architecture.experts
    sizes = {
        "--num-layers": architecture.layers,
        "--hidden-size": architecture.hidden,
        "--num-attention-heads": architecture.heads,
        "--ffn-hidden-size": architecture.feed_forward,
        "--vocab-size": architecture.vocabulary,
        "--num-query-groups": architecture.key_value_heads,
        "--num-experts": experts.count if experts else 0,
        "--mtp-num-layers": architecture.prediction_layers,
    }
    if experts:
        sizes |= {"--moe-router-topk": experts.active, "--moe-ffn-hidden-size": experts.feed_forward}
    if architecture.latent is None:
        sizes["--kv-channels"] = architecture.head_width
    return sizes
