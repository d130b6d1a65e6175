"""Rows of a side that only the lake has, found by join key: of partitions that retention took from the servers.

``strom.lake.read.lake_only_rows`` finds the files. They are read for many join keys at once, and what cannot hold a key
is skipped: a file or a row group whose bounds enclose none is not read. One row group at a time is in memory. Rows that
were found are held, at most ``BYTES_AT_ONCE``: a caller with too many keys asks again with fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strom.api.matching import Matches
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.log_plan import ScanPlan
from strom.errors import LimitExceeded
from strom.lake.files.bounds import file_statistics
from strom.lake.files.file_description import is_own
from strom.lake.files.file_reader import LakeFile
from strom.lake.files.storage import Storage
from strom.lake.read.lake_only_rows import LakeOnlyFile, LakeOnlyRows, Place
from strom.lake.read.union_files import read_one
from strom.lake.read.union_plan import LakeLimits, UnionPlan, bucket_of
from strom.model.filters.predicate import And, Compare, In, Or, Predicate
from strom.record.statistics import ColumnStatistics
from strom.spark.joins.delta.join_plan import Input, JoinPlan
from strom.spark.joins.delta.task.key_groups import JoinGroups
from strom.spark.joins.key_bytes import ORDINARY, Positions, any_null, arrow_of, encoded, fitting_keys

BYTES_AT_ONCE = 64 << 20
"""Of rows that were found."""
NAMED_MAX = 256
"""So many values are named one by one to skip row groups; of more the smallest and the largest."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Asked:
    """Keys of one kind: their columns and groups."""

    names: tuple[str, ...]
    columns: tuple[pa.Array, ...]
    """In the table's types."""
    comparable: tuple[pa.Array, ...]
    """In the types of file bounds."""
    places: Positions


class LakeOnlyLookup:
    """Reads the files of one look."""

    def __init__(
        self, plan: JoinPlan, side: Input, number: int, info: TableInfo, found: LakeOnlyRows
    ) -> None:
        assert found.config is not None
        self._plan = plan
        self._side = side
        self._number = number
        self._info = info
        self._files = found.files
        self._storage = Storage(found.config)
        self._columns = list(dict.fromkeys([*side.columns, *side.join]))
        self._where = side.predicate(info)
        arrow = info.schema.to_arrow()
        self._types = {one.name: one.type for one in arrow}
        self._schema: pa.Schema = pa.schema([arrow.field(name) for name in side.columns])

    def find(self, groups: JoinGroups, *, bounded: bool = True) -> Matches:
        """The rows of these groups. ``bounded``: LimitExceeded if several groups have too many rows to hold."""
        asked = self._asked(groups)
        rows: list[pa.RecordBatch] = []
        keys: list[Positions] = []
        held = 0
        for one in self._files:
            chosen = [self._within(kind, one) for kind in asked]
            if not any(map(len, chosen)):
                continue
            places = np.concatenate([kind.places[some] for kind, some in zip(asked, chosen, strict=True)])
            wanted = groups.keys.take(pa.array(places))
            where = self._predicate(asked, chosen)
            for batch in self._read(one.file, self._columns, where):
                found = pc.index_in(self._codes(batch), value_set=wanted)
                mine = np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))
                if not len(mine):
                    continue
                chosen_rows = batch.select(self._schema.names).take(pa.array(mine))
                rows.append(pa.RecordBatch.from_arrays(chosen_rows.columns, schema=self._schema))
                keys.append(places[found.take(pa.array(mine)).to_numpy(zero_copy_only=False)])
                held += rows[-1].nbytes
                if bounded and held > BYTES_AT_ONCE and len(groups) > 1:
                    raise LimitExceeded("the lake has too many rows of these join keys to be held at once")
        if not rows:
            return Matches(pa.RecordBatch.from_pylist([], self._schema), np.empty(0, np.int64))
        return Matches(pa.concat_batches(rows), np.concatenate(keys))

    def join_keys(self, since: Mapping[Place, int]) -> Iterator[pa.RecordBatch]:
        """The join keys of all rows of these buckets from an offset on."""
        side = self._side
        names = list(dict.fromkeys([*side.join, *(side.key if side.nulls else ())]))
        for file, _ in self._files:
            low = since.get((file.partition_name, file.bucket))
            if low is not None:
                limits = LakeLimits(low={bucket_of(self._info.table_id, file): low})
                yield from self._read(file, names, self._where, limits)

    # --- which keys a file may hold -----------------------------------------------------------------------------

    def _asked(self, groups: JoinGroups) -> list[_Asked]:
        side = self._side
        found = [self._kind(side.join, *groups.ordinary())]
        if side.nulls:
            found.append(self._kind(side.key, *groups.alone(self._number)))
        return [one for one in found if len(one.places)]

    def _kind(self, names: Sequence[str], places: Positions, values: Sequence[pa.Array]) -> _Asked:
        columns, places = fitting_keys(values, [self._types[name] for name in names], places)
        return _Asked(tuple(names), tuple(columns), tuple(map(_comparable, columns)), places)

    def _within(self, asked: _Asked, one: LakeOnlyFile) -> Positions:
        """Which keys may be in a file, by its bounds."""
        schema = self._info.schema
        known = file_statistics(schema, one.columns, one.file.rows, complete=is_own(one.file.path))
        may: Flags = np.ones(len(asked.places), bool)
        for name, column in zip(asked.names, asked.comparable, strict=True):
            bounds = known.get(schema.names.index(name))
            if bounds is not None:
                may &= _enclosed(column, bounds)
        return np.flatnonzero(may)

    def _predicate(self, asked: Sequence[_Asked], chosen: Sequence[Positions]) -> Predicate | None:
        """A filter that all these keys pass, to skip row groups."""
        kinds = [
            And.of(
                *(
                    _values(name, column.take(pa.array(some)))
                    for name, column in zip(kind.names, kind.columns, strict=True)
                )
            )
            for kind, some in zip(asked, chosen, strict=True)
            if len(some)
        ]
        found = Or.of(*kinds).check(self._info.schema)
        return found if self._where is None else And.of(found, self._where)

    # --- rows ---------------------------------------------------------------------------------------------------

    def _read(
        self,
        file: LakeFile,
        columns: Sequence[str],
        where: Predicate | None,
        limits: LakeLimits | None = None,
    ) -> Iterator[pa.RecordBatch]:
        table_id = self._info.table_id
        plan = UnionPlan(table_id, None, (file,), ScanPlan(table_id, ()), limits=limits)
        return read_one(self._storage, plan, file, self._info.schema, columns, where)

    def _codes(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """The group of every row as bytes; NULL if it has none."""
        side = self._side
        common = [
            batch.column(name).cast(arrow_of(kind), safe=False)
            for name, kind in zip(side.join, self._plan.common, strict=True)
        ]
        null = any_null(common)
        codes = encoded(common, ORDINARY)
        if null is None:
            return codes
        if not side.nulls:
            return pc.if_else(null, pa.scalar(None, codes.type), codes)
        own = [
            batch.column(name).cast(arrow_of(kind), safe=False)
            for name, kind in zip(side.key, side.key_types, strict=True)
        ]
        return pc.if_else(null, encoded(own, self._number), codes)


def merged(hot: Matches, kept: Matches, hot_keys: pa.BinaryArray, kept_keys: pa.BinaryArray) -> Matches:
    """Rows of both tiers. If both have a row, it returned to the servers since the look, and theirs counts."""
    if not kept.rows.num_rows:
        return hot
    if hot.rows.num_rows:
        only = pc.invert(pc.is_in(kept_keys, value_set=hot_keys)).to_numpy(zero_copy_only=False)
        kept = Matches(kept.rows.filter(pa.array(only)), kept.keys[only])
    rows = pa.RecordBatch.from_arrays(kept.rows.columns, schema=hot.rows.schema)
    return Matches(pa.concat_batches([hot.rows, rows]), np.concatenate([hot.keys, kept.keys]))


def _values(name: str, column: pa.Array) -> Predicate:
    distinct = pc.unique(column)
    if len(distinct) <= NAMED_MAX:
        return In(name, tuple(distinct.to_pylist()))
    ends = pc.min_max(distinct).as_py()
    return And((Compare(name, ">=", ends["min"]), Compare(name, "<=", ends["max"])))


def _comparable(column: pa.Array) -> pa.Array:
    """In the types of bounds: integers for dates and times, bytes for text."""
    kind = column.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.cast(pa.int32())
    if pa.types.is_temporal(kind):
        return column.cast(pa.int64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    return column


def _enclosed(column: pa.Array, bounds: ColumnStatistics) -> Flags:
    if bounds.minimum is None or bounds.maximum is None:
        return np.zeros(len(column), bool)  # every row is NULL
    try:
        low, high = (pa.scalar(one, column.type) for one in (bounds.minimum, bounds.maximum))
    except (pa.ArrowException, TypeError, ValueError):
        return np.ones(len(column), bool)
    inside = pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))
    flags: Flags = pc.fill_null(inside, False).to_numpy(zero_copy_only=False)
    return flags
