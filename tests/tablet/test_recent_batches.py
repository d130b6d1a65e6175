"""The newest batches from memory are those from the log, or none."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.log.log import Log
from strom.log.settings import LogSettings
from strom.model.bucket import BucketId
from strom.record.batch import BatchLimits, split
from strom.record.columns import ColumnLayout
from strom.record.encode import encode
from strom.record.project import Projection
from strom.tablet.log_tablet import LogTablet
from strom.tablet.recent_batches import BATCH_BYTES_MAX, BATCHES_MAX, RecentBatches
from strom.testing.disk import ForgettingDisk

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
LAYOUT = ColumnLayout.of(SCHEMA)
NAMES = Projection(LAYOUT, (1,))


def filled(sizes: list[int]) -> LogTablet:
    disk = ForgettingDisk()
    disk.make_folder("/data")
    log = Log.open(disk, "/data/b", LogSettings(), now_ms=1)
    tablet = LogTablet(BucketId(1, None, 0), log, durability="os", limits=BatchLimits())
    for size in sizes:
        batch = pa.record_batch([list(range(size)), ["some text"] * size], schema=SCHEMA)
        view = memoryview(encode(batch, schema_id=1))
        tablet.append(view, layout_of=lambda schema_id: LAYOUT, now_ms=2)
    return tablet


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 7, 1000]), min_size=1, max_size=30),
    st.data(),
    st.sampled_from([1, 500, 2000, 10**6]),
    st.booleans(),
)
def test_memory_and_log_give_the_same_batches(
    sizes: list[int], data: st.DataObject, max_bytes: int, projected: bool
) -> None:
    tablet = filled(sizes)
    end = tablet.end_offset
    offset = data.draw(st.integers(0, end - 1))
    until = data.draw(st.integers(offset, end))
    projection = (lambda schema_id: NAMES) if projected else None
    found = tablet.recent.read(offset, until=until, max_bytes=max_bytes, projection=projection)
    if found is not None:
        from_log = tablet.log.read(offset, until=until, max_bytes=max_bytes, projection=projection)
        ours, theirs = (split(b"".join(one.buffers)) for one in (found, from_log))
        shared = min(len(ours), len(theirs))
        assert shared
        assert [bytes(view) for _, view in ours[:shared]] == [bytes(view) for _, view in theirs[:shared]]
        assert found.next_offset == ours[-1][0].next_offset
        assert ours[-1][0].base_offset < until
        assert found.rows == sum(header.record_count for header, _ in ours)
        assert found.size == sum(len(view) for _, view in ours)
        assert found.size <= max_bytes or found.batches == 1


def test_the_end_of_the_log_is_read_from_memory() -> None:
    tablet = filled([3, 2])
    found = tablet.recent.read(3, until=5, max_bytes=10_000, projection=None)
    assert found is not None
    assert (found.rows, found.next_offset, found.batches) == (2, 5, 1)


def test_what_is_not_durable_is_not_shown() -> None:
    tablet = filled([3, 2])
    assert tablet.recent.read(3, until=3, max_bytes=10_000, projection=None) is None
    found = tablet.recent.read(0, until=3, max_bytes=10_000, projection=None)
    assert found is not None
    assert found.next_offset == 3


def test_memory_is_bounded() -> None:
    recent = RecentBatches()
    for offset in range(100):
        recent.add(memoryview(b"x" * 10), base_offset=offset, next_offset=offset + 1, rows=1, schema_id=1)
    assert recent.read(99 - BATCHES_MAX, until=100, max_bytes=10**6, projection=None) is None
    assert recent.read(100 - BATCHES_MAX, until=100, max_bytes=10**6, projection=None) is not None
    recent.add(memoryview(bytes(BATCH_BYTES_MAX + 1)), base_offset=100, next_offset=101, rows=1, schema_id=1)
    assert recent.read(99, until=101, max_bytes=10**6, projection=None) is None


def test_a_log_that_was_cut_is_forgotten() -> None:
    tablet = filled([1])
    tablet.recent.forget()
    assert tablet.recent.read(0, until=1, max_bytes=10**6, projection=None) is None


def test_as_many_batches_are_given_as_fit() -> None:
    tablet = filled([1] * 5)
    size = tablet.log.size_bytes // 5
    for max_bytes, batches in ((1, 1), (2 * size - 1, 1), (2 * size, 2), (5 * size - 1, 4), (10**6, 5)):
        found = tablet.recent.read(0, until=5, max_bytes=max_bytes, projection=None)
        assert found is not None
        assert (found.batches, found.next_offset, found.rows) == (batches, batches, batches)
