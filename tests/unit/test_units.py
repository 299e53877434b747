"""Exact quantities: text in, fractions and whole ticks out, anything else refused."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.core.errors import Inexact, UsageError
from explorer.core.units import TimeBase, as_number, duration, number, quantity


def test_numbers_are_exact() -> None:
    assert number("18.522") == Fraction(18522, 1000)
    assert number("1e-3") == Fraction(1, 1000)
    assert number("3/2") == Fraction(3, 2)
    assert quantity("1.1ms", "time") == Fraction(11, 10000)
    assert quantity("400 Gbit/s", "bandwidth") == 50 * 10**9
    assert quantity("40GiB", "size") == 40 * 2**30
    assert duration("2") == (2, "1")
    assert duration("2us") == (Fraction(2, 10**6), "s")


@pytest.mark.parametrize(
    "text", ["", " ", "one", "1,5", "--1", "1 1", "nan", "inf", "0x10", "1/0", "1e999999999", "9" * 100, "\u0661"]
)
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        number(text)


@given(st.text(max_size=80))
def test_any_text_is_a_number_or_a_usage_error(text: str) -> None:
    for read in (number, lambda t: quantity(t, "time"), duration):
        try:
            read(text)
        except UsageError as error:
            assert str(error)


@given(st.lists(st.fractions(min_value=0, max_value=1000, max_denominator=20), min_size=1, max_size=6))
def test_an_exact_base_measures_all_and_none_longer_does(values: list[Fraction]) -> None:
    base = TimeBase.exact(values)
    ticks = [base.ticks(value) for value in values]
    assert [base.value(count) for count in ticks] == values
    if any(values):
        longer = TimeBase(base.tick * 2)
        with pytest.raises(Inexact):
            for value in values:
                longer.ticks(value)


def test_what_is_no_whole_number_of_ticks_is_refused_unless_rounded() -> None:
    with pytest.raises(Inexact, match="no whole number of ticks"):
        TimeBase(Fraction(1, 2)).ticks(Fraction(1, 3))
    assert TimeBase(Fraction(1, 2), rounds=True).ticks(Fraction(1, 3)) == 1
    with pytest.raises(Inexact, match="negative"):
        TimeBase(Fraction(1)).ticks(Fraction(-1))
    with pytest.raises(Inexact, match=r"2\^42"):
        TimeBase(Fraction(1)).ticks(Fraction(2**42 + 1))


def test_json_numbers_are_whole_where_they_can_be() -> None:
    assert (as_number(Fraction(4, 2)), type(as_number(Fraction(4, 2)))) == (2, int)
    assert as_number(Fraction(1, 4)) == 0.25
