"""A tablet checks what comes in, shows what is durable, and says when its disk failed."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pyarrow as pa
import pytest

from strom.errors import (
    ChecksumMismatch,
    InvalidTimestamp,
    MalformedBatch,
    OffsetOutOfRange,
    RecordTooLarge,
    SchemaNotFound,
    StorageOffline,
    StromError,
    TornBatch,
)
from strom.log.groups import Origin
from strom.log.log import Log
from strom.log.settings import LogSettings
from strom.model.bucket import BucketId
from strom.record.batch import BatchLimits, Checked, read_columns, read_header, split, write_crc
from strom.record.columns import ColumnLayout
from strom.record.encode import encode
from strom.record.statistics import read as read_statistics
from strom.runtime.files import LocalFiles
from strom.tablet.log_tablet import PROVING, LogTablet
from strom.tablet.tablet import Accepted, Durability
from strom.testing.disk import ForgettingDisk

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
LAYOUT = ColumnLayout.of(SCHEMA)


def layout_of(schema_id: int) -> ColumnLayout | None:
    return LAYOUT if schema_id == 1 else None


def tablet(durability: Durability = "os", **limits: int) -> LogTablet:
    disk = ForgettingDisk()
    disk.make_folder("/data")
    log = Log.open(disk, "/data/b", LogSettings(), now_ms=1000)
    return LogTablet(BucketId(1, None, 0), log, durability=durability, limits=BatchLimits(**limits))


def rows(count: int, schema_id: int = 1, **more: int) -> bytearray:
    batch = pa.record_batch([list(range(count)), [f"n{i}" for i in range(count)]], schema=SCHEMA)
    return encode(batch, schema_id=schema_id, **more)  # type: ignore[arg-type]


def append(one: LogTablet, records: bytearray | bytes, now_ms: int = 2000) -> Accepted:
    return one.append(memoryview(bytearray(records)), layout_of=layout_of, now_ms=now_ms)


def sync(one: LogTablet) -> None:
    point = one.pending_sync()
    assert point is not None
    point.sync()
    one.synced(point)


def test_under_os_a_row_is_readable_once_it_is_written() -> None:
    one = tablet("os")
    assert append(one, rows(3)) == Accepted(0, 3, 3, len(rows(3)), False)
    assert one.high_watermark == one.end_offset == 3
    found = one.read(0, max_bytes=1000)
    assert (found.rows, found.next_offset) == (3, 3)


def test_under_group_a_row_is_readable_once_it_is_synced() -> None:
    one = tablet("group")
    append(one, rows(3))
    assert (one.high_watermark, one.end_offset) == (0, 3)
    assert one.read(0, max_bytes=1000).rows == 0
    sync(one)
    assert one.high_watermark == 3
    assert one.read(0, max_bytes=1000).rows == 3
    assert one.pending_sync() is None


def test_those_who_wait_are_called_when_the_high_watermark_moves() -> None:
    one = tablet("group")
    called: list[StromError | None] = []
    append(one, rows(3))
    one.pending.add(3, called.append)
    one.advance()
    assert called == []
    sync(one)
    assert called == [None]


def test_several_batches_in_one_request_are_appended_together() -> None:
    one = tablet()
    accepted = append(one, rows(2) + rows(3))
    assert (accepted.base_offset, accepted.next_offset, accepted.rows) == (0, 5, 5)
    headers = [header for header, _ in split(b"".join(one.read(0, max_bytes=10_000).buffers))]
    assert [(header.base_offset, header.timestamp_ms) for header in headers] == [(0, 2000), (2, 2000)]


def test_of_several_batches_none_is_appended_when_one_is_bad() -> None:
    one = tablet()
    damaged = rows(3)
    damaged[-9] ^= 1
    with pytest.raises(ChecksumMismatch):
        append(one, rows(2) + damaged)
    assert one.end_offset == 0


def test_a_batch_that_was_sent_twice_is_found_again() -> None:
    one = tablet()
    first = append(one, rows(2, writer_id=7, batch_sequence=0))
    again = append(one, rows(2, writer_id=7, batch_sequence=0))
    assert (again.base_offset, again.next_offset, again.duplicate) == (
        first.base_offset,
        first.next_offset,
        True,
    )
    assert one.end_offset == 2


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (b"", MalformedBatch),
        (b"x" * 20, TornBatch),
        (rows(3)[:-1], TornBatch),
        (rows(3, schema_id=2), SchemaNotFound),
        (rows(10_000), RecordTooLarge),
    ],
)
def test_what_is_not_a_batch_of_this_table_is_refused(records: bytes, error: type[StromError]) -> None:
    one = tablet(batch_bytes_max=50_000)
    with pytest.raises(error):
        append(one, records)
    assert one.end_offset == 0


def test_change_types_do_not_belong_into_a_log_table() -> None:
    batch = pa.record_batch([[1], ["a"]], schema=SCHEMA)
    with pytest.raises(MalformedBatch, match="appends only"):
        append(tablet(), encode(batch, schema_id=1, changes=b"\x01"))


def test_a_failed_disk_is_told_to_everyone_for_good() -> None:
    one = tablet("group")
    append(one, rows(3))
    called: list[StromError | None] = []
    one.pending.add(3, called.append)
    error = StorageOffline("the disk is gone")
    one.fail(error)
    assert called == [error]
    for attempt in (
        lambda: append(one, rows(1)),
        lambda: one.read(0, max_bytes=10),
        lambda: one.tail_rows(1),
    ):
        with pytest.raises(StorageOffline, match="the disk is gone"):
            attempt()
    assert one.pending_sync() is None


def test_offsets_by_time_stay_below_the_high_watermark() -> None:
    one = tablet("group")
    append(one, rows(3), now_ms=2000)
    assert one.offset_at(2000, now_ms=5000) == 0
    sync(one)
    append(one, rows(3), now_ms=3000)
    append(one, rows(3), now_ms=4000)
    assert one.offset_at(2500, now_ms=5000) == 3
    assert one.offset_at(3500, now_ms=5000) == 3, "offset 6 is not durable yet"
    with pytest.raises(InvalidTimestamp, match="future"):
        one.offset_at(5000 + 10**6, now_ms=5000)


def test_the_last_rows_end_at_the_high_watermark() -> None:
    one = tablet("group")
    append(one, rows(3))
    sync(one)
    append(one, rows(3))
    found = one.tail_rows(2)
    assert (found.rows, found.next_offset) == (3, 3)


def test_a_writer_whose_statistics_lie_is_found_out_and_watched_from_then_on() -> None:
    """Not every batch is checked against its statistics; once one was wrong, every one is."""
    one = tablet()
    honest = encode(pa.record_batch([[7, 8], ["a", "b"]], schema=SCHEMA), schema_id=1, statistics=[0])
    for _ in range(PROVING):
        append(one, bytearray(honest))
    lie = bytearray(honest)
    place = lie.rindex((7).to_bytes(8, "little"))
    lie[place : place + 8] = (1).to_bytes(8, "little")  # a value below the claimed minimum
    write_crc(lie, read_header(lie).magic)
    known: list[bool] = []
    for _ in range(2 * PROVING):
        start = append(one, bytearray(lie)).base_offset
        ((header, view),) = split(b"".join(one.read(start, max_bytes=1 << 20).buffers))
        known.append(bool(read_statistics(view, SCHEMA, [0], header=header)))
    found_out = known.index(False)
    assert found_out < PROVING
    assert not any(known[found_out:])


# --- held and cut, as followers need it


def test_a_held_bucket_shows_nothing_above_and_may_be_cut_there() -> None:
    one = tablet()
    append(one, rows(3))
    one.hold(3)
    append(one, rows(2))
    assert (one.high_watermark, one.end_offset) == (3, 5)
    assert one.read(3, max_bytes=1000).rows == 0
    epoch = one.log.epoch
    assert one.truncate(4) == 3
    assert (one.end_offset, one.log.epoch) == (3, epoch + 1)
    append(one, rows(1))
    one.hold(None)
    assert one.high_watermark == 4
    found = one.read(3, max_bytes=1000)
    assert (found.rows, found.next_offset) == (1, 4)


def test_what_readers_have_seen_is_not_cut() -> None:
    one = tablet()
    append(one, rows(3))
    with pytest.raises(OffsetOutOfRange):
        one.truncate(2)
    assert one.end_offset == 3


def test_a_closed_tablet_holds_no_file_open(tmp_path: Path) -> None:
    """Without a garbage collection, which a server lets run rarely: a dropped table must free its disk at once."""

    def held() -> list[str]:
        links = Path("/proc/self/fd").iterdir()
        targets = [os.readlink(link) for link in links if link.is_symlink()]
        return [target for target in targets if target.startswith(str(tmp_path))]

    gc.collect()
    gc.disable()
    try:
        log = Log.open(LocalFiles(), f"{tmp_path}/bucket", LogSettings(), 1)
        log.begin_group(Origin(1, "sink", 1))
        log.abort_group()
        tablet = LogTablet(BucketId(1, None, 0), log, durability="os", limits=BatchLimits())
        batch = encode(pa.record_batch([pa.array([1], pa.int64())], names=["a"]), schema_id=1)
        header = read_header(batch)
        log.append(memoryview(batch), Checked(header, read_columns(batch, header), None), now_ms=5)
        tablet.close()
        assert held() == []
    finally:
        gc.enable()
