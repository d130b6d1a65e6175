"""Rows go to their partition and bucket, in portions of a bounded size, and none is lost."""

from __future__ import annotations

import asyncio

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.play import description_of
from strom.client.input.routing import Router, cut, size_of, split_by_number
from strom.client.write.memory_budget import MemoryBudget
from strom.errors import InvalidPartition
from strom.model.bucketing import bucket_of
from strom.testing import loop as virtual
from strom.testing.random import SeededRandomness


def router(batch_bytes_max: int = 1024, **options: object) -> Router:
    description = description_of(("id", pa.int64()), ("key", pa.string()), **options)  # type: ignore[arg-type]
    return Router(description, SeededRandomness(3), batch_bytes_max=batch_bytes_max)


def batch(count: int, keys: int = 5) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"id": list(range(count)), "key": [f"k{number % keys}" for number in range(count)]}
    )


def test_one_bucket_takes_the_batch_as_it_is() -> None:
    given_batch = batch(10)
    [part] = router().parts(given_batch)
    assert part.batch is given_batch
    assert (part.partition, part.bucket) == (None, 0)
    assert given_batch.nbytes <= part.size_bytes <= given_batch.nbytes + 512, "with its padding"


@pytest.mark.parametrize("first", ["id", "key"])
def test_a_slice_is_as_large_as_its_own_rows(first: str) -> None:
    whole = batch(10_000).select([first, *{"id", "key"} - {first}])
    assert whole.nbytes <= size_of(whole) <= whole.nbytes + 512
    for part in (whole.slice(0, 100), whole.slice(9_000), whole.slice(17, 1)):
        assert size_of(part) == part.nbytes


def test_a_bucket_key_decides_by_hash_and_rows_keep_their_order() -> None:
    rows = batch(1000, keys=50)
    parts = list(router(buckets=7, bucket_key=("key",)).parts(rows))
    expected = bucket_of(rows, ["key"], 7)
    for part in parts:
        ids = part.batch.column("id").to_pylist()
        assert ids == sorted(ids)
        assert {int(expected[number]) for number in ids} == {part.bucket}
    assert sum(part.batch.num_rows for part in parts) == 1000


def test_partition_values_make_partitions() -> None:
    parts = list(router(partition_keys=("key",)).parts(batch(10, keys=2)))
    assert [(part.partition, part.values, part.batch.num_rows) for part in parts] == [
        ("k0", ("k0",), 5),
        ("k1", ("k1",), 5),
    ]
    with pytest.raises(InvalidPartition):
        list(router(partition_keys=("key",)).parts(pa.RecordBatch.from_pydict({"id": [1], "key": [None]})))


def test_without_a_key_small_batches_stick_and_large_ones_go_round() -> None:
    found = router(buckets=3, batch_bytes_max=4096)
    first = [part.bucket for _ in range(10) for part in found.parts(batch(10))]
    assert len(set(first)) == 1
    many = [part.bucket for part in found.parts(batch(5000))]
    counts = np.bincount(many, minlength=3)
    assert counts.max() - counts.min() <= 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60), st.integers(100, 5000))
def test_cutting_keeps_every_row_and_the_bound(lengths: list[int], bytes_max: int) -> None:
    whole = pa.RecordBatch.from_pydict({"text": ["x" * length for length in lengths]})
    pieces = list(cut(whole, whole.nbytes, bytes_max=bytes_max))
    for piece, size in pieces:
        assert size == piece.nbytes
        assert size <= bytes_max or piece.num_rows == 1
    assert (
        pa.Table.from_batches([piece for piece, _ in pieces]).column(0).to_pylist()
        == whole.column(0).to_pylist()
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=200))
def test_splitting_by_number_is_stable_and_complete(numbers: list[int]) -> None:
    rows = pa.RecordBatch.from_pydict({"id": pa.array(range(len(numbers)), pa.int64())})
    found = dict(split_by_number(rows, np.array(numbers, np.int32), 7))
    for number in range(7):
        expected = [i for i, one in enumerate(numbers) if one == number]
        assert (found[number].column(0).to_pylist() if number in found else []) == expected


def test_room_is_given_first_come_first_served() -> None:
    async def main() -> None:
        room = MemoryBudget(100)
        assert room.try_take(500), "more than all is let in when nothing else is"
        assert not room.try_take(1)
        got: list[int] = []

        async def take(amount: int) -> None:
            await room.take(amount)
            got.append(amount)

        tasks = [asyncio.create_task(take(amount)) for amount in (80, 10, 30)]
        await asyncio.sleep(0.1)
        assert got == []
        room.give(500)
        await asyncio.sleep(0.1)
        assert got == [80, 10], "the third does not fit yet"
        tasks[0].cancel()
        room.give(80)
        await asyncio.sleep(0.1)
        assert got == [80, 10, 30]
        room.give(40)
        assert room.taken == 0

    virtual.run(main())


def test_a_place_in_line_that_is_given_up_is_passed_on() -> None:
    async def main() -> None:
        room = MemoryBudget(10)
        assert room.try_take(10)
        first = asyncio.create_task(room.take(5))
        second = asyncio.create_task(room.take(5))
        await asyncio.sleep(0.1)
        room.give(10)
        first.cancel()
        await asyncio.wait([first, second])
        assert second.done()
        assert not second.cancelled()
        assert room.taken == 5

    virtual.run(main())
