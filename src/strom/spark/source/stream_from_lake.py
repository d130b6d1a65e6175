"""What a stream reads of the lake: offsets of a log that the servers no longer have, and partitions whose time is over.

A row has one offset for ever, in both tiers. So a stream's position needs no word about the lake: whatever lies below
the first offset of a server is read from files, in the batch that comes to it, and the rest from the server. The
servers of a primary-key table hold every live row but those of partitions that they dropped when their time was over:
such a partition does not change any more, and its rows are read from files when a stream begins with the whole table.
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
    """Whether a log may begin in the lake. Of a primary-key table the lake keeps rows, and no changes."""
    return tiered(table.info) and not table.info.description.has_primary_key


def in_lake(table: Table) -> bool:
    """Whether rows may be in the lake alone."""
    return tiered(table.info)


def kept_partitions(database: Database, table: Table) -> frozenset[int]:
    """The ids of partitions whose rows the lake has, and of which nobody said that they are to go."""
    record = database.lake(table.name).facts.record if in_lake(table) else None
    if record is None or record.snapshot_id is None:
        return frozenset()
    return frozenset(record.partitions.keys() - record.dropped.keys())


def with_history(database: Database, table: Table, extent: ScanPlan) -> ScanPlan:
    """Where every bucket begins and ends in both tiers; partitions that only the lake has come with it."""
    record = database.lake(table.name).facts.record
    if record is None or record.snapshot_id is None or record.quarantined:
        return extent
    keyed = table.info.description.has_primary_key
    ranges = [one if keyed else _lowered(one, record) for one in extent.ranges]
    known = {one.bucket.partition_id for one in extent.ranges}
    names = {
        one.partition for one in extent.ranges
    }  # one that was made again goes on behind its namesake's rows
    gone = [
        BucketRange(
            BucketId(table.table_id, key.partition_id, key.bucket),
            name,
            place.offset  # no changes are kept of it
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
    """A partition of a primary-key table that was made again while the lake keeps rows of the one before: which of
    them still count is for a union read to say, and no instant of a server."""
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
    """Expired where changes of a primary-key table in the lake are gone: the lake has none of them."""
    if not in_lake(table) or not table.info.description.has_primary_key:
        return
    for one in extent.ranges:
        if one.start > 0:
            where = f"bucket {one.bucket.bucket}" + (
                f" of partition {one.partition}" if one.partition else ""
            )
            raise gone(table.name, f"in {where} it begins at offset {one.start}")


def gone_rows(table: Table, instants: Sequence[Instant]) -> tuple[Part, ...]:
    """The files of partitions that only the lake has, of each the offsets that an instant asks for."""
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
