"""Layouts: as Megatron-LM writes them, and spread evenly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.errors import Inapplicable, UsageError
from explorer.costs.architecture import Architecture
from explorer.costs.layout import format_layout, parse_layout, split

MODEL = Architecture("model", 61, 64, 4, 4, 16, 256, 1000)


def counts(text: str, layers: int, pipeline: int) -> list[int]:
    pieces, _ = parse_layout(text, replace(MODEL, layers=layers), pipeline)
    return [len(piece.layers) for piece in pieces]


def test_the_example_of_megatron() -> None:
    """megatron/core/transformer/transformer_config.py: 'Et*3|(tt|)*29,m|L' is 61 layers on 32 stages."""
    pieces, virtual = parse_layout("Et*3|(tt|)*29,m|L", replace(MODEL, prediction_layers=1), 16)
    assert [len(piece.layers) for piece in pieces] == [3] + [2] * 29 + [0, 0]
    assert virtual == 2
    assert pieces[0].embedding
    assert pieces[30].prediction == 1
    assert pieces[31].head


def test_the_layout_of_llama_70b() -> None:
    """NVIDIA-NeMo/Megatron-Bridge#5391: 80 layers on 8 devices with 5 stages each."""
    found = counts("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 80, 8)
    assert len(found) == 40
    assert sum(found) == 80
    assert found[35] == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Et|(tt|)*29|L", r"leaves stage .* empty|places 59 layers"),
        ("E" + "t" * 61 + "||L", "leaves stage 1 empty"),
        ("t" * 61 + "|L", "a layout is the embedding E"),
        ("Et*60L", "places 60 layers and the model has 61"),
        ("Et*61|x", "got 'x'"),
        ("Et*61)L", "closes a bracket"),
        ("E(t*61L", "opens a bracket"),
        ("Et*61m|L", "places 1 layers m"),
        ("(" * 3 + "t*99999" + ")*99999" * 3, "over 100000 letters"),
        ("Et*61|L|", "leaves stage 2 empty|no multiple"),
    ],
)
def test_layouts_that_megatron_would_trip_over(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_layout(text, MODEL, 1)


def test_stages_must_fill_the_devices() -> None:
    with pytest.raises(UsageError, match="3 stages, no multiple of 2 devices; the next is 4"):
        parse_layout("Et*30|t*31|L", MODEL, 2)


def test_what_is_suggested_fits_the_devices() -> None:
    """61 layers on 16 devices in 64 stages: the nearest has 48, and is legal itself."""
    with pytest.raises(UsageError, match="such as") as caught:
        parse_layout("E" + "t|" * 60 + "||t|L", MODEL, 16)
    suggested = str(caught.value).split("such as ")[1]
    pieces, virtual = parse_layout(suggested, MODEL, 16)
    assert (len(pieces), virtual) == (48, 3)
    with pytest.raises(UsageError, match="at least 1 pipeline device"):
        parse_layout("Et*61L", MODEL, 0)


@given(st.integers(1, 200), st.integers(1, 64), st.integers(0, 2))
def test_what_is_spread_is_all_there_and_reads_back(layers: int, stages: int, predictions: int) -> None:
    model = replace(MODEL, layers=layers, prediction_layers=predictions)
    if stages > layers:
        with pytest.raises(Inapplicable, match="do not fill"):
            split(model, stages)
        return
    pieces = split(model, stages)
    sizes = [len(piece.layers) for piece in pieces]
    assert sum(sizes) == layers
    assert max(sizes) - min(sizes) <= 1
    assert [layer for piece in pieces for layer in piece.layers] == list(range(layers))
    assert parse_layout(format_layout(pieces), model, stages) == (pieces, 1)


def test_ends_may_hold_fewer() -> None:
    """--decoder-first-pipeline-num-layers and its kin."""
    assert [len(piece.layers) for piece in split(MODEL, 4, first=13, last=14)] == [13, 17, 17, 14]
    with pytest.raises(Inapplicable):
        split(MODEL, 4, first=60, last=1)
    with pytest.raises(Inapplicable, match="one stage holds all 61 layers"):
        split(MODEL, 1, first=10, last=10)
    with pytest.raises(Inapplicable):
        split(MODEL, 1, first=10)
