"""What a stream reads from the lake: offsets of a log that the servers no longer have, and expired partitions.

A row has the same offset in both tiers, forever. So a stream's position says nothing about the lake: what lies below a
server's first offset is read from files, in the batch that reaches it, and the rest from the server. The servers of a
primary-key table hold every live row except those of expired partitions. Such a partition does not change any more;
its rows are read from files when a stream begins with the whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strom.aio.log import tiered
from strom.api.database import Database
from strom.api.table import Table
from strom.client.plan.key_plan import Instant
from strom.client.plan.log_place import Key
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.client.read.beginning import gone
from strom.errors import InvalidRequest
from strom.lake.read.union_plan import LakeLimits
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey
from strom.model.lake.lake_record import LakeRecord
from strom.spark.connect.tasks import LakePart, Part, parts_of


def has_history(table: Table) -> bool:
    """Whether a log may begin in the lake. Of a primary-key table the lake keeps rows but no changes."""
    return tiered(table.info) and not table.info.description.has_primary_key


def in_lake(table: Table) -> bool:
    """Whether there may be lake-only rows."""
    return tiered(table.info)


def kept_partitions(database: Database, table: Table) -> frozenset[int]:
    """The ids of partitions that the lake holds and that were not dropped by hand."""
    record = database.lake(table.name).facts.record if in_lake(table) else None
    if record is None or record.snapshot_id is None:
        return frozenset()
    return frozenset(record.partitions.keys() - record.dropped.keys())


def with_history(database: Database, table: Table, extent: ScanPlan) -> ScanPlan:
    """Where every bucket begins and ends in both tiers, including lake-only partitions."""
    record = database.lake(table.name).facts.record
    if record is None or record.snapshot_id is None or record.quarantined:
        return extent
    keyed = table.info.description.has_primary_key
    ranges = [one if keyed else _lowered(one, record) for one in extent.ranges]
    known = {one.bucket.partition_id for one in extent.ranges}
    names = {
        one.partition for one in extent.ranges
    }  # a recreated partition continues behind the rows of its namesake
    gone = [
        BucketRange(
            BucketId(table.table_id, key.partition_id, key.bucket),
            name,
            place.offset  # its changes are not kept
            if keyed
            else record.start_of(key.partition_id, name, key.bucket),
            place.offset,
        )
        for key, place in sorted(record.offsets.items(), key=lambda item: _order(item[0]))
        if key.partition_id is not None
        and key.partition_id not in known
        and key.partition_id not in record.dropped
        and (name := record.partitions.get(key.partition_id)) is not None
        and name not in names
    ]
    return ScanPlan(extent.table_id, (*ranges, *gone))


def refuse_namesakes(database: Database, table: Table, extent: ScanPlan) -> None:
    """Refuse a partition of a primary-key table that was recreated while the lake keeps rows of the old one: only a
    union read can tell which of them still count, an instant of a server cannot."""
    record = database.lake(table.name).facts.record
    if record is None or record.snapshot_id is None:
        return
    now = {one.partition: one.bucket.partition_id for one in extent.ranges}
    for number, name in record.partitions.items():
        if name in now and now[name] != number and number not in record.dropped:
            raise InvalidRequest(
                f"partition {name} of {table.name} was dropped when its time was over and made again, and the lake "
                "keeps rows from before: a stream cannot begin with them. Read the table by spark.read, and start the "
                "stream at the offsets of that moment, or at latest",
                partition=name,
            )


def check_changes(table: Table, extent: ScanPlan) -> None:
    """Raise Expired if changes of a primary-key table are gone: the lake does not have them."""
    if not in_lake(table) or not table.info.description.has_primary_key:
        return
    for one in extent.ranges:
        if one.start > 0:
            where = f"bucket {one.bucket.bucket}" + (
                f" of partition {one.partition}" if one.partition else ""
            )
            raise gone(table.name, f"in {where} it begins at offset {one.start}")


def gone_rows(table: Table, instants: Sequence[Instant]) -> tuple[Part, ...]:
    """The files of lake-only partitions, limited to the offsets of an instant."""
    if not instants:
        return ()
    wanted = {(one.partition, one.bucket.bucket): one for one in instants}
    found: list[Part] = []
    for part in parts_of(table.scan(tier="lake").plan()):
        one = wanted.get((part.partition, part.bucket.bucket))
        if one is None or not isinstance(part, LakePart):
            continue
        low, high = one.start, one.at if one.end is None else one.end
        if part.file.first_offset < high and part.file.last_offset >= low:
            found.append(replace(part, limits=LakeLimits({part.bucket: low}, {part.bucket: high})))
    return tuple(found)


def history_of(table: Table, ranges: Sequence[BucketRange]) -> tuple[Part, ...]:
    """Ranges that begin below the servers' first offsets, split into files and what the servers have."""
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
    """Extended down to the first row of the lake, if there is no gap between the tiers."""
    place = record.place_of(one.bucket.partition_id, one.partition, one.bucket.bucket)
    if place is None or place.offset < one.start:
        return one
    first = record.start_of(one.bucket.partition_id, one.partition, one.bucket.bucket)
    return replace(one, start=min(first, one.start))


def _meets(part: Part, range_: BucketRange) -> bool:
    if not isinstance(part, LakePart):
        return True
    return part.file.first_offset < range_.end and part.file.last_offset >= range_.start


def _order(key: LakeKey) -> tuple[int, int]:
    return -1 if key.partition_id is None else key.partition_id, key.bucket
