"""How far the lake holds a bucket, according to the catalog; and so what the bucket has to keep.

The lake knows a partition by its name: one that was dropped by retention and recreated has a new id, and goes on where
the old one ended. One that a person dropped is gone from the lake too, and its name starts again.
"""

from __future__ import annotations

from strom.coordinator.catalog import Catalog
from strom.model import properties
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered

ENABLED = "table.datalake.enabled"
"""Checked first: this runs for every bucket, and few tables have it."""


def lake_place(catalog: Catalog, bucket: BucketId) -> Tiered | None:
    """Up to where the lake holds a bucket; None when it holds nothing of it."""
    record = catalog.lake_of(bucket.table_id)
    if record is None:
        return None
    partition = None if bucket.partition_id is None else catalog.partition_by_id(bucket.partition_id)
    return record.place_of(bucket.partition_id, None if partition is None else partition.name, bucket.bucket)


def guarded_place(catalog: Catalog, bucket: BucketId) -> Tiered | None:
    """The place that writes must come after; None when the table is not (or no longer) tiered."""
    return lake_place(catalog, bucket) if is_in_lake(catalog, bucket.table_id) else None


def namesakes_place(catalog: Catalog, bucket: BucketId) -> Tiered | None:
    """How far the lake holds an earlier partition of the same name; None when the bucket is in the lake itself."""
    record = catalog.lake_of(bucket.table_id)
    if record is None or LakeKey(bucket.partition_id, bucket.bucket) in record.offsets:
        return None
    place = guarded_place(catalog, bucket)
    return place if place is not None and place.offset > 0 else None


def is_in_lake(catalog: Catalog, table_id: int) -> bool:
    """Whether a table is tiered now."""
    table = catalog.table_by_id(table_id)
    if table is None or ENABLED not in table.description.properties:
        return False
    return properties.lake_enabled(table.description.properties)


def log_needed_from(catalog: Catalog, bucket: BucketId) -> int | None:
    """From where on the lake lacks what the log holds; None when the table is not tiered."""
    if not is_in_lake(catalog, bucket.table_id):
        return None
    place = lake_place(catalog, bucket)
    return 0 if place is None else place.offset


def series_needed_from(catalog: Catalog, bucket: BucketId) -> int | None:
    """From where on readers of the lake may ask which rows died; None when there are none.

    Before the first round that is everything: the round begins at 0, and the next one where it ends.
    """
    if not is_in_lake(catalog, bucket.table_id):
        return None
    place, record = lake_place(catalog, bucket), catalog.lake_of(bucket.table_id)
    if place is None or record is None:
        return 0
    return min(place.offset, record.low_of(bucket.partition_id, bucket.bucket) or place.offset)
