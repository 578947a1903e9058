"""Words and figures for people."""

from __future__ import annotations

import pytest

from headwater.protocol.text import NOTHING, closest, count, joined, listed, plural, share, show_us, size, whole_us


def test_lists_are_cut_short_where_they_would_not_help() -> None:
    assert listed(["a", "b", "c"]) == "a, b, c"
    assert listed("abcde", most=3) == "a, b, c and 2 more"
    assert (joined(["a"]), joined(["a", "b"]), joined(["a", "b", "c"])) == ("a", "a and b", "a, b and c")


def test_the_closest_name_ignores_case_and_is_none_where_nothing_comes_close() -> None:
    assert closest("smok", ["Heat", "Smoke"]) == "Smoke"
    assert closest("xyz", ["Heat", "Smoke"]) is None
    assert closest("name1", [f"name{number}" for number in range(1_001)]) is None


def test_plurals_and_counts_have_commas() -> None:
    assert (plural(1, "row"), plural(0, "row"), plural(1_200, "row")) == ("1 row", "0 rows", "1,200 rows")
    assert (count(1_234.6), count(None)) == ("1,235", NOTHING)


@pytest.mark.parametrize(
    ("us", "shown", "whole"),
    [
        (0, "0 us", "0"),
        (999, "999 us", "999 us"),
        (1_500, "1.5 ms", "1500 us"),
        (90_000_000, "1.5 min", "90 s"),
        (86_400_000_000, "1 d", "1 d"),
    ],
)
def test_a_duration_is_shown_in_the_unit_that_it_fills_or_exactly(us: int, shown: str, whole: str) -> None:
    assert (show_us(us), whole_us(us)) == (shown, whole)


def test_sizes_and_shares_take_the_digits_they_need() -> None:
    assert [size(value) for value in (0, 999, 1_500, 2_000_000, 3.2e9)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.0 MB",
        "3.2 GB",
    ]
    assert [share(ratio) for ratio in (0, 0.00123, 0.0512, 1, 1.234)] == ["0 %", "0.12 %", "5.1 %", "100 %", "123 %"]
