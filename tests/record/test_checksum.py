"""CRC-32C of any buffer, whole or in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.record import checksum
from strom.record.checksum import crc32c, crc32c_many, summing_in


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


@pytest.mark.parametrize("native", [True, False])
def test_stretches_of_a_buffer_are_summed_up_as_it_changes(
    native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(checksum, "_extend_at", None)
    content = bytearray(range(256)) * 2048
    sum_up = summing_in(content)
    for start, end in ((0, 0), (3, 3), (0, 5), (7, 70_000), (1, len(content)), (len(content), len(content))):
        assert sum_up(start, end, 0) == crc32c(content[start:end])
        assert sum_up(start, end, 99) == crc32c(content[start:end], 99)
    content[6] ^= 1
    assert sum_up(0, 10, 0) == crc32c(content[:10])
    for start, end in ((-1, 3), (5, 4), (0, len(content) + 1)):
        with pytest.raises(ValueError, match="outside"):
            sum_up(start, end, 0)
