"""The blocking API of a transaction."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from strom.aio.transaction import Transaction as Core
from strom.api.table import Table
from strom.client.cluster.blocking import Background
from strom.client.write.decision import Committed

TableLike = str | Table


class Transaction:
    """Rows of many buckets and tables that become visible at once, when the ``with`` is left without an error.

    With an id and a version it is published once, no matter how often the program runs again; if it was published
    before, ``repeated`` is True and nothing is written. Versions of an id grow. Without them it is atomic and published
    once per commit. Readers of batches (``scan``, ``to_arrow``, Spark) see all of it or nothing.

    >>> with db.transaction("nightly-import", version=7) as tx:
    ...     tx.append("orders", orders)
    ...     tx.upsert("customers", customers)
    >>> tx.repeated
    False
    """

    def __init__(self, background: Background, core: Core) -> None:
        self._background = background
        self._core = core
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        return repr(self._core)

    @property
    def repeated(self) -> bool:
        """Whether this version was published before, for every table so far: then nothing is written.

        >>> tx.repeated
        False
        """
        return self._core.repeated

    @property
    def committed(self) -> Committed | None:
        """The result of the commit: the number of the decision, and the tables that already had this version.

        >>> tx.committed.number
        12
        """
        return self._core.committed

    def append(self, table: TableLike, data: object) -> None:
        """Append rows to a log table: anything that ``Table.append`` takes.

        >>> tx.append("orders", [{"id": 1, "amount": 3.5}])
        """
        with self._turn:
            writer = self._background.run(self._core.writer_of(_name(table), keyed=False))
            if writer is not None:
                self._background.drive(writer.append_steps(data))

    def upsert(self, table: TableLike, data: object, columns: Sequence[str] | None = None) -> None:
        """Write rows of a primary-key table; with ``columns`` only those columns.

        >>> tx.upsert("customers", [{"id": 1, "name": "ann"}])
        """
        with self._turn:
            writer = self._background.run(self._core.writer_of(_name(table), keyed=True))
            if writer is not None:
                self._background.drive(writer.upsert_steps(data, columns))

    def delete(self, table: TableLike, keys: object) -> None:
        """Delete rows of a primary-key table by their keys.

        >>> tx.delete("customers", [7, 8])
        """
        with self._turn:
            writer = self._background.run(self._core.writer_of(_name(table), keyed=True))
            if writer is not None:
                self._background.drive(writer.delete_steps(keys))

    def overwrite(self, table: TableLike, partition: Mapping[str, Any] | None = None) -> None:
        """Empty a table, or one partition of it, in the same commit: readers see the old rows or the new ones.

        >>> tx.overwrite("orders", {"day": "2026-11-15"})
        """
        self._background.run(self._core.overwrite(_name(table), partition))

    def commit(self) -> Committed:
        """Publish everything; leaving the ``with`` does it too. It may be called again if its answer was lost.

        >>> tx.commit().number
        12
        """
        with self._turn:
            return self._background.run(self._core.commit())

    def abort(self) -> None:
        """Publish nothing.

        >>> tx.abort()
        """
        with self._turn:
            self._background.run(self._core.abort())

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.commit()
            return
        try:
            self.abort()
        except Exception as failure:
            error.add_note(f"and aborting the transaction failed: {failure}")


def _name(table: TableLike) -> str:
    return table if isinstance(table, str) else table.name
