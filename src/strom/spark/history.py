"""What a stream of a log table reads of the lake: offsets that the servers no longer have.

A row of a log has one offset for ever, in both tiers. So a stream's position needs no word about the lake: whatever
lies below the first offset of a server is read from files, in the batch that comes to it, and the rest from the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strom.aio.table import tiered
from strom.api.database import Database
from strom.api.table import Table
from strom.client.places import Key
from strom.client.planning import BucketRange, ScanPlan
from strom.model.bucket import BucketId
from strom.model.lake import LakeKey
from strom.model.lake_record import LakeRecord
from strom.spark.tasks import LakePart, Part, parts_of


def has_history(table: Table) -> bool:
    """Whether rows may be in the lake alone. A primary-key table's servers hold every live row, and its changes are
    nowhere else."""
    return tiered(table.info) and not table.info.description.has_primary_key


def with_history(database: Database, table: Table, extent: ScanPlan) -> ScanPlan:
    """Where every bucket begins and ends in both tiers; partitions that only the lake has come with it."""
    record = database.lake(table.name).facts.record
    if record is None or record.snapshot_id is None or record.quarantined:
        return extent
    ranges = [_lowered(one, record) for one in extent.ranges]
    known = {one.bucket.partition_id for one in extent.ranges}
    names = {
        one.partition for one in extent.ranges
    }  # one that was made again goes on behind its namesake's rows
    gone = [
        BucketRange(BucketId(table.table_id, key.partition_id, key.bucket), name, 0, place.offset)
        for key, place in sorted(record.offsets.items(), key=lambda item: _order(item[0]))
        if key.partition_id is not None
        and key.partition_id not in known
        and key.partition_id not in record.dropped
        and (name := record.partitions.get(key.partition_id)) is not None
        and name not in names
    ]
    return ScanPlan(extent.table_id, (*ranges, *gone))


def history_of(table: Table, ranges: Sequence[BucketRange]) -> tuple[Part, ...]:
    """The files, and what the servers have, of ranges that begin below the servers' first offsets."""
    if not ranges:
        return ()
    starts: dict[Key, int] = {(one.partition, one.bucket.bucket): one.start for one in ranges}
    ends: dict[Key, int] = {(one.partition, one.bucket.bucket): one.end for one in ranges}
    wanted = {(one.partition, one.bucket.bucket): one for one in ranges}
    plan = table.scan(start=starts, end=ends).plan()
    return tuple(
        part
        for part in parts_of(plan)
        if (range_ := wanted.get((part.partition, part.bucket.bucket))) is not None and _meets(part, range_)
    )


def _lowered(one: BucketRange, record: LakeRecord) -> BucketRange:
    """From the first row of the lake on, where nothing lies between the tiers."""
    place = record.place_of(one.bucket.partition_id, one.partition, one.bucket.bucket)
    return replace(one, start=0) if place is not None and place.offset >= one.start else one


def _meets(part: Part, range_: BucketRange) -> bool:
    if not isinstance(part, LakePart):
        return True
    return part.file.first_offset < range_.end and part.file.last_offset >= range_.start


def _order(key: LakeKey) -> tuple[int, int]:
    return -1 if key.partition_id is None else key.partition_id, key.bucket
