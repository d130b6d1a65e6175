"""What a manifest says of its bucket's table: enough to create the table anew (C11)."""

from __future__ import annotations

from typing import Any

from strom.coordinator.catalog import Catalog
from strom.model.bucket import BucketId
from strom.model.table import TableEntry


def about_bucket(table: TableEntry, bucket: BucketId, catalog: Catalog) -> dict[str, Any]:
    """Ids, names, properties, all schemas."""
    partition = None if bucket.partition_id is None else catalog.partition_by_id(bucket.partition_id)
    return {
        "table_id": table.table_id,
        "database": table.path.database,
        "table": table.path.table,
        "partition": None if partition is None else partition.name,
        "description": table.description.to_json(),
        "schemas": [{"id": one.schema_id, **one.to_json()} for one in table.schemas],
        "created_ms": table.created_ms,
    }
