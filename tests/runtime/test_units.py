"""Durations and sizes as people write them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.runtime.units import format_duration, format_size, parse_duration_ms, parse_size_bytes, rough_size


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("100 ms", 100),
        ("250", 250),
        ("30 s", 30_000),
        ("30sec", 30_000),
        ("5 min", 300_000),
        ("5m", 300_000),
        ("1 h", 3_600_000),
        ("7 d", 604_800_000),
        ("7 days", 604_800_000),
        ("  1 D ", 86_400_000),
        ("0 s", 0),
        ("-1", -1),
    ],
)
def test_a_duration_is_read_in_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("100", 100),
        ("100 b", 100),
        ("4kb", 4096),
        ("64 KB", 65_536),
        ("1 m", 1 << 20),
        ("2mb", 2 << 20),
        ("1 gb", 1 << 30),
        ("1 GiB", 1 << 30),
        ("3tb", 3 << 40),
    ],
)
def test_a_size_is_read_in_bytes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "x", "1.5 gb", "gb", "1 gb 2 mb", "1 fortnight", "٣ s", "1_000", "9" * 19 + " d", "9" * 30]
)
def test_what_is_neither_says_what_it_should_look_like(text: str) -> None:
    with pytest.raises(ValueError, match="a duration looks like"):
        parse_duration_ms(text)
    with pytest.raises(ValueError, match="a size looks like"):
        parse_size_bytes(text)


@given(st.integers(-(2**50), 2**50))
def test_what_is_shown_reads_back_as_the_same(value: int) -> None:
    assert parse_duration_ms(format_duration(value)) == value
    assert parse_size_bytes(format_size(value)) == value


def test_values_are_shown_in_the_largest_unit_that_is_exact() -> None:
    assert [format_duration(value) for value in (0, 90_000, 604_800_000)] == ["0 ms", "90 s", "7 d"]
    assert [format_size(value) for value in (1500, 4096, 1 << 30)] == ["1500 b", "4 kb", "1 gb"]


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 B"), (584, "584 B"), (1024, "1.0 KB"), (81_740_705_792, "76.1 GB"), (1 << 60, "1048576.0 TB")],
)
def test_a_size_is_said_as_people_say_it(size: int, said: str) -> None:
    assert rough_size(size) == said


@pytest.mark.parametrize("read", [parse_duration_ms, parse_size_bytes])
def test_the_largest_number_is_taken_and_one_more_is_not(read: Callable[[str], int]) -> None:
    assert read(str(2**63 - 1)) == 2**63 - 1
    assert read(str(-(2**63) + 1)) == -(2**63) + 1
    for text in (str(2**63), str(-(2**63)), f"{2**62} s", f"{2**62} kb"):
        with pytest.raises(ValueError, match=r"too large|no unit"):
            read(text)
