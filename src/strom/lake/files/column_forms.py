"""How the columns of a lake file are written: with a dictionary and compressed, unless that gains nothing.

For numbers that hardly ever repeat, Parquet's writer would start a dictionary, fill it up and continue without; what it
wrote until then is slower to read (a value is looked up instead of copied) and no smaller. This applies to eight-byte
numbers only: narrower ones fit into a dictionary, and for text even one that fills up saves much.

Columns that compression does not make smaller stay uncompressed: measured values, for example, or few distinct values
in random order, whose dictionary positions are bit-packed already. Decompressing them took more than half of the CPU of
a sum in DuckDB (10 M rows: 130 ms against 57, in files that are 4 % larger).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

CODEC = "zstd"
SAMPLE_ROWS = 1 << 16
DISTINCT_SHARE = 0.75
"""Share of the sample. Random values from a set small enough for a dictionary (1 MB) repeat more often."""
WORTH_SHARE = 0.9
"""A compressed column must shrink to this share of its size."""


class ColumnForms(NamedTuple):
    """The decisions for one file, by the paths of its Parquet columns."""

    plain: frozenset[str] = frozenset()
    """Without a dictionary."""
    raw: frozenset[str] = frozenset()
    """Not compressed."""

    def codecs(self, paths: Sequence[str]) -> dict[str, str]:
        """The codec of every column."""
        return {path: "none" if path in self.raw else CODEC for path in paths}


def column_forms(rows: pa.Table, paths: Sequence[str]) -> ColumnForms:
    """Decide for a file by its first rows; too few rows prove nothing."""
    sample = rows.slice(0, SAMPLE_ROWS)
    if sample.num_rows < SAMPLE_ROWS:
        return ColumnForms()
    wide = [field.name for field in sample.schema if _is_wide(field.type)]
    plain = frozenset(name for name in wide if _differs(sample.column(name)))
    return ColumnForms(plain, _incompressible(sample, [path for path in paths if path not in plain]))


def _is_wide(kind: pa.DataType) -> bool:
    is_moment = pa.types.is_timestamp(kind) or pa.types.is_time64(kind)
    return bool(is_moment or pa.types.is_int64(kind) or pa.types.is_float64(kind))


def _differs(values: pa.ChunkedArray) -> bool:
    there = len(values) - values.null_count
    return there > len(values) // 2 and bool(pc.count_distinct(values).as_py() > DISTINCT_SHARE * there)


def _incompressible(sample: pa.Table, dictionaries: Sequence[str]) -> frozenset[str]:
    """Write the rows once, in memory, and measure."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink, sample.schema, compression=CODEC, use_dictionary=list(dictionaries), write_statistics=False
    ) as writer:
        writer.write_table(sample)
    group = writer.writer.metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return frozenset(
        column.path_in_schema
        for column in columns
        if column.total_compressed_size > WORTH_SHARE * column.total_uncompressed_size
    )
