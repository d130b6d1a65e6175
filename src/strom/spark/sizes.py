"""About how many bytes the offsets of each bucket stand for: so that tasks come out about equal."""

from __future__ import annotations

from collections.abc import Sequence

from strom.api.table import Table
from strom.spark.tasks import ROW_BYTES, TASK_BYTES_MIN, Part, Sizes, width

SMALL_ROWS = TASK_BYTES_MIN // ROW_BYTES // 16
"""So few rows are one task, whatever their size: nobody is asked."""


def sizes_of(table: Table, parts: Sequence[Part]) -> Sizes:
    """The sizes of the buckets that are read; a guess where there are few rows."""
    if sum(width(part) for part in parts) <= SMALL_ROWS:
        return Sizes({})
    status = table.describe()
    by_name = {(one.partition, one.bucket): one for one in status.buckets}
    found = {}
    for part in parts:
        bucket = by_name.get((part.partition, part.bucket.bucket))
        if bucket is not None:
            offsets = max(bucket.end_offset - bucket.start_offset, 1)
            found[part.bucket] = bucket.size_bytes / offsets
    return Sizes(found)
