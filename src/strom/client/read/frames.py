"""Arrow tables as data frames of other libraries, which are imported when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl


def pandas_of(table: pa.Table, **options: Any) -> pd.DataFrame:
    """An Arrow table as a pandas DataFrame; options as of ``pyarrow.Table.to_pandas``.

    Whole numbers with NULLs among them become pandas' nullable integers: as floats, which pyarrow chooses, ids lose
    their last digits.
    """
    exact: dict[int, pd.Series] = {}
    if not options.keys() & {"types_mapper", "integer_object_nulls"}:
        exact = {
            position: column.to_pandas(types_mapper=_nullable_integers().get)
            for position, column in enumerate(table.columns)
            if pa.types.is_integer(column.type) and column.null_count
        }
    frame: pd.DataFrame = table.to_pandas(**options)
    for position, column in exact.items():
        frame.isetitem(position, column)
    return frame


def _nullable_integers() -> dict[pa.DataType, Any]:
    import pandas as pd

    return {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
    }


def polars_of(table: pa.Table) -> pl.DataFrame:
    """An Arrow table as a polars DataFrame."""
    import polars as pl

    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def duckdb_of(table: pa.Table, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """An Arrow table as a DuckDB relation."""
    import duckdb

    return duckdb.from_arrow(table) if connection is None else connection.from_arrow(table)
