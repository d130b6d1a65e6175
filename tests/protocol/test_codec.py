"""Our protobuf: the same bytes as everyone's, without copies, and never trusting what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.any_message import MESSAGES, any_message, protobuf_class, to_protobuf
from strom.errors import InvalidRequest
from strom.protocol.codec import DEPTH_MAX, LARGE_BYTES, decode, encode
from strom.protocol.fields import RAW, int32, nested, repeated
from strom.protocol.frame import LENGTH, RESPONSE_HEAD, encode_response
from strom.protocol.message import Message, whole
from strom.protocol.messages.databases import DatabaseExistsRequest
from strom.protocol.messages.log import (
    FetchLogBucketResponse,
    ListOffsetsRequest,
    ProduceLogBucketRequest,
    ProduceLogRequest,
)
from strom.protocol.messages.own import FetchRowsBucketResponse, FetchRowsResponse
from strom.protocol.messages.predicate import CompoundPredicate, WirePredicate
from strom.protocol.varint import encode_varint, read_varint


def encoded(message: Message) -> bytes:
    return b"".join(encode(message))


def a_produce(records: Any, **changes: Any) -> ProduceLogRequest:
    bucket = ProduceLogBucketRequest(bucket_id=3, records=records)
    values = {"acks": -1, "table_id": 7, "timeout_ms": 30_000, "buckets_req": [bucket]} | changes
    return ProduceLogRequest(**values)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_decode_returns_what_encode_was_given_and_protobuf_agrees(
    kind: type[Message], data: st.DataObject
) -> None:
    message = data.draw(any_message(kind))
    ours = encoded(message)
    assert decode(kind, ours) == message
    theirs = to_protobuf(message)
    read = protobuf_class(kind).FromString(ours)
    read.DiscardUnknownFields()  # what aligned payloads are filled up with
    assert read == theirs
    assert decode(kind, bytearray(theirs.SerializeToString())) == message
    if not any(field.aligned for field in kind.fields.values()):
        assert ours == theirs.SerializeToString(deterministic=True)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(
        st.integers(0, 50) | st.sampled_from([127, 128, 20_000, 3 << 20]).map(lambda n: n // 8 * 8),
        max_size=4,
    ),
    message=st.text(max_size=40),
)
def test_an_aligned_payload_begins_at_a_multiple_of_eight_in_its_frame(
    sizes: list[int], message: str
) -> None:
    buckets = [
        FetchRowsBucketResponse(
            bucket_id=number, error_message=message[number:], records=bytes(size), next_offset=size
        )
        for number, size in enumerate(sizes)
    ]
    response = FetchRowsResponse(buckets_resp=buckets)
    frame = b"".join(encode_response(7, response))[LENGTH.size :]
    found = decode(FetchRowsResponse, frame, start=RESPONSE_HEAD.size)
    assert found == response
    first = np.frombuffer(frame, np.uint8).ctypes.data
    for bucket in found.buckets_resp:
        view = whole(bucket.records or b"")
        assert not len(view) or (np.frombuffer(view, np.uint8).ctypes.data - first) % 8 == 0
    theirs = protobuf_class(FetchRowsResponse).FromString(frame[RESPONSE_HEAD.size :])
    assert [bucket.records for bucket in theirs.buckets_resp] == [bytes(size) for size in sizes]


@given(value=st.integers(-(2**63), 2**64 - 1))
def test_a_varint_is_read_as_it_was_written(value: int) -> None:
    written = encode_varint(value)
    assert read_varint(written, 0) == (value % 2**64, len(written))
    assert len(written) <= 10


def test_the_first_bytes_a_fluss_client_sends_are_understood() -> None:
    from strom.protocol.messages.connection import ApiVersionsRequest

    body = bytes.fromhex("0a0a666c7573732d727573741205312e302e30")
    hello = ApiVersionsRequest(client_software_name="fluss-rust", client_software_version="1.0.0")
    assert decode(ApiVersionsRequest, body) == hello
    assert encoded(hello) == body


def test_a_decoded_payload_is_a_writable_view_of_the_frame() -> None:
    frame = bytearray(encoded(a_produce(b"x" * 100)))
    records = decode(ProduceLogRequest, frame).buckets_req[0].records
    assert isinstance(records, memoryview)
    records[0] = ord("y")
    assert frame.count(b"y") == 1


def test_a_large_payload_is_sent_from_where_it_lies() -> None:
    payload = bytearray(LARGE_BYTES)
    buffers = encode(a_produce(payload))
    assert any(buffer is payload for buffer in buffers)
    assert len(buffers) == 2


def test_a_payload_may_be_several_buffers() -> None:
    parts = [b"a" * 10, memoryview(b"b" * LARGE_BYTES), bytearray(b"c")]
    bucket = FetchLogBucketResponse(bucket_id=0, records=parts)
    assert any(buffer is parts[1] for buffer in encode(bucket))
    found = decode(FetchLogBucketResponse, encoded(bucket))
    assert found.records == b"".join(parts)
    assert found == bucket


def test_a_view_of_wide_items_is_sent_by_its_bytes() -> None:
    wide = memoryview(bytes(80)).cast("q")
    assert len(wide) == 10
    found = decode(ProduceLogBucketRequest, encoded(ProduceLogBucketRequest(bucket_id=0, records=wide)))
    assert len(whole(found.records)) == 80


def test_an_empty_payload_is_not_an_absent_one() -> None:
    empty, absent = (FetchLogBucketResponse(bucket_id=0, records=records) for records in (b"", None))
    assert decode(FetchLogBucketResponse, encoded(empty)).records == b""
    assert decode(FetchLogBucketResponse, encoded(absent)).records is None
    assert empty != absent


def test_a_negative_int32_takes_ten_bytes_as_in_every_protobuf() -> None:
    assert encoded(a_produce(b"", buckets_req=())).hex().startswith("08ffffffffffffffffff01")


@pytest.mark.parametrize(
    ("octets", "number"),
    [
        (b"\xff" * 9 + b"\x7f", -1),
        (b"\x80" * 9 + b"\x02", 0),
        (b"\x80" * 9 + b"\x03", -(2**63)),
        (b"\xff" * 8 + b"\x7f", 2**63 - 1),
        (b"\x85" + b"\x80" * 8 + b"\x7e", 5),
    ],
    ids=["all bits", "bit 64", "bits 63 and 64", "the largest", "five and more"],
)
def test_bits_beyond_the_64th_do_not_count_as_in_every_protobuf(octets: bytes, number: int) -> None:
    """In ten bytes there is room for 70; a number of more bits than its field would go on into what is stored."""
    head = encoded(ListOffsetsRequest(follower_server_id=-1, offset_type=0, table_id=1))
    assert decode(ListOffsetsRequest, head + b"\x30" + octets).start_timestamp == number
    theirs = protobuf_class(ListOffsetsRequest)()
    theirs.ParseFromString(head + b"\x30" + octets)
    assert theirs.start_timestamp == number


def test_numbers_may_be_packed_or_not() -> None:
    packed = ListOffsetsRequest(follower_server_id=-1, offset_type=0, table_id=1, bucket_id=[1, 2, 300, -4])
    head = encoded(ListOffsetsRequest(follower_server_id=-1, offset_type=0, table_id=1))
    singly = head + b"".join(b"\x28" + encode_varint(number) for number in packed.bucket_id)
    assert decode(ListOffsetsRequest, singly) == packed
    twice = encoded(packed) + b"\x2a\x01\x09"
    assert list(decode(ListOffsetsRequest, twice).bucket_id) == [1, 2, 300, -4, 9]


def test_fields_of_a_newer_version_are_skipped() -> None:
    newer = [b"\x78\x96\x01", b"\x7a\x03abc", b"\x7d1234", b"\x7912345678"]
    body = encoded(DatabaseExistsRequest(database_name="fluss"))
    for unknown in newer:
        assert decode(DatabaseExistsRequest, unknown + body + unknown).database_name == "fluss"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "lacks database_name"),
        ("0a", "ends too early"),
        ("0a05666c", "longer than its message"),
        ("0a02c328", "not UTF-8"),
        ("0a" + "ff" * 10 + "01", "longer than ten bytes"),
        ("0b", "wire type 3"),
        ("00", "field number 0"),
        ("0a05666c75737379", "longer than its message"),
        ("0a05666c757373" + "7d1234", "longer than its message"),
        ("0a05666c757373" + "7aff01", "longer than its message"),
    ],
)
def test_bytes_that_are_no_message_are_refused(body: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        decode(DatabaseExistsRequest, bytes.fromhex(body))


def test_a_value_may_not_reach_out_of_its_message() -> None:
    # The inner message says it is one byte long, but its varint goes on in the next field.
    body = encoded(a_produce(b"", buckets_req=())) + bytes.fromhex("22021080") + bytes.fromhex("0000")
    with pytest.raises(InvalidRequest, match="longer than its message"):
        decode(ProduceLogRequest, body)


def nested_predicate(depth: int) -> WirePredicate:
    found = WirePredicate(type=0)
    for _ in range(depth):
        found = WirePredicate(type=1, compound=CompoundPredicate(function=0, children=[found]))
    return found


def test_nesting_is_bounded() -> None:
    assert decode(WirePredicate, encoded(nested_predicate(DEPTH_MAX // 2 - 1)))
    with pytest.raises(InvalidRequest, match="nested"):
        decode(WirePredicate, encoded(nested_predicate(DEPTH_MAX)))


def test_a_message_may_be_nested_as_deep_as_is_said_and_no_deeper() -> None:
    class Doll(Message):
        inner: Doll | None = nested(1, lambda: Doll, default=None)

    def dolls(count: int) -> bytes:
        body = b""
        for _ in range(count):
            body = b"\x0a" + encode_varint(len(body)) + body
        return body

    found: Doll | None = decode(Doll, dolls(DEPTH_MAX))
    depth = -1
    while found is not None:
        found, depth = found.inner, depth + 1
    assert depth == DEPTH_MAX
    with pytest.raises(InvalidRequest, match=f"more than {DEPTH_MAX} deep"):
        decode(Doll, dolls(DEPTH_MAX + 1))


@pytest.mark.parametrize("field", ["22 00", "2a 00", "78 00"], ids=["message", "unknown", "varint"])
def test_a_frame_of_tiny_fields_is_refused_before_it_costs_much(field: str) -> None:
    body = bytes.fromhex(field) * 5_000_000
    with pytest.raises(InvalidRequest):
        decode(ProduceLogRequest, body)


def test_packed_numbers_are_bounded_too() -> None:
    body = b"\x2a" + encode_varint(10_000_000) + bytes(10_000_000)
    with pytest.raises(InvalidRequest, match="too many fields"):
        decode(ListOffsetsRequest, body)


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(MESSAGES), body=st.binary(max_size=80))
def test_any_bytes_are_a_message_or_an_invalid_request(kind: type[Message], body: bytes) -> None:
    try:
        message = decode(kind, body)
    except InvalidRequest:
        return
    assert decode(kind, encoded(message)) == message


class Shelf(Message):
    number: int = int32(1)
    books: Sequence[bytes] = repeated(2, RAW, default=())
    below: Shelf | None = nested(3, lambda: Shelf, default=None)


def test_a_message_is_built_with_exactly_its_fields() -> None:
    assert Shelf(number=1).books == ()
    with pytest.raises(TypeError, match="missing fields \\['number'\\]"):
        Shelf()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown fields \\['color'\\]"):
        Shelf(number=1, color="red")  # type: ignore[call-arg]


def test_a_message_shows_itself_without_its_payload() -> None:
    shown = repr(Shelf(number=1, books=[b"x" * 1000] * 5, below=Shelf(number=2)))
    assert (
        shown
        == "Shelf(number=1, books=[<1000 bytes>, <1000 bytes>, <1000 bytes>, … 5 in all], below=Shelf(number=2))"
    )


def test_messages_are_equal_by_what_they_say() -> None:
    assert Shelf(number=1, books=[b"a"]) == Shelf(number=1, books=(bytearray(b"a"),))
    assert Shelf(number=1, books=[b"a"]) != Shelf(number=1, books=[b"b"])
    assert Shelf(number=1) != DatabaseExistsRequest(database_name="1")
