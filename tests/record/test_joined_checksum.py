"""The checksum of parts put together is the checksum of the whole."""

from __future__ import annotations

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.record.joined_checksum import Joint, joined, shifted, shifted_all, zeros_checksum

crc = google_crc32c.value


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400), st.binary(max_size=70_000))
def test_two_parts_give_the_checksum_of_both(first: bytes, second: bytes) -> None:
    assert joined(crc(first), crc(second), len(second)) == crc(first + second)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 255, 256, 257, 65_535, 65_536, 300_001, 1 << 24])
def test_a_shift_by_any_length_is_that_many_zeros(length: int) -> None:
    assert shifted(crc(b"abc"), length) ^ zeros_checksum(length) == crc(b"abc" + bytes(length))


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=50), st.lists(st.tuples(st.binary(max_size=2000), st.integers(0, 7)), max_size=20))
def test_parts_with_zeros_behind_them_are_joined_in_order(
    head: bytes, parts: list[tuple[bytes, int]]
) -> None:
    joint = Joint([(len(part), zeros) for part, zeros in parts])
    whole = head + b"".join(part + bytes(zeros) for part, zeros in parts)
    assert joint.checksum(crc(head), [crc(part) for part, _ in parts]) == crc(whole)


def test_a_part_with_one_bit_changed_gives_another_checksum() -> None:
    joint = Joint([(1000, 4), (24, 0)])
    first, second = bytes(range(250)) * 4, b"x" * 24
    changed = bytes([first[0] ^ 1]) + first[1:]
    assert joint.checksum(0, [crc(changed), crc(second)]) != joint.checksum(0, [crc(first), crc(second)])


def test_as_many_checksums_as_parts_are_asked_for() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Joint([(1, 0), (2, 0)]).checksum(0, [1])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=50), st.binary(min_size=300, max_size=300)), max_size=8))
def test_many_pairs_are_joined_at_once(pairs: list[tuple[bytes, bytes]]) -> None:
    firsts = np.array([crc(first) for first, _ in pairs], np.uint32)
    seconds = np.array([crc(second) for _, second in pairs], np.uint32)
    found = shifted_all(firsts, 300) ^ seconds
    assert found.tolist() == [crc(first + second) for first, second in pairs]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.binary(min_size=9, max_size=9), st.binary(min_size=70, max_size=70)), max_size=8)
)
def test_many_wholes_are_joined_at_once(wholes: list[tuple[bytes, bytes]]) -> None:
    joint = Joint([(9, 3), (70, 2)])
    parts = np.array([[crc(first), crc(second)] for first, second in wholes], np.uint32).reshape(-1, 2)
    expected = [crc(first + bytes(3) + second + bytes(2)) for first, second in wholes]
    assert joint.checksums(parts) == expected
