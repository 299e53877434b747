from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.errors import Malformed
from explorer.core.op import KINDS, B, F, I, Kind, Op, Overlapped, W


@given(st.integers(0, 10**9 - 1), st.sampled_from(KINDS), st.integers(0, 10**9 - 1))
def test_text_round_trip(stage: int, kind: Kind, microbatch: int) -> None:
    op = Op(stage, kind, microbatch)
    assert Op.parse(str(op)) == op


def test_text_is_the_grammar_of_pytorch() -> None:
    assert [str(op) for op in (F(2, 0), I(1, 3), W(0, 12), B(10, 1))] == ["2F0", "1I3", "0W12", "10B1"]
    assert str(Overlapped(F(2, 0), B(1, 3))) == "(2F0;1B3)OVERLAP_F_B"
    assert Op.parse("2F0") == Op(2, Kind.F, 0)


@pytest.mark.parametrize(
    "text",
    ["", "F", "2F", "F0", "2BW0", "2F0junk", " 2F0", "2F0 ", "2F0\n", "2f0", "-2F0", "2F-1", "2.0F0", "2F0x", "2X0",
     "٢F0", "2F²", "0x2F0", "2F1_0", "9999999999F0", "0F99999999999999999999"],
)  # fmt: skip
def test_parse_is_strict(text: str) -> None:
    with pytest.raises(Malformed, match=re.escape("is not an op; expected <stage><F|I|W|B><microbatch>, such as 2F0")):
        Op.parse(text)


def test_parse_points_at_the_place() -> None:
    with pytest.raises(Malformed) as error:
        Op.parse("2BW0", where="x.csv:2:7")
    assert str(error.value).startswith("x.csv:2:7: '2BW0' is not an op;")
    assert error.value.where == "x.csv:2:7"


def test_ops_are_values() -> None:
    assert F(1, 2) == Op(1, Kind.F, 2)
    assert len({F(1, 2), Op(1, Kind.F, 2), B(1, 2)}) == 2
    assert [kind.letter for kind in KINDS] == ["F", "I", "W", "B"]
