"""Remote segments: whole batches come back byte for byte, some columns as a projected read gives them, damage never."""

from __future__ import annotations

import asyncio
import random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import strategies
from formats.golden_rows import ROWS, SCHEMA
from remote.segments import KEY, Stored, following, layouts, named, stamped, whole
from strom.errors import ChecksumMismatch, Corrupt, MalformedBatch, NewerFormat
from strom.record.batch import stamp, write_crc
from strom.record.columns import ColumnLayout
from strom.record.encode import encode
from strom.record.project import Projection, project_batch
from strom.remote.column_extents import (
    EXTENT_BYTES_MAX,
    EXTENT_BYTES_MIN,
    MIB,
    LogBatch,
    extent_bytes,
    transpose,
)
from strom.remote.segment_directory import decode_directory

NUMBERS = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int32())])


def numbers(rows: int, seed: int = 0) -> pa.RecordBatch:
    """Rows that do not compress."""
    rng = random.Random(seed)
    return pa.record_batch(
        [
            pa.array([rng.getrandbits(60) for _ in range(rows)], pa.int64()),
            pa.array([str(rng.getrandbits(40)) for _ in range(rows)]),
            pa.array([rng.getrandbits(30) if rng.random() < 0.9 else None for _ in range(rows)], pa.int32()),
        ],
        schema=NUMBERS,
    )


SEVERAL = [numbers(rows, rows) for rows in (1, 500, 3, 4000, 20, 700)]


@pytest.mark.parametrize("compression", ["NONE", "LZ4_FRAME", "ZSTD"])
@pytest.mark.parametrize("extent_size", [1, 20_000, None])
def test_whole_batches_come_back_byte_for_byte(compression: str, extent_size: int | None) -> None:
    batches = following(SEVERAL, compression=compression, statistics=[0, 2])
    assert whole(batches, NUMBERS, extent_size) == [bytes(one.view) for one in batches]


def test_every_type_change_types_and_batches_without_records_come_back() -> None:
    empty = ROWS.slice(0, 0)
    changes = following([ROWS, empty, ROWS], changes=None)
    with_changes = stamped(ROWS, 109, changes=bytes([1, 2, 3, 4]))
    batches = [*changes, with_changes]
    assert whole(batches, SCHEMA) == [bytes(one.view) for one in batches]


@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_a_batch_holds_it_comes_back(data: st.DataObject) -> None:
    schema = data.draw(strategies.arrow_schemas())
    several = [data.draw(strategies.record_batches(schema)) for _ in range(data.draw(st.integers(1, 3)))]
    batches = following(several)
    assert whole(batches, several[0].schema, data.draw(st.sampled_from([1, None]))) == [
        bytes(one.view) for one in batches
    ]


def test_bytes_between_the_buffers_come_back_too() -> None:
    batch = stamped(numbers(5), 0)
    content = bytearray(batch.view)
    end = content.rindex(b"\0")  # the padding behind the last buffer
    content[end] = 7
    write_crc(content, 0)
    odd = LogBatch(memoryview(content), 1)
    assert whole([odd], NUMBERS) == [bytes(content)]


def projected(
    columns: list[int], start: int, end: int, skip: frozenset[int] = frozenset()
) -> tuple[list[bytes], int]:
    """Batches of some columns, and the bytes that were moved for them."""
    batches = following(SEVERAL, compression="LZ4_FRAME")

    async def main() -> tuple[list[bytes], int]:
        stored = Stored(transpose(batches, layouts(NUMBERS), extent_size=40_000))
        reader = await stored.reader()
        await reader.directory()
        before = stored.ranges.costs.moved
        found = await reader.projected(Projection(ColumnLayout(NUMBERS), columns), start, end, skip)
        return found, stored.ranges.costs.moved - before

    return asyncio.run(main())


@pytest.mark.parametrize("columns", [[0], [1], [2], [0, 2], [0, 1, 2], []])
def test_some_columns_are_what_a_projected_read_of_the_log_gives(columns: list[int]) -> None:
    projection = Projection(ColumnLayout(NUMBERS), columns)
    expected = [
        b"".join(project_batch(one.view, projection)) for one in following(SEVERAL, compression="LZ4_FRAME")
    ]
    assert projected(columns, 0, 1 << 60)[0] == expected


def test_only_batches_of_the_range_that_are_not_skipped_are_fetched() -> None:
    batches = following(SEVERAL, compression="LZ4_FRAME")
    projection = Projection(ColumnLayout(NUMBERS), [2])
    found, _ = projected([2], 101, 620, frozenset({601}))
    assert found == [b"".join(project_batch(batches[number].view, projection)) for number in (1, 3)]


def test_one_column_of_ten_moves_little_more_than_it() -> None:
    schema = pa.schema([(f"c{number}", pa.int64()) for number in range(10)])
    rng = random.Random(1)
    several = [
        pa.record_batch(
            [pa.array([rng.getrandbits(62) for _ in range(800)]) for _ in range(10)], schema=schema
        )
        for _ in range(40)
    ]
    batches = following(several)

    async def main() -> tuple[int, int, int]:
        stored = Stored(transpose(batches, layouts(schema)))
        reader = await stored.reader()
        await reader.directory()
        before = stored.ranges.costs
        await reader.projected(Projection(ColumnLayout(schema), [3, 7]), 0, 1 << 60)
        after = stored.ranges.costs
        return after.requests - before.requests, after.moved - before.moved, after.wanted - before.wanted

    requests, moved, wanted = asyncio.run(main())
    assert requests == 2
    assert wanted == moved == 2 * 40 * 800 * 8


@pytest.mark.parametrize("how", ["whole", "projected"])
def test_a_flipped_byte_anywhere_is_noticed(how: str) -> None:
    batches = following([numbers(6, 1), numbers(3, 2)])
    content = transpose(batches, layouts(NUMBERS))
    projection = Projection(ColumnLayout(NUMBERS), [0, 1, 2])

    async def main() -> list[int]:
        stored = Stored(content)
        missed = []
        for position in range(len(content.content)):
            reader = await stored.reader()
            stored.objects.flip(KEY, position)
            try:
                if how == "whole":
                    await reader.whole(0, 1 << 60)
                else:
                    await reader.projected(projection, 0, 1 << 60)
            except (Corrupt, NewerFormat):
                continue
            missed.append(position)
        return missed

    assert asyncio.run(main()) == []


def test_what_is_damaged_once_is_fetched_again() -> None:
    batches = following(SEVERAL)
    content = transpose(batches, layouts(NUMBERS))

    async def main() -> list[bytes]:
        stored = Stored(content)
        reader = await stored.reader()
        get_range = stored.objects.get_range
        spoiled: list[str] = []

        async def once(key: str, position: int, length: int) -> bytes:
            found = bytearray(await get_range(key, position, length))
            kind = "directory" if position == 0 else "columns"
            if kind not in spoiled:
                spoiled.append(kind)
                found[-1] ^= 1
            return bytes(found)

        stored.objects.get_range = once  # type: ignore[method-assign]
        found = [bytes(one) for one in await reader.whole(0, 1 << 60)]
        assert spoiled == ["directory", "columns"]
        return found

    assert asyncio.run(main()) == [bytes(one.view) for one in batches]


def test_an_object_that_is_another_one_is_not_read() -> None:
    content = transpose(following(SEVERAL), layouts(NUMBERS))
    other = transpose(following(SEVERAL, compression="ZSTD"), layouts(NUMBERS))

    async def main() -> None:
        stored = Stored(content)
        reader = await stored.reader()
        same_size = bytes(other.content).ljust(len(content.content), b"\0")
        await stored.objects.put(KEY, same_size)
        await reader.whole(0, 1 << 60)

    with pytest.raises(Corrupt):
        asyncio.run(main())


def test_a_batch_that_is_damaged_is_not_taken_up() -> None:
    batch = stamped(numbers(50), 0)
    content = bytearray(batch.view)
    content[-9] ^= 1
    with pytest.raises(ChecksumMismatch):
        transpose([LogBatch(memoryview(content), 1)], layouts(NUMBERS))


def test_batches_that_do_not_follow_each_other_are_no_segment() -> None:
    first, _, third = following([numbers(5), numbers(6), numbers(7)])
    with pytest.raises(MalformedBatch, match="does not follow"):
        transpose([first, third], layouts(NUMBERS))


def test_batches_of_two_schemas_lie_in_two_extents() -> None:
    wider = pa.schema([*NUMBERS, ("d", pa.int64())])
    old = stamped(numbers(5), 0)
    content = encode(numbers(4).append_column("d", pa.array([1, 2, 3, 4])), schema_id=2)
    stamp(content, base_offset=5, timestamp_ms=9)
    batches = [old, LogBatch(memoryview(content), 3)]
    both = {1: ColumnLayout(NUMBERS), 2: ColumnLayout(wider)}
    segment = transpose(batches, both)
    directory = decode_directory(segment.content[: segment.directory_size], len(segment.content), KEY)
    assert [len(extent.columns) for extent in directory.extents] == [3, 4]
    assert (named(segment).first_timestamp_ms, named(segment).last_timestamp_ms) == (9, 1000)


def test_an_extent_grows_with_the_columns_within_bounds() -> None:
    assert [extent_bytes(count) for count in (1, 16, 20, 1000)] == [
        EXTENT_BYTES_MIN,
        EXTENT_BYTES_MIN,
        10 * MIB,
        EXTENT_BYTES_MAX,
    ]
