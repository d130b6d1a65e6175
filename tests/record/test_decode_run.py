"""Batches that are decoded together are those that are decoded one by one, and the same damage is found in them."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import ChecksumMismatch, MalformedBatch, StromError
from strom.record import layout as at
from strom.record.batch import read_columns, read_header, split, stamp, write_crc
from strom.record.decode import decode
from strom.record.decode_run import Encoded, decode_all
from strom.record.encode import encode

KINDS = [
    pa.int64(),
    pa.string(),
    pa.binary(3),
    pa.bool_(),
    pa.list_(pa.string()),
    pa.struct([("a", pa.string()), ("b", pa.int32())]),
    pa.map_(pa.string(), pa.int64()),
]


def column(kind: pa.DataType, values: list[int], nulls: bool) -> pa.Array:
    def value(number: int) -> object:
        if nulls and number % 3 == 0:
            return None
        if pa.types.is_string(kind):
            return f"text {number}"
        if pa.types.is_fixed_size_binary(kind):
            return bytes([number] * 3)
        if pa.types.is_list(kind):
            return [f"{number}", "x"]
        if pa.types.is_struct(kind):
            return {"a": f"{number}", "b": number}
        if pa.types.is_map(kind):
            return [(f"{number}", number)]
        return number % 2 == 0 if pa.types.is_boolean(kind) else number

    return pa.array([value(number) for number in values], kind)


def together(batches: list[bytearray], shift: int = 0) -> list[Encoded]:
    """The batches side by side, as an answer brings them."""
    size = sum(map(len, batches))
    memory = memoryview(pa.allocate_buffer(size + shift)).cast("B")[shift:]
    memory[:] = b"".join(batches)
    return split(memory)


def singly(batches: list[Encoded], schema: pa.Schema) -> list[pa.RecordBatch]:
    return [decode(view, schema, header=header, aligned=True) for header, view in batches]


def is_aligned(batch: pa.RecordBatch) -> bool:
    buffers = [one for array in batch.columns for one in array.buffers() if one is not None and one.size]
    return all(one.address % 8 == 0 for one in buffers)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    st.lists(st.sampled_from([0, 1, 2, 7, 7, 7, 7]), min_size=1, max_size=12),
    st.sampled_from(["NONE", "NONE", "ZSTD"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 3, 8]),
)
def test_batches_decoded_together_are_those_decoded_singly(
    kinds: list[pa.DataType], counts: list[int], compression: str, nulls: bool, changes: bool, shift: int
) -> None:
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)])
    random = np.random.default_rng(len(counts))
    batches = []
    for number, rows in enumerate(counts):
        values = random.integers(0, 9, rows).tolist()
        columns = [column(kind, values, nulls and number % 5 == 4) for kind in kinds]
        batch = encode(
            pa.record_batch(columns, schema=schema), schema_id=1, compression=compression,
            changes=bytes([1] * rows) if changes else None,
        )  # fmt: skip
        stamp(batch, base_offset=number * 10, timestamp_ms=number)
        batches.append(batch)
    found = together(batches, shift)
    decoded = decode_all(found, schema)
    assert decoded == singly(found, schema)
    assert all(map(is_aligned, decoded))


SCHEMA = pa.schema([("text", pa.string()), ("lists", pa.list_(pa.int32())), ("number", pa.int64())])


def alike(count: int = 5, rows: int = 6) -> list[bytearray]:
    return [
        encode(
            pa.record_batch(
                [
                    pa.array([f"text {n + number}" for n in range(rows)]),
                    pa.array([[n, number] for n in range(rows)], pa.list_(pa.int32())),
                    pa.array([n * number for n in range(rows)], pa.int64()),
                ],
                schema=SCHEMA,
            ),
            schema_id=1,
        )
        for number in range(count)
    ]


def outcome(decoder: object, batches: list[Encoded]) -> object:
    try:
        return decoder(batches, SCHEMA)  # type: ignore[operator]
    except StromError as error:
        return type(error), error.message


def test_these_batches_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strom.record.decode_run.decode", None)
    assert [one.num_rows for one in decode_all(together(alike()), SCHEMA)] == [6] * 5


def test_a_flipped_octet_anywhere_in_a_batch_amid_a_run_is_noticed() -> None:
    batches = alike()
    covered = at.SCHEMA_ID_POSITION[batches[3][at.MAGIC_POSITION]]
    for place in range(covered - at.CRC_LENGTH, len(batches[3])):
        batches[3][place] ^= 1 << place % 8
        found = together(alike())
        # The headers as they were when the answer was split: what is changed later is changed under their feet.
        found[3][1][:] = batches[3]
        with pytest.raises((ChecksumMismatch, MalformedBatch)):
            decode_all([(read_header(view), view) for _, view in found], SCHEMA)
        batches[3][place] ^= 1 << place % 8


def test_whatever_a_batch_amid_a_run_says_is_judged_as_if_it_came_alone() -> None:
    verdicts = set()
    size = len(alike()[0])
    for place in range(at.HEADER_SIZE[0], size):
        for value in (0x01, 0x80):
            batches = alike()
            batches[3][place] ^= value
            write_crc(batches[3], batches[3][at.MAGIC_POSITION])
            expected = outcome(singly, together(batches))
            assert outcome(decode_all, together(batches)) == expected, place
            verdicts.add(type(expected))
    assert verdicts == {list, tuple}


@pytest.mark.parametrize("buffer", [1, 4])
@pytest.mark.parametrize("entry", range(7))
@pytest.mark.parametrize("value", [-1, 3, 1 << 30])
def test_offsets_that_fall_or_point_outside_are_found_in_any_batch(
    buffer: int, entry: int, value: int
) -> None:
    for number in range(5):
        batches = alike()
        bad = batches[number]
        position = read_columns(bad, read_header(bad)).buffers[buffer][0]
        struct.pack_into("<i", bad, position + 4 * entry, value)
        write_crc(bad, read_header(bad).magic)
        found = outcome(decode_all, together(batches))
        assert found == outcome(singly, together(batches))
        if value != 3:  # which lists of other lengths may have
            assert isinstance(found, tuple)
            assert found[0] is MalformedBatch


def test_batches_that_do_not_lie_side_by_side_are_decoded_all_the_same() -> None:
    batches = together(alike(7))
    for chosen in ([0, 1, 2, 4, 5, 6], [3, 2, 1, 0], [0, 0, 0]):
        some = [batches[number] for number in chosen]
        assert decode_all(some, SCHEMA) == singly(some, SCHEMA)
    bad = alike(7)
    position = read_columns(bad[6], read_header(bad[6])).buffers[1][0]
    struct.pack_into("<i", bad[6], position + 8, -1)
    write_crc(bad[6], read_header(bad[6]).magic)
    for chosen in ([0, 1, 2, 4, 5, 6], [6, 0, 1], [6, 6, 6]):
        some = together(bad)
        with pytest.raises(MalformedBatch, match="text"):
            decode_all([some[number] for number in chosen], SCHEMA)
    apart = [(header, memoryview(bytes(view))) for header, view in batches]
    assert decode_all(apart, SCHEMA) == singly(apart, SCHEMA)


def test_many_short_runs_are_found_in_one_pass() -> None:
    """Not by copying what is left of a long list for every run."""

    class Counted(list[Encoded]):
        copied = 0

        def __getitem__(self, place: object) -> object:  # type: ignore[override]
            found = super().__getitem__(place)  # type: ignore[call-overload]
            self.copied += len(found) if isinstance(place, slice) else 0
            return found

    schema = pa.schema([("t", pa.string())])
    both = [
        encode(pa.record_batch([pa.array(["x" * length])], schema=schema), schema_id=1) for length in (3, 30)
    ]
    batches = Counted(together(both * 200))
    assert [one.num_rows for one in decode_all(batches, schema)] == [1] * 400
    assert batches.copied == 400
