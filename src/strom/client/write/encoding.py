"""Gathered rows as the bytes of one record batch."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.input.arrow_input import concatenate
from strom.model import properties
from strom.model.schema import Schema
from strom.record.encode import encode
from strom.record.gathered import Gathered, gather


class Encoder:
    """Encodes as the table's properties say, unless the writer's options differ. Any thread may call it."""

    def __init__(self, table: TableInfo, options: WriterOptions) -> None:
        settings = table.description.properties
        self._properties = settings
        self._compression = options.compression or str(properties.compression(settings))
        self._zstd_level = properties.zstd_level(settings)
        self._statistics: dict[int, Sequence[int]] = {}

    def encode(
        self, pieces: Sequence[pa.RecordBatch], schema: Schema, *, writer_id: int, sequence: int
    ) -> bytearray | Gathered:
        """One batch with the rows of all pieces, sealed for its writer. If possible, rows are not copied."""
        columns = self._statistics_of(schema) or None
        if self._compression == "NONE" and len(pieces) == 1:
            found = gather(
                pieces[0],
                schema_id=schema.schema_id,
                statistics=columns,
                writer_id=writer_id,
                batch_sequence=sequence,
            )
            if found is not None:
                return found
        return encode(
            concatenate(pieces),
            schema_id=schema.schema_id,
            compression=self._compression,
            zstd_level=self._zstd_level,
            statistics=columns,
            writer_id=writer_id,
            batch_sequence=sequence,
        )

    def _statistics_of(self, schema: Schema) -> Sequence[int]:
        columns = self._statistics.get(schema.schema_id)
        if columns is None:
            columns = properties.statistics_columns(self._properties, schema)
            self._statistics[schema.schema_id] = columns
        return columns
