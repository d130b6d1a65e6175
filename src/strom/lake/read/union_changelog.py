"""The changelog of a log table in both tiers: every row is an append, and the lake has its offset and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from strom.client.plan.log_plan import ScanPlan
from strom.client.read.change_kinds import kinds_of
from strom.client.read.changelog import FACTS, Changelog
from strom.client.read.row_scan import RowScan
from strom.client.read.scan_chunk import AnyChunk
from strom.lake.files.file_reader import LakeFile
from strom.lake.read.union_plan import UnionPlan
from strom.lake.read.union_scan import UnionScan
from strom.model.lake.lake_types import OFFSET, TIMESTAMP


class UnionChangelog(UnionScan):
    """The changes between two places of every bucket, those in the lake first."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The facts of each change, then the table's columns."""
        told = FACTS.set(2, FACTS.field(2).with_nullable(True))  # another engine's file may lack times
        return pa.schema([*told, *self._schema])

    def hot_scan(self, plan: UnionPlan, columns: Sequence[str]) -> RowScan:
        """The changelog of the hot part."""
        assert isinstance(plan.hot, ScanPlan)
        made = Changelog(self._cluster, self._table, columns=columns, where=self._where, plan=plan.hot)
        made.statistics = self.statistics
        return made

    def rows_of(self, chunk: AnyChunk) -> Iterator[pa.RecordBatch]:
        """The changes of a chunk, in the same form from either tier."""
        for batch in super().rows_of(chunk):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def _rows_of_file(self, file: LakeFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in super()._rows_of_file(file, [*columns, OFFSET, TIMESTAMP]):
            rows = batch.num_rows
            facts = [
                kinds_of(None, rows),
                batch.column(OFFSET).cast(pa.int64()),
                batch.column(TIMESTAMP).cast(FACTS.field(2).type, safe=False),
                pa.array(np.full(rows, file.bucket, np.int32)),
            ]
            own = [batch.column(name) for name in columns]
            yield pa.RecordBatch.from_arrays([*facts, *own], names=[*FACTS.names, *columns])
