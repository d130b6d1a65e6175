"""Damaged rows: reporting where they are, marking them as given up, and noticing such marks while reading."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.partition_choice import chosen_buckets
from strom.client.read.row_reader import Encoded
from strom.errors import Corrupt, InvalidRequest
from strom.model.bucket import BucketId
from strom.model.damage import unreadable
from strom.protocol.api_keys import MARK_DAMAGE
from strom.protocol.error_codes import error_of
from strom.protocol.messages.damage import MarkDamageRequest

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DamagedRange:
    """Offsets [start, end) of a bucket that are marked as damaged."""

    partition: str | None
    bucket: int
    start: int
    end: int
    marked_ms: int

    @property
    def rows(self) -> int:
        """The number of missing rows."""
        return self.end - self.start


class DamageMarks:
    """The damage marks of one table."""

    def __init__(self, cluster: Cluster, table: TableInfo) -> None:
        self._cluster = cluster
        self._table = table

    async def all(self) -> list[DamagedRange]:
        """Every mark of the table."""
        found: list[DamagedRange] = []
        for bucket, partition in await self._buckets():
            found += await self._ask(bucket, partition)
        return found

    async def mark(
        self, bucket: int, start: int, end: int, *, partition: str | None, take_back: bool = False
    ) -> list[DamagedRange]:
        """Mark the batches that hold offsets in [start, end), or remove their marks; returns the bucket's marks."""
        wanted = [
            (one, name)
            for one, name in await self._buckets()
            if one.bucket == bucket
            and (partition in (name, str(one.partition_id)) or not self._table.partitioned)
        ]
        if len(wanted) != 1:
            what = (
                "has partitions: say which"
                if partition is None
                else f"has no bucket {bucket} in {partition!r}"
            )
            raise InvalidRequest(
                f"{self._table.path} {what if self._table.partitioned else f'has no bucket {bucket}'}"
            )
        return await self._ask(*wanted[0], start=start, end=end, take_back=take_back)

    async def _buckets(self) -> list[tuple[BucketId, str | None]]:
        return await chosen_buckets(self._cluster, self._table)

    async def _ask(
        self,
        bucket: BucketId,
        partition: str | None,
        *,
        start: int | None = None,
        end: int | None = None,
        take_back: bool = False,
    ) -> list[DamagedRange]:
        request = MarkDamageRequest(
            table_id=bucket.table_id,
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            start_offset=start,
            end_offset=end,
            take_back=take_back or None,
        )

        async def attempt() -> list[DamagedRange]:
            answer = await self._cluster.call(self._cluster.leader(bucket), MARK_DAMAGE, request)
            if answer.error_code:
                raise error_of(answer.error_code, answer.error_message)
            return [
                DamagedRange(partition, bucket.bucket, mark.start_offset, mark.end_offset, mark.marked_ms)
                for mark in answer.marks
            ]

        return await self._cluster.at_leaders(self._table, [bucket], attempt)


def located_error(table: TableInfo, bucket: BucketId, error: Corrupt) -> Corrupt:
    """An error about unreadable rows (with the offsets that ``RowReader`` noted), plus their table and what to do."""
    first, end = error.facts.get("first_offset"), error.facts.get("end_offset")
    if not isinstance(first, int) or not isinstance(end, int):
        return error
    return type(error)(
        unreadable(str(table.path), bucket.bucket, bucket.partition_id, first, end, error.message),
        table=str(table.path),
        bucket=bucket.bucket,
        partition_id=bucket.partition_id,
        first_offset=first,
        end_offset=end,
    )


def note_damage(
    table: TableInfo, bucket: int, batches: Sequence[Encoded], noted: set[tuple[int, int]]
) -> None:
    """Log, once, the rows that a read leaves out because they are marked as damaged."""
    for header, _ in batches:
        if header.damaged and (bucket, header.base_offset) not in noted:
            noted.add((bucket, header.base_offset))
            logger.warning(
                "%s, bucket %d: %d rows at offsets %d to %d are marked as damaged and left out",
                table.path,
                bucket,
                header.next_offset - header.base_offset,
                header.base_offset,
                header.next_offset - 1,
            )
