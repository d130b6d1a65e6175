"""A single lookup finds what the ordinary one finds, whatever the key is made of and wherever the row lies."""

from __future__ import annotations

import threading
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings

from kv.plain_rows import found_row, plain
from strom.errors import LimitExceeded, MalformedBatch
from strom.kv.definition import KeyDefinition
from strom.kv.lookup.single_row import SingleRow
from strom.log.settings import LogSettings
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.record.batch import BatchLimits
from strom.runtime.files import LocalFiles
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_tablet import KeyTablet

KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-3, 3),
    pa.int16(): st.integers(-3, 3),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.sampled_from([0.0, -0.0, 1.5]),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal128(20, 2): st.integers(-9, 9).map(lambda n: Decimal(n) / 4),
    pa.date32(): st.dates(date(1960, 1, 1), date(2030, 1, 1)),
    pa.time32("ms"): st.sampled_from([time(0), time(1, 2, 3, 4000)]),
    pa.timestamp("us"): st.datetimes(datetime(1960, 1, 1), datetime(2030, 1, 1)),
}
SETTINGS = KeySettings(segment_bytes=1 << 14, snapshot_bytes=1 << 14, lease_ms=0, merge_files=2)


class Bucket:
    """One tablet, and the rows it must have."""

    def __init__(self, folder: Path, arrow: pa.Schema, key: list[str]) -> None:
        self.schema = Schema.from_arrow(arrow, primary_key=key)
        self.arrow = self.schema.to_arrow()
        self.key = tuple(self.schema.position(name) for name in key)
        self.keys = pa.schema([self.arrow.field(position) for position in self.key])
        self.now = 1_000
        self.tablet = KeyTablet.open(
            LocalFiles(),
            str(folder / "bucket"),
            BucketId(1, None, 0),
            KeyDefinition((self.schema,), key=self.key),
            durability="os",
            limits=BatchLimits(),
            log_settings=LogSettings(sync_on_roll=False),
            settings=SETTINGS,
            now_ms=self.now,
        )

    def write(self, rows: list[dict[str, Any]], deletes: list[bool] | None = None) -> None:
        self.now += 1
        self.tablet.upsert(
            pa.RecordBatch.from_pylist(rows, self.arrow),
            None if deletes is None else pa.array(deletes).to_numpy(zero_copy_only=False),
            targets=None,
            schema_id=1,
            writer_id=-1,
            batch_sequence=-1,
            now_ms=self.now,
        )

    def upkeep(self) -> None:
        while (job := self.tablet.next_job(self.now)) is not None:
            job.work()
            job.finish()

    def check(self, rows: list[dict[str, Any]], columns: tuple[int, ...] | None) -> None:
        """Every key by itself gives what all of them together give."""
        asked = pa.RecordBatch.from_pylist(rows, self.arrow).select(list(self.key))
        ordinary = self.tablet.lookup(asked, columns=columns)
        expected = dict(zip(ordinary.positions.tolist(), ordinary.rows.to_pylist(), strict=True))
        for number, row in enumerate(rows):
            found = found_row(self.tablet, plain(self.keys, row), columns)
            there = expected.get(number)
            assert found == (None if there is None else plain(ordinary.rows.schema, there))


@st.composite
def _tables(draw: st.DrawFn) -> tuple[pa.Schema, list[str]]:
    key = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3))
    rest = draw(st.lists(st.sampled_from(list(KINDS)), max_size=9))
    fields = [pa.field(f"k{at}", kind, nullable=False) for at, kind in enumerate(key)]
    fields += [pa.field(f"v{at}", kind) for at, kind in enumerate(rest)]
    return pa.schema(draw(st.permutations(fields))), [f"k{at}" for at in range(len(key))]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_every_kind_of_key_and_row_is_found_as_by_the_ordinary_lookup(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    arrow, key = data.draw(_tables())
    bucket = Bucket(tmp_path_factory.mktemp("bucket"), arrow, key)
    row = st.fixed_dictionaries(
        {
            field.name: KINDS[field.type] if not field.nullable else st.none() | KINDS[field.type]
            for field in arrow
        }
    )
    asked: list[dict[str, Any]] = []
    for _ in range(data.draw(st.integers(1, 4))):
        rows = data.draw(st.lists(row, min_size=1, max_size=8))
        again = data.draw(st.lists(st.sampled_from(asked), max_size=4)) if asked else []
        asked += rows
        bucket.write([*rows, *again], data.draw(st.none() | _flags(len(rows) + len(again))))
        if data.draw(st.booleans()):
            bucket.upkeep()
        if data.draw(st.booleans()):
            bucket.tablet.hold(bucket.tablet.high_watermark)  # what comes is not visible
    asked += data.draw(st.lists(row, max_size=4))
    columns = data.draw(
        st.none() | st.lists(st.integers(0, len(arrow) - 1), min_size=1, unique=True).map(tuple)
    )
    bucket.check(asked, columns)
    bucket.tablet.hold(None)
    bucket.check(asked, columns)
    assert bucket.tablet.online
    bucket.tablet.close()


def _flags(count: int) -> st.SearchStrategy[list[bool]]:
    return st.lists(st.booleans(), min_size=count, max_size=count)


WIDE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])


def test_a_row_in_a_file_is_checked_before_it_is_read(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, WIDE, ["id"])
    rows = [{"id": number, "text": f"text {number}" * 20} for number in range(500)]
    bucket.write(rows)
    bucket.write([{"id": -1, "text": None}])
    bucket.upkeep()
    bucket.tablet.close()
    again = Bucket(tmp_path, WIDE, ["id"])
    assert again.tablet.store.rows.base_files
    assert found_row(again.tablet, plain(again.keys, rows[7])) == plain(again.arrow, rows[7])
    again.check(rows, None)
    again.tablet.close()


def test_a_row_larger_than_the_room_is_found_and_one_larger_than_allowed_refused(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path, WIDE, ["id"])
    row = {"id": 1, "text": "x" * 100_000}
    bucket.write([row])
    key = plain(bucket.keys, row)
    assert found_row(bucket.tablet, key) == plain(bucket.arrow, row)
    for limit in (50_000, 100_000):
        with pytest.raises(LimitExceeded, match="fewer columns"):
            bucket.tablet.lookup_row(key, columns=None, bytes_max=limit)
    bucket.tablet.close()


def test_a_key_longer_than_the_room_for_keys_is_found(tmp_path: Path) -> None:
    arrow = pa.schema([pa.field("name", pa.string(), nullable=False), ("value", pa.int32())])
    bucket = Bucket(tmp_path, arrow, ["name"])
    row = {"name": "n" * 3000, "value": 7}
    bucket.write([row])
    assert found_row(bucket.tablet, plain(bucket.keys, row)) == plain(bucket.arrow, row)
    assert found_row(bucket.tablet, plain(bucket.keys, {"name": "n" * 2999})) is None
    bucket.tablet.close()


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40))
def test_bytes_that_are_no_key_are_refused_and_nothing_else_happens(
    tmp_path_factory: pytest.TempPathFactory, key: bytes
) -> None:
    arrow = pa.schema(
        [pa.field(name, kind, nullable=False) for name, kind in (("a", pa.string()), ("b", pa.bool_()))]
    )
    bucket = Bucket(tmp_path_factory.mktemp("bucket"), arrow, ["a", "b"])
    bucket.write([{"a": "", "b": False}, {"a": "x", "b": True}])
    length = int.from_bytes(key[1:5], "little")
    if len(key) < 6 or key[0] or key[5] > 1 or len(key) != 6 + length:
        with pytest.raises(MalformedBatch, match="plain row"):
            found_row(bucket.tablet, key)
    else:
        there = (key[6:], key[5]) in ((b"", 0), (b"x", 1))
        assert found_row(bucket.tablet, key) == (key if there else None)
    bucket.tablet.close()


def test_readers_beside_a_writer_see_whole_rows_that_never_grow_older(tmp_path: Path) -> None:
    arrow = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.string())])
    bucket = Bucket(tmp_path, arrow, ["id"])

    def rows(value: int) -> list[dict[str, Any]]:
        return [{"id": n, "a": value, "b": f"{value}"} for n in range(50)]

    bucket.write(rows(0))
    wrong: list[object] = []
    ended = threading.Event()

    def read() -> None:
        newest = [0] * 50
        while not ended.is_set():
            for number in range(50):
                found = found_row(bucket.tablet, plain(bucket.keys, {"id": number}))
                value = -1 if found is None else int.from_bytes(found[9:17], "little")
                if value < newest[number] or found != plain(bucket.arrow, rows(value)[number]):
                    wrong.append((number, newest[number], found))
                newest[number] = value

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for value in range(1, 150):
        bucket.write(rows(value))
        if found_row(bucket.tablet, plain(bucket.keys, {"id": 3})) != plain(bucket.arrow, rows(value)[3]):
            wrong.append(value)
        if value % 20 == 0:
            bucket.upkeep()
    ended.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    bucket.tablet.close()


def test_a_large_row_and_a_large_key_do_not_hold_memory_for_ever(tmp_path: Path) -> None:
    arrow = pa.schema([pa.field("k", pa.string(), nullable=False), ("v", pa.string())])
    bucket = Bucket(tmp_path, arrow, ["k"])
    rows = [{"k": "a", "v": "x" * 3_000_000}, {"k": "b" * 1_000_000, "v": "y"}, {"k": "c", "v": "z"}]
    bucket.write(rows)
    single = SingleRow(bucket.tablet.store, None)
    for row in rows:
        key = plain(bucket.keys, row)
        found = single.find(key, high=lambda: bucket.tablet.high_watermark, bytes_max=10**8)
        assert found == plain(arrow, row)
    assert len(single._room) <= 64 * 1024
    assert len(single._asked) <= 64 * 1024
