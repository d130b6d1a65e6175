"""How a lake table is partitioned: by its partition columns, then by ``__bucket``, each by identity.

A file's values of the partition columns give its partition's name, and vice versa
(``model/lake_types.check_table`` refuses the types where one name stands for two values).
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strom.errors import LakeCorrupt, LakeUnsupported
from strom.lake.files.arrow_types import from_lake, lake_schema
from strom.lake.files.file_description import PartitionValue
from strom.model.partitions import partition_name, value_texts
from strom.model.schema import Schema


def partition_value(array: pa.Array, name: str) -> PartitionValue:
    """The single value of a partition column in rows of a file, in Iceberg's form."""
    if array.null_count:
        raise LakeCorrupt(f"Partition column {name!r} is NULL in a row", column=name)
    if pa.types.is_nested(array.type) or pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        raise LakeUnsupported(f"{array.type} column {name!r} cannot partition a lake table", column=name)
    first = array[0]
    value = first.value if pa.types.is_temporal(array.type) else first.as_py()
    assert isinstance(value, bool | int | str | bytes)
    return value


def value_array(value: PartitionValue, kind: pa.DataType) -> pa.Array:
    """The inverse: one value as an array of the file's type."""
    if pa.types.is_temporal(kind):
        return pa.array([value], pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    return pa.array([value], kind)


def name_of_values(schema: Schema, keys: Sequence[str], values: Sequence[PartitionValue]) -> str:
    """The name of the partition whose files have these values."""
    held = lake_schema(schema)
    table = schema.to_arrow()
    texts = []
    for key, value in zip(keys, values, strict=True):
        array = from_lake(value_array(value, held.field(key).type), table.field(key))
        texts += value_texts(array)
    return partition_name(texts)
