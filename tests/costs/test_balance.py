"""Layers spread by time: the longest stage is as short as any spread makes it."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.config import catalogue
from explorer.core.errors import Inapplicable
from explorer.core.op import Kind
from explorer.costs.architecture import Architecture, Experts
from explorer.costs.balance import balanced
from explorer.costs.layers import embedding_costs, head_costs, layer_costs
from explorer.costs.layout import split
from explorer.costs.problem import TransformerCosts, architecture_of
from explorer.costs.training import Piece, Training

SYSTEM = catalogue.load_system("h100-sxm")
TRAINING = Training(1024)


@given(
    st.integers(1, 7),
    st.integers(1, 5),
    st.sampled_from((1000, 30_000, 300_000)),
    st.frozensets(st.integers(0, 6)),
)
def test_no_spread_has_a_shorter_longest_stage(layers: int, stages: int, vocabulary: int, moe: frozenset[int]) -> None:
    experts = frozenset(layer for layer in moe if layer < layers)
    model = Architecture(
        "model", layers, 1024, 8, 8, 128, 4096, vocabulary, experts=Experts(4, 2, 4096), expert_layers=experts
    )
    if layers < stages - 2:
        with pytest.raises(Inapplicable):
            balanced(model, TRAINING, SYSTEM, stages)
        return
    what = (model, TRAINING, SYSTEM)
    each = [_time(layer_costs(*what, layer)) for layer in range(layers)]
    ends = {0: _time(embedding_costs(*what))}
    ends[stages - 1] = ends.get(stages - 1, 0) + _time(head_costs(*what))

    def longest(cuts: tuple[int, ...]) -> float:
        return max(sum(each[a:b]) + ends.get(stage, 0) for stage, (a, b) in enumerate(pairwise((0, *cuts, layers))))

    inner = [
        cuts
        for cuts in combinations_with_replacement(range(layers + 1), stages - 1)
        if all(b > a for stage, (a, b) in enumerate(pairwise((0, *cuts, layers))) if 0 < stage < stages - 1)
    ]
    pieces = balanced(*what, stages)
    found = tuple(piece.layers.stop for piece in pieces[:-1])
    assert longest(found) == pytest.approx(min(map(longest, inner)), rel=1e-6)
    assert [layer for piece in pieces for layer in piece.layers] == list(range(layers))
    assert pieces[0].embedding and pieces[-1].head


def _time(costs: object) -> float:
    seconds = costs.seconds  # type: ignore[attr-defined]
    return float(seconds[Kind.F] + seconds[Kind.B])


def test_a_large_vocabulary_takes_layers_from_the_last_stage() -> None:
    """Llama 3 8B on 8 stages: the head with 128000 rows takes as long as two or three layers."""
    model, _ = architecture_of(catalogue.load_model("llama3-8b"), "llama3-8b")
    counts = [len(piece.layers) for piece in balanced(model, TRAINING, SYSTEM, 8)]
    assert counts[-1] < 4 < max(counts) + 1
    assert sum(counts) == 32
    even, timed = (
        max(chunk.seconds[Kind.F] for chunk in _chunks(pieces))
        for pieces in (split(model, 8), balanced(model, TRAINING, SYSTEM, 8))
    )
    assert timed < even


def _chunks(pieces: tuple[Piece, ...]) -> list:  # type: ignore[type-arg]
    from explorer.core.placement import linear

    model, _ = architecture_of(catalogue.load_model("llama3-8b"), "llama3-8b")
    return TransformerCosts(model, TRAINING, SYSTEM, pieces).workload(linear(8, 8)).chunks
