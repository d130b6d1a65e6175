"""The DuckDB connections of a query: one place that knows the library, its settings and its errors."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from strom.errors import InvalidQuery, LakeCorrupt, LimitExceeded, NotInstalled, StromError
from strom.sql.keyword_hint import keyword_hint

if TYPE_CHECKING:
    import duckdb

_SETTINGS = (
    "SET python_enable_replacements = false",  # the caller's variables are not tables
    "SET TimeZone = 'UTC'",
    "SET preserve_insertion_order = false",
)


IDLE_MAX = 2
"""Databases kept for the next query: creating one costs 30 ms, more than many queries."""

_LAKE_FILE = re.compile(r"/[^\s\"']+/data/[^\s\"'/]+\.parquet")
"""A lake file in a message of DuckDB's; the query itself cannot name one."""

_idle: list[duckdb.DuckDBPyConnection] = []
_lock = threading.Lock()


def open_duck() -> duckdb.DuckDBPyConnection:
    """An empty database in memory; ``give_back`` it."""
    try:
        import duckdb
    except ImportError:
        raise NotInstalled("SQL needs DuckDB: pip install 'strom[lake]'", extra="lake") from None
    with _lock:
        if _idle:
            return _idle.pop()
    connection = duckdb.connect(":memory:")
    for setting in _SETTINGS:
        connection.execute(setting)
    return connection


def give_back(connection: duckdb.DuckDBPyConnection, registered: Iterable[str]) -> None:
    """Roll back what a query did in its transaction and keep the database; close it if that fails."""
    import duckdb

    try:
        # Whatever was created since BEGIN goes with it, names of registered rows too. Where the transaction ended
        # before, this is an error, so nothing that was created outside of it stays.
        connection.execute("ROLLBACK; RESET disabled_optimizers; SET schema = 'main'")
        for name in registered:
            connection.unregister(name)  # releases the rows
    except duckdb.Error:
        connection.close()  # a result was not read to its end, or was interrupted
        return
    with _lock:
        if len(_idle) < IDLE_MAX:
            _idle.append(connection)
            return
    connection.close()


@atexit.register
def _close_idle() -> None:
    with _lock:
        while _idle:
            _idle.pop().close()


def _after_fork() -> None:
    """A forked child has none of the threads behind its parent's databases, and must not share its lock.

    Closing such a database would wait for those threads, or crash: the child leaves it alone for good.
    """
    global _lock
    _lock = threading.Lock()
    for database in _idle:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(database))
    _idle.clear()


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def told() -> Iterator[None]:
    """Translate DuckDB's errors to Strom's; an error of Strom's that passed through DuckDB is raised as it was."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise LimitExceeded(f"the query needs more memory than there is: {first_lines(error)}") from None
    except duckdb.Error as error:
        own = error.__cause__ or error.__context__
        if isinstance(own, StromError):
            raise own from None
        file = _LAKE_FILE.search(str(error))
        if file is not None and isinstance(error, duckdb.IOException | duckdb.InvalidInputException):
            raise LakeCorrupt(
                f"{file[0]} of the lake is missing or damaged: {first_lines(error)}", uri=file[0]
            ) from None
        raise InvalidQuery(first_lines(error) + keyword_hint(str(error))) from None


def first_lines(error: Exception) -> str:
    """DuckDB's message without its prefix; it keeps the position in the query."""
    text = str(error).strip()
    head, _, rest = text.partition(": ")
    return rest if head.endswith("Error") and rest else text


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"
