"""A table's columns and partitioning as Iceberg's schema and partition spec."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType

from strom.lake.files.arrow_types import lake_schema
from strom.lake.files.field_ids import BUCKET_ID, field_id
from strom.model.lake.lake_types import BUCKET
from strom.model.schema import Schema

SPEC_ID = 1
"""0 is the unpartitioned spec that every lake table is created with, before it has columns; no file uses it."""


def iceberg_schema(schema: Schema, schema_id: int) -> IcebergSchema:
    """The columns with their ids, and the primary key where Iceberg allows it (it rejects floating point)."""
    plain = pyarrow_to_schema(lake_schema(schema))
    key = [field_id(schema.column(name).id) for name in schema.primary_key]
    if any(isinstance(plain.find_type(number), FloatType | DoubleType) for number in key):
        key = []
    return IcebergSchema(*plain.fields, schema_id=schema_id, identifier_field_ids=key)


def partition_spec(schema: Schema, partition_keys: Sequence[str]) -> PartitionSpec:
    """Each partition column by identity, then the bucket."""
    sources = [(field_id(schema.column(name).id), name) for name in partition_keys] + [(BUCKET_ID, BUCKET)]
    fields = [
        PartitionField(
            source_id=source,
            field_id=PARTITION_FIELD_ID_START + place,
            transform=IdentityTransform(),
            name=name,
        )
        for place, (source, name) in enumerate(sources)
    ]
    return PartitionSpec(*fields, spec_id=SPEC_ID)
