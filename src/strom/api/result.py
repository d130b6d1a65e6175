"""The rows of a query, for a thread that blocks: in whatever form is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strom.client.read.frames import pandas_of, polars_of
from strom.client.show.drawn_plan import EXPLAINED, DrawnPlan
from strom.client.show.row_text import Preview, shown
from strom.sql.query import Query, QueryStatistics

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


class Result:
    """The result of ``db.sql``: run when it is read, the same rows each time.

    It implements Arrow's stream interface: pass it to polars, pandas, DuckDB or pyarrow as it is.

    >>> db.sql("SELECT count(*) FROM events").to_arrow()
    """

    def __init__(self, query: Query) -> None:
        self._query = query

    def __repr__(self) -> str:
        return shown(self._plainly, self._preview, lambda found: found.text())

    def _repr_html_(self) -> str:
        return shown(escape(self._plainly), self._preview, lambda found: found.html())

    @property
    def _plainly(self) -> str:
        return f"Result({self._query.statement.text!r})"

    def _preview(self) -> Preview | DrawnPlan:
        reader = self._query.reader()
        if reader.schema.names == EXPLAINED:
            return DrawnPlan(self._query.rest_of(reader))
        return Preview(reader.schema, self._query.rest_of(reader))

    @property
    def statistics(self) -> QueryStatistics:
        """What was read for it so far."""
        return self._query.statistics

    @property
    def query(self) -> Query:
        """What runs."""
        return self._query

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch.

        >>> for batch in db.sql("SELECT * FROM events").to_batches():
        ...     print(batch.num_rows)
        """
        yield from self._query.batches()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def to_arrow(self) -> pa.Table:
        """All rows as a pyarrow Table."""
        reader = self._query.reader()
        return pa.Table.from_batches(list(self._query.rest_of(reader)), schema=reader.schema)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream that other libraries read."""
        return self._query.reader()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dicts."""
        rows: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return rows

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; options as of ``pyarrow.Table.to_pandas``."""
        return pandas_of(self.to_arrow(), **options)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
        return polars_of(self.to_arrow())

    def close(self) -> None:
        """Free what it holds. Happens anyway when it is garbage-collected."""
        self._query.close()

    def __enter__(self) -> Result:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
