"""The DuckDB connections of a query: one place that knows the library, its settings and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from strom.errors import InvalidQuery, LimitExceeded, NotInstalled, StromError

if TYPE_CHECKING:
    import duckdb

_SETTINGS = (
    "SET python_enable_replacements = false",  # a variable of the caller's is no table
    "SET TimeZone = 'UTC'",
    "SET preserve_insertion_order = false",
)


def open_duck(*, preserve_order: bool = False) -> duckdb.DuckDBPyConnection:
    """A database of one's own, in memory."""
    try:
        import duckdb
    except ImportError:
        raise NotInstalled("SQL needs DuckDB: pip install 'strom[lake]'", extra="lake") from None
    connection = duckdb.connect(":memory:")
    for setting in _SETTINGS:
        connection.execute(setting)
    return connection


@contextmanager
def told() -> Iterator[None]:
    """DuckDB's errors as Strom's; an error of Strom's that came through DuckDB as itself."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise LimitExceeded(f"the query needs more memory than there is: {first_lines(error)}") from None
    except duckdb.Error as error:
        own = error.__cause__ or error.__context__
        if isinstance(own, StromError):
            raise own from None
        raise InvalidQuery(first_lines(error)) from None


def first_lines(error: Exception) -> str:
    """What DuckDB says, without its own prefix; where in the query it means stays in it."""
    text = str(error).strip()
    head, _, rest = text.partition(": ")
    return rest if head.endswith("Error") and rest else text


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Text as SQL takes it."""
    return "'" + text.replace("'", "''") + "'"
