"""Identifies a bucket, the unit of order, parallelism and replication."""

from __future__ import annotations

from typing import NamedTuple


class BucketId(NamedTuple):
    """One bucket of one table (of one partition, where the table has partitions).

    Table and partition ids are never reused, so a bucket id never means two things.
    """

    table_id: int
    partition_id: int | None
    bucket: int

    def __str__(self) -> str:
        """``table/partition/bucket``, for people and log lines."""
        partition = "-" if self.partition_id is None else str(self.partition_id)
        return f"{self.table_id}/{partition}/{self.bucket}"
