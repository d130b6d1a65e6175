"""A stream of bytes is cut into the frames it was made of, wherever it is cut and however large they are."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import InvalidRequest, RecordTooLarge, TableNotFound
from strom.protocol.codec import decode
from strom.protocol.connection import AREA_BYTES, PEEK_BYTES, SMALL_BYTES_MAX, FrameReader
from strom.protocol.frame import (
    encode_error,
    encode_request,
    encode_response,
    read_request_head,
    read_response_head,
)
from strom.protocol.messages.connection import ErrorResponse
from strom.protocol.messages.databases import DatabaseExistsRequest, DatabaseExistsResponse


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def feed(reader: FrameReader, stream: bytes, *, at_most: int = 1 << 30) -> list[bytes]:
    """Give the stream to the reader, never more than ``at_most`` bytes at a time, and take every frame."""
    frames = []
    while True:
        while (frame := reader.next()) is not None:
            frames.append(bytes(frame))
        if reader.wanted:
            reader.admit()
        elif not stream:
            return frames
        else:
            room = reader.room()
            count = min(len(room), len(stream), at_most)
            assert count > 0
            room[:count] = stream[:count]
            stream = stream[count:]
            reader.filled(count)


SIZES = st.one_of(
    st.integers(8, 100),
    st.sampled_from([SMALL_BYTES_MAX - 1, SMALL_BYTES_MAX, SMALL_BYTES_MAX + 1, AREA_BYTES, 3 * AREA_BYTES]),
)


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(SIZES, max_size=12), at_most=st.sampled_from([7, 256, 5_000, 1 << 30]))
def test_frames_come_out_as_they_went_in(sizes: list[int], at_most: int) -> None:
    bodies = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    reader = FrameReader(frame_bytes_max=1 << 20)
    assert feed(reader, b"".join(map(framed, bodies)), at_most=at_most) == bodies
    assert not reader.amid_frame
    assert reader.frames == len(bodies)


def test_a_large_frame_arrives_in_memory_of_its_own() -> None:
    reader = FrameReader(frame_bytes_max=1 << 20)
    for turn in range(3):
        size = 1 << 20
        head = struct.pack(">i", size)
        room = reader.room()
        room[:4] = head
        reader.filled(4)
        assert reader.next() is None
        assert reader.wanted == size
        reader.admit()
        room = reader.room()
        assert len(room) == size, f"all of frame {turn} goes where it stays"
        reader.filled(size)
        frame = reader.next()
        assert isinstance(frame, memoryview)
        assert not frame.readonly
        assert len(reader.room()) == PEEK_BYTES, "after a large frame, little is read ahead"


def test_a_large_frame_takes_no_memory_before_it_is_admitted() -> None:
    reader = FrameReader(frame_bytes_max=1 << 40)
    room = reader.room()
    room[:12] = struct.pack(">ihhi", 2**31 - 1, 1014, 0, 0)
    reader.filled(12)
    assert reader.next() is None
    assert reader.wanted == 2**31 - 1
    assert reader.frame_bytes == 2**31 - 1


def test_each_small_frame_owns_its_bytes() -> None:
    reader = FrameReader(frame_bytes_max=1 << 20)
    stream = framed(b"a" * 10) + framed(b"b" * 10)
    reader.room()[: len(stream)] = stream
    reader.filled(len(stream))
    first = reader.next()
    assert reader.more
    second = reader.next()
    assert not reader.more
    assert isinstance(first, bytearray)
    assert isinstance(second, bytearray)
    first[0] = 0
    reader.room()[:4] = b"zzzz"
    assert second == b"b" * 10


def test_a_frame_over_the_limit_is_refused_with_its_head_once_that_is_known() -> None:
    reader = FrameReader(frame_bytes_max=100)
    head = struct.pack(">ihhi", 101, 1014, 0, 77)
    assert feed(reader, head[:11]) == []
    with pytest.raises(RecordTooLarge) as refused:
        feed(reader, head[11:])
    assert read_request_head(refused.value.facts["head"]) == (1014, 0, 77)  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [-1, 0, 7, -(2**31)])
def test_a_length_that_no_frame_can_have_is_refused_at_once(length: int) -> None:
    with pytest.raises(InvalidRequest, match="length"):
        feed(FrameReader(frame_bytes_max=100), struct.pack(">i", length))


def test_the_limit_may_grow_after_a_login() -> None:
    reader = FrameReader(frame_bytes_max=50)
    assert feed(reader, framed(b"x" * 50)) == [b"x" * 50]
    reader.frame_bytes_max = 1000
    assert feed(reader, framed(b"x" * 1000)) == [b"x" * 1000]


def test_a_request_looks_as_the_peer_sends_it() -> None:
    sent = b"".join(encode_request(1004, 0, 5, DatabaseExistsRequest(database_name="fluss")))
    assert sent.hex() == "0000000f03ec0000000000050a05" + b"fluss".hex()
    assert read_request_head(sent[4:]) == (1004, 0, 5)


def test_a_response_says_whether_the_call_succeeded() -> None:
    good = b"".join(encode_response(5, DatabaseExistsResponse(exists=True)))
    assert good.hex() == "0000000700000000050801"
    assert read_response_head(good[4:]) == (True, 5)
    bad = b"".join(encode_error(6, TableNotFound("no table a.b")))
    assert read_response_head(bad[4:]) == (False, 6)
    assert decode(ErrorResponse, bad, start=9) == ErrorResponse(error_code=7, error_message="no table a.b")


def test_an_unknown_response_type_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="response type 2"):
        read_response_head(b"\x02\x00\x00\x00\x00")
