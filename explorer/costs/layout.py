"""Which layers a stage holds: spread evenly, or as Megatron-LM's ``--pipeline-model-parallel-layout`` writes it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from explorer.core.errors import Inapplicable, UsageError
from explorer.costs.architecture import Architecture
from explorer.costs.training import Piece

_MOST = 100_000
_LETTERS = "EtmL"


def split(
    architecture: Architecture, stages: int, first: int | None = None, last: int | None = None
) -> tuple[Piece, ...]:
    """Layers spread evenly over stages, the remainder to the middle ones; the embedding and the head at the ends.

    Parameters
    ----------
    first, last
        Layers of the first and of the last stage, where given.

    Raises
    ------
    Inapplicable
        If a stage would hold no layer.
    """
    layers = architecture.layers
    fixed = {stage: count for stage, count in ((0, first), (stages - 1, last)) if count is not None}
    left, free = layers - sum(fixed.values()), stages - len(fixed)
    if stages == 1 and {first, last} - {None, layers}:
        raise Inapplicable(f"one stage holds all {layers} layers, not {first if last is None else last}")
    if fixed and (left < free or (left and not free)):
        raise Inapplicable(
            f"{sum(fixed.values())} layers at the ends leave {left} of {layers} for {free} stages between them"
        )
    if left < free or (left and not free) or any(count < 0 for count in fixed.values()):
        raise Inapplicable(
            f"the model's {layers} layers do not fill {stages} stages; use at most {layers} stages (fewer devices, "
            "chunks or waves)"
        )
    even, more = divmod(left, free) if free else (0, 0)
    # The ends carry the embedding and the head besides: what does not divide goes to the middle.
    middle = sorted((s for s in range(stages) if s not in fixed), key=lambda s: (abs(2 * s - (stages - 1)), s))
    counts = {stage: even + (place < more) for place, stage in enumerate(middle)} | fixed
    pieces, start = [], 0
    for stage in range(stages):
        end = start + counts[stage]
        ends = {"embedding": stage == 0, "head": stage == stages - 1}
        pieces.append(
            Piece(range(start, end), **ends, prediction=architecture.prediction_layers if ends["head"] else 0)
        )
        start = end
    return tuple(pieces)


def parse_layout(text: str, architecture: Architecture, pipeline: int) -> tuple[tuple[Piece, ...], int]:
    """Stages in order of the model, and how many of them a device has.

    ``E`` is the embedding, ``t`` a layer, ``m`` one of multi-token prediction, ``L`` the loss with the head; ``|``
    ends a stage, ``*n`` repeats what is before it, commas and blanks mean nothing.

    Raises
    ------
    UsageError
        If it is malformed, leaves a stage empty (Megatron-LM hangs on it), or does not hold the model's layers.
    """
    if pipeline < 1:
        raise UsageError(f"a layout needs at least 1 pipeline device, got {pipeline}")
    stages = _expanded(text).split("|")
    if len(stages) % pipeline:
        raise UsageError(
            f"the layout has {len(stages)} stages, no multiple of {pipeline} devices; the next is "
            f"{-(-len(stages) // pipeline) * pipeline}"
        )
    whole, layers = "".join(stages), architecture.layers
    near = min(len(stages), layers) // pipeline * pipeline
    even = f"; such as {format_layout(split(architecture, near))}" if near else ""
    if whole.count("t") != layers:
        raise UsageError(f"the layout places {whole.count('t')} layers and the model has {layers}{even}")
    if not re.fullmatch("Et*m*L", whole):
        raise UsageError("a layout is the embedding E, then layers t, then layers m of prediction, then the head L")
    if whole.count("m") != architecture.prediction_layers:
        raise UsageError(
            f"the layout places {whole.count('m')} layers m of multi-token prediction, and the model has "
            f"{architecture.prediction_layers}"
        )
    empty = [str(number) for number, stage in enumerate(stages) if not stage]
    if empty:
        raise UsageError(f"the layout leaves stage {', '.join(empty)} empty; give every stage a layer{even}")
    pieces, start = [], 0
    for stage in stages:
        end = start + stage.count("t")
        pieces.append(Piece(range(start, end), "E" in stage, "L" in stage, stage.count("m")))
        start = end
    return tuple(pieces), len(stages) // pipeline


def format_layout(pieces: Sequence[Piece]) -> str:
    """The layout of stages in order of the model, runs of equal stages written once."""
    stages = [
        "E" * piece.embedding + _run("t", len(piece.layers)) + _run("m", piece.prediction) + "L" * piece.head
        for piece in pieces
    ]
    parts, place = [], 0
    while place < len(stages):
        same = next((i for i in range(place, len(stages)) if stages[i] != stages[place]), len(stages)) - place
        last = place + same == len(stages)
        whole = same - last
        parts.append(f"({stages[place]}|)*{whole}" if whole > 1 else f"{stages[place]}|" * whole)
        parts.append(stages[place] if last else "")
        place += same
    return "".join(parts)


def _run(letter: str, count: int) -> str:
    return letter * count if count < 3 else f"{letter}*{count}"


def _expanded(text: str) -> str:
    """The layout without repetitions."""
    left = re.sub(r"[\s,]", "", text)
    out, open_at = "", []
    place = 0
    while place < len(left):
        letter = left[place]
        if letter == "(":
            open_at.append(len(out))
            place += 1
            continue
        if letter == ")":
            if not open_at:
                raise UsageError(f"the layout closes a bracket that is not open, at character {place + 1}")
            start = open_at.pop()
        elif letter in _LETTERS or letter == "|":
            start = len(out)
            out += letter
        else:
            raise UsageError(f"a layout has the letters E, t, m, L and |, ( ) *n, got {letter!r}")
        place += 1
        times = re.match(r"\*(\d{1,6})", left[place:])
        if times:
            unit = out[start:]
            if len(unit) * int(times[1]) + start > _MOST:
                raise UsageError(f"the layout has over {_MOST} letters")
            out = out[:start] + unit * int(times[1])
            place += times.end()
    if open_at:
        raise UsageError("the layout opens a bracket that it does not close")
    return out
