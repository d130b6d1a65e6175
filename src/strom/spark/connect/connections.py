"""One connection per server and user for the life of a worker, replaced when it is broken.

Spark reuses a worker for many tasks, so a task finds the connection of the previous one. The client repairs a lost
connection itself (it retries for ``retry.seconds``); one that was closed, or inherited through a fork, is replaced.
"""

from __future__ import annotations

import os
import threading

from strom.api.database import Database, connect
from strom.api.table import Table
from strom.client.cluster.options import ClientOptions
from strom.errors import Closed, StromError, TableNotFound
from strom.spark.connect.options import ConnectOptions

_lock = threading.Lock()
_open: dict[tuple[int, ConnectOptions], Database] = {}
_tables: dict[tuple[int, ConnectOptions, str], Table] = {}


def database(server: ConnectOptions) -> Database:
    """The connection of this process."""
    key = (os.getpid(), server)
    with _lock:
        found = _open.get(key)
        if found is None:
            found = _open[key] = connect(
                server.address, user=server.user, password=server.password, options=_options(server)
            )
        return found


def table(server: ConnectOptions, name: str) -> Table:
    """A table as it is now."""
    try:
        found = database(server).table(name)
    except Closed:
        forget(server)
        found = database(server).table(name)
    _tables[os.getpid(), server, name] = found
    return found


def known_table(server: ConnectOptions, name: str, table_id: int | None = None, schema_id: int = 0) -> Table:
    """A table that a plan names. The server is asked only if this process does not know it with that schema."""
    found = _tables.get((os.getpid(), server, name))
    other = found is None or (table_id is not None and found.table_id != table_id)
    if found is None or other or found.info.schema.schema_id < schema_id:
        found = table(server, name)
    if table_id is not None and found.table_id != table_id:
        raise TableNotFound(
            f"table {name} was dropped, and another one of this name was created: load it again",
            table_id=table_id,
            found=found.table_id,
        )
    return found


def forget(server: ConnectOptions) -> None:
    """Close a connection; the next call opens another."""
    key = (os.getpid(), server)
    with _lock:
        found = _open.pop(key, None)
        for known in [one for one in _tables if one[:2] == key]:
            del _tables[known]
    if found is not None:
        try:
            found.close()
        except StromError:
            pass  # it is forgotten because it is broken


def _options(server: ConnectOptions) -> ClientOptions:
    return ClientOptions(retry_timeout_ms=server.retry_s * 1000)
