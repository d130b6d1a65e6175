"""``lookup_join``: enriches any DataFrame or stream with the current rows of a table, batch by batch.

Runs inside Spark's Python workers: the keys of a batch are looked up in one call, and the batch goes on with the
columns that were found. A task looks up one batch at a time, so a slow server slows the query down and loses nothing. A
row gets what the table holds at that time and is not revised when the table changes later (``delta_join`` does that).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from strom.api.matching import Matches, MatchPart
from strom.client.cluster.metadata import TableInfo
from strom.errors import InvalidRequest
from strom.model.names import nearest
from strom.runtime.units import parse_duration_ms
from strom.spark.connect import connections
from strom.spark.connect.arrow_map import mapped
from strom.spark.connect.options import ConnectOptions
from strom.spark.connect.spark_errors import translate_errors, translate_errors_each
from strom.spark.connect.types import Fit, arrow_schema, spark_type, strom_type
from strom.spark.frames import servers_of
from strom.spark.joins.access_path import AccessPath, access_path_of, column_of
from strom.spark.joins.definition import How, OnLike, how_of, pairs_of
from strom.spark.joins.key_bytes import Positions, arrow_of, common_type, encoded, fitting
from strom.spark.joins.lookup.row_cache import Cache, kept_cache
from strom.spark.joins.row_pairs import pairs, portions, take_places

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS_TOGETHER = 1 << 16
"""Rows of an output batch: if keys have many rows, one input batch becomes several."""


def lookup_join(
    frame: DataFrame,
    table: str,
    *,
    on: OnLike,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    how: str = "inner",
    cache_rows: int = 0,
    cache_for: str = "1 min",
    strong: bool = False,
    servers: str | None = None,
) -> DataFrame:
    """The rows of a DataFrame or a stream, each with what a table holds for it now.

    ``on`` is a column, several, or ``{"of the frame": "of the table"}``; together they are the table's primary key, a
    prefix of it, or the columns of an index. ``columns`` of the table are added (by default all but those
    of ``on``; ``{"city": "customer_city"}`` renames one). ``how``: ``"inner"`` drops rows that find nothing, ``"left"``
    keeps them. With ``cache_rows`` a worker caches that many rows for ``cache_for``, so they may be that old. With
    ``strong`` rows are as new as of a strong lookup, also while leaders change.

    >>> strom.spark.lookup_join(orders, "shop.customers", on={"customer": "id"}, columns=["name", "city"], how="left")
    """
    said = servers_of(frame.sparkSession, servers)
    server = ConnectOptions.of(said)
    kind = how_of(how)
    if kind not in ("inner", "left"):
        raise InvalidRequest(f'a lookup join is "inner" or "left", not {how!r}: delta_join has the others')
    if strong and cache_rows:
        raise InvalidRequest("a cached row may be old, so it is not strong: leave out strong= or cache_rows=")
    work = translate_errors(
        lambda: _planned(server, frame.schema, table, on, columns, kind, cache_rows, cache_for), server=server
    )
    return mapped(frame, replace(work, strong=strong), work.schema)


def _planned(
    server: ConnectOptions,
    schema: StructType,
    table: str,
    on: OnLike,
    columns: Sequence[str] | Mapping[str, str] | None,
    how: How,
    cache_rows: int,
    cache_for: str,
) -> LookUp:
    info = connections.table(server, table).info
    found = pairs_of(on)
    for name, own in found:
        if name not in schema.names:
            raise InvalidRequest(
                f"the DataFrame has no column {name!r}{nearest(name, schema.names)}", column=name
            )
        column = column_of(info, own)
        try:
            common_type(strom_type(schema[name].dataType), column.type)
        except InvalidRequest as error:
            raise InvalidRequest(f"{name} = {info.path}.{own}: {error.message}") from None
    access = access_path_of(info, [own for _, own in found])
    added = _added(info, [own for _, own in found], columns)
    for name in added.values():
        if name in schema.names:
            raise InvalidRequest(
                f"the DataFrame has a column {name!r} already: give it another name, "
                f'columns={{…, "{name}": "{name}_found"}}',
                column=name,
            )
    kinds = {own: info.schema.column(own).type for own in added}
    more = [StructField(name, spark_type(kinds[own]), True) for own, name in added.items()]
    return LookUp(
        server=server,
        table=str(info.path),
        table_id=info.table_id,
        schema_id=info.schema.schema_id,
        given=tuple(name for name, _ in found),
        asked=tuple(own for _, own in found),
        access=access,
        added=tuple(added),
        how=how,
        schema=StructType([*schema.fields, *more]),
        cache_rows=cache_rows,
        cache_ms=parse_duration_ms(cache_for),
    )


def _added(
    info: TableInfo, asked: Sequence[str], columns: Sequence[str] | Mapping[str, str] | None
) -> dict[str, str]:
    if columns is None:
        return {name: name for name in info.schema.names if name not in asked}
    named = dict(columns) if isinstance(columns, Mapping) else {name: name for name in columns}
    for name in named:
        column_of(info, name)
    return named


@dataclass(frozen=True)
class LookUp:
    """The work of a lookup join. Pickled for the tasks."""

    server: ConnectOptions
    table: str
    table_id: int
    schema_id: int
    given: tuple[str, ...]
    asked: tuple[str, ...]
    access: AccessPath
    added: tuple[str, ...]
    how: How
    schema: StructType
    cache_rows: int
    cache_ms: int
    strong: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a partition with the columns they found."""
        return translate_errors_each(lambda: self._joined(batches), server=self.server)

    def _joined(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        finder = Finder(self)
        for batch in batches:
            yield from finder.joined(batch)


class Finder:
    """A task's lookups."""

    def __init__(self, work: LookUp) -> None:
        info = connections.known_table(work.server, work.table, work.table_id, work.schema_id).info
        database = connections.database(work.server)
        self._work = work
        self._schema: pa.Schema = arrow_schema(work.schema)
        arrow = info.schema.to_arrow()
        self._asked_types = [arrow.field(name).type for name in work.asked]
        # If no column is wanted, one of the key is looked up: only the existence of a row counts.
        self._columns = list(work.added) or list(info.schema.primary_key[:1])
        self._matching = work.access.matching(database, info, self._columns, strong=work.strong)
        found = pa.schema([arrow.field(name) for name in work.added])
        more = [self._schema.field(at) for at in range(len(work.schema) - len(work.added), len(work.schema))]
        spark = pa.schema([pa.field(own, one.type) for own, one in zip(work.added, more, strict=True)])
        self._fit = Fit(found, spark) if work.added else None
        self._common: list[pa.DataType] = []
        for name, own in zip(work.given, work.asked, strict=True):
            kind = common_type(strom_type(work.schema[name].dataType), info.schema.column(own).type)
            self._common.append(arrow_of(kind))
        self._cache = self._remembered() if work.cache_rows else None

    def _remembered(self) -> Cache:
        """This process's cache for lookups like these, shared by its tasks."""
        work = self._work
        same = (work.server, work.table_id, work.schema_id, work.access, work.asked, tuple(self._columns))
        kinds = tuple(str(kind) for kind in self._common)
        return kept_cache((same, kinds), work.cache_rows, work.cache_ms)

    def joined(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """A batch with the columns its rows found."""
        place, keys, names = self._keys(batch)
        first = 0
        for part in self._parts(keys, names):
            if part.more:
                row = int(place[part.start])
                found = Matches(part.matches.rows, np.zeros(len(part.matches.keys), np.int64))
                yield from self._pairs(batch.slice(row, 1), found)
                continue
            # Rows without a key go along with the row before them.
            last = batch.num_rows if part.end == keys.num_rows else int(place[part.end])
            found = Matches(part.matches.rows, place[part.matches.keys] - first)
            yield from self._pairs(batch.slice(first, last - first), found)
            first = last
        if first < batch.num_rows:
            yield from self._pairs(batch.slice(first), self._matching.nothing)

    def _pairs(self, batch: pa.RecordBatch, found: Matches) -> Iterator[pa.RecordBatch]:
        """The same in batches of a bounded size."""
        count = batch.num_rows
        sizes = np.maximum(np.bincount(found.keys, minlength=count), 1)
        for start, end in portions(sizes, ROWS_TOGETHER):
            theirs = found if end - start == count else found.within(start, end)
            rows = pairs(np.arange(start, end), theirs.keys, count, self._work.how)
            for some in range(
                0, len(rows.left), ROWS_TOGETHER
            ):  # more than once only for a row that found very many
                left, right = (one[some : some + ROWS_TOGETHER] for one in (rows.left, rows.right))
                yield self._batch(batch, theirs.rows, left + start, right)

    def _batch(
        self, batch: pa.RecordBatch, found: pa.RecordBatch, left: Positions, right: Positions
    ) -> pa.RecordBatch:
        mine = batch if _same(left, batch.num_rows) else batch.take(pa.array(left))
        return pa.RecordBatch.from_arrays([*mine.columns, *self._taken(found, right)], schema=self._schema)

    def _taken(self, rows: pa.RecordBatch, places: Positions) -> Sequence[pa.Array]:
        if self._fit is None:
            return []
        fitted = self._fit(rows.select(list(self._work.added)))
        if _same(places, rows.num_rows):
            return cast(Sequence[pa.Array], fitted.columns)
        chosen = take_places(places)
        return [one.take(chosen) for one in fitted.columns]

    def _keys(self, batch: pa.RecordBatch) -> tuple[Positions, pa.RecordBatch, pa.BinaryArray | None]:
        """The keys that can be looked up: the row of each, the key, and its bytes if there is a cache."""
        given = [
            batch.column(name).cast(kind) for name, kind in zip(self._work.given, self._common, strict=True)
        ]
        fitted = [fitting(one, kind) for one, kind in zip(given, self._asked_types, strict=True)]
        kept = np.ones(batch.num_rows, bool)
        for (_, mask), one in zip(fitted, given, strict=True):
            if mask is not None:
                kept &= np.asarray(mask, bool)
            if one.null_count:
                kept &= one.is_valid().to_numpy(zero_copy_only=False)
        columns = [column for column, _ in fitted]
        names = None if self._cache is None else encoded(given)
        if kept.all():
            return (
                np.arange(batch.num_rows),
                pa.RecordBatch.from_arrays(columns, list(self._work.asked)),
                names,
            )
        place = np.flatnonzero(kept)
        chosen = pa.array(place)
        columns = [one.take(chosen) for one in columns]
        keys = pa.RecordBatch.from_arrays(columns, list(self._work.asked))
        return place, keys, None if names is None else names.take(chosen)

    def _parts(self, keys: pa.RecordBatch, names: pa.BinaryArray | None) -> Iterator[MatchPart]:
        """The matches, some keys at a time."""
        cache = self._cache
        if cache is None or names is None:
            yield from self._matching.parts(keys)
            return
        start = 0
        while start < keys.num_rows:
            some = keys.slice(start, self._matching.at_once)
            found = cache.find(names.slice(start, some.num_rows), partial(self._missing, some))
            end = start + some.num_rows
            yield MatchPart(start, end, Matches(found.rows, found.keys + start))
            start = end

    def _missing(self, keys: pa.RecordBatch, places: pa.Int64Array) -> Matches:
        return self._matching.find(keys.take(places))


def _same(places: Positions, count: int) -> bool:
    return len(places) == count and bool((places == np.arange(count)).all())
