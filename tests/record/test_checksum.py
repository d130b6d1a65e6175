"""CRC-32C of any buffer, whole or in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.record.checksum import crc32c, crc32c_many


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: memoryview(bytearray(b))])
def test_the_checksum_is_castagnoli_for_every_kind_of_buffer(kind) -> None:
    assert crc32c(kind(b"123456789")) == 0xE3069283


def test_nothing_has_the_checksum_zero() -> None:
    assert crc32c(b"") == 0


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_pieces_have_the_checksum_of_the_whole(pieces: list[bytes]) -> None:
    whole = crc32c(b"".join(pieces))
    assert crc32c_many(pieces) == whole
    if pieces:
        assert crc32c(b"".join(pieces[1:]), crc32c(pieces[0])) == whole
