"""What only primary-key tables do, for callers that block: upsert, delete, look up, index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from strom import aio
from strom.api.session import Session
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.written import WrittenTo
from strom.client.lookup.lookup import Lookup, LookupHits
from strom.client.lookup.lookups import Lookups, names_of
from strom.client.lookup.row_lookup import Missing
from strom.client.plan.key_facts import IndexStatus


class Keys:
    """The part of a table that needs a key. A log table raises :class:`strom.errors.NotPrimaryKeyTable`."""

    def __init__(self, session: Session, face: aio.Table) -> None:
        self._session = session
        self._known = face

    @property
    def _face(self) -> aio.Table:
        """The async table; looked up again after a reconnect, as after a fork."""
        current = self._session.face
        if self._known.session is not current.session:
            self._known = self._session.run(current.table(self._known.name))
        return self._known

    @property
    def info(self) -> TableInfo:
        """The table's whole description, as this connection last saw it."""
        return self._known.info

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty for a log table."""
        return self._known.primary_key

    # --- writing ----------------------------------------------------------------------------------------------

    def upsert(self, data: object, columns: Sequence[str] | None = None) -> None:
        """Write rows: a new key is inserted, a known one updated; sent in the background, safe after ``flush``.

        Takes what ``append`` takes. A row is whole: a column that is not given becomes NULL. With ``columns`` (the key
        among them) only those are written, and the others stay as they are. The last change of a key wins.

        >>> users.upsert([{"id": 1, "name": "ann", "score": 0}])
        >>> users.upsert({"id": [1], "score": [7]}, columns=["id", "score"])
        """
        self._session.writer_of(self._face).upsert(data, columns)

    def delete(self, keys: object) -> None:
        """Delete the rows of these keys, in the background. Missing keys are not an error.

        Keys are given by column, as rows or as Arrow; bare values will do where the key is one column.

        >>> users.delete([1, 2, 3])
        >>> orders.delete({"user": 7, "number": 12})
        """
        self._session.writer_of(self._face).delete(keys)

    @property
    def last_written(self) -> WrittenTo:
        """What was acknowledged of ``upsert`` and ``delete`` so far, by bucket.

        A lookup with ``at_least`` set to this sees all of it, on any connection.

        >>> elsewhere.lookup(1, at_least=users.last_written)
        """
        return self._face.last_written

    # --- looking up -------------------------------------------------------------------------------------------

    def lookup(
        self,
        key: object,
        columns: Sequence[str] | None = None,
        *,
        at_least: WrittenTo | None = None,
        strong: bool = False,
    ) -> dict[str, Any] | None:
        """The row of one key as a dict, or None. It sees what this connection wrote before.

        With ``strong`` it sees whatever was acknowledged to anybody before the call, also while the leader of the
        bucket changes: the server first asks the other copies, which takes a round trip among the servers. It waits
        while one of them does not answer, and raises :class:`strom.errors.NotConfirmed` when that takes too long.

        >>> users.lookup(1)
        {'id': 1, 'name': 'ann', 'score': 7}
        >>> orders.lookup({"user": 7, "number": 12}, columns=["price"])
        {'price': 9.5}
        """
        lookups = self._ready()
        quick = None if strong else lookups.one_by_key(columns)
        found = None if quick is None else quick.find(key, at_least)
        if found is not None:
            return None if isinstance(found, Missing) else found
        lookup = lookups.by_key(columns)
        return lookup.row_of(self._find(lookup, lookup.one(key), at_least, strong))

    def lookup_many(
        self,
        keys: object,
        columns: Sequence[str] | None = None,
        *,
        at_least: WrittenTo | None = None,
        strong: bool = False,
    ) -> pa.Table:
        """A row for every key, in the order of the keys; a row of NULLs for a missing key.

        >>> users.lookup_many([3, 1, 99], columns=["name"]).to_pylist()
        [{'name': 'cat'}, {'name': 'ann'}, {'name': None}]
        """
        lookups = self._ready()
        lookup = lookups.by_key(columns)
        batch = lookup.keys(keys)
        quick = None if strong else lookups.many_by_key(lookup)
        found = None if quick is None else quick.find(batch, at_least)
        if found is not None:
            return found
        return lookup.in_order(self._find(lookup, batch, at_least, strong), batch.num_rows)

    def get_or_insert(self, keys: object, columns: Sequence[str] | None = None) -> pa.Table:
        """A row for every key, in the order of the keys; missing keys are inserted first.

        A new row has NULLs beside its key, and the next number in an auto-increment column: the dictionary of a join.
        A row that somebody else inserts meanwhile keeps its values.

        >>> words.get_or_insert(["river", "sea"], columns=["number"]).to_pylist()
        [{'number': 1}, {'number': 2}]
        """
        return self._session.run(self._face.get_or_insert(keys, columns))

    def lookup_prefix(
        self,
        prefix: object,
        columns: Sequence[str] | None = None,
        *,
        at_least: WrittenTo | None = None,
        strong: bool = False,
    ) -> pa.Table:
        """All rows with this bucket key (or one of these), where it is a part of the primary key.

        For a partitioned table, add the partition's columns, or all partitions are asked.

        >>> orders.lookup_prefix({"user": 7})
        """
        lookup = self._ready().by_prefix(names_of(prefix), columns)
        return lookup.by_key(self._find(lookup, lookup.keys(prefix), at_least, strong))

    def lookup_index(
        self,
        index: str,
        values: object,
        columns: Sequence[str] | None = None,
        *,
        at_least: WrittenTo | None = None,
        strong: bool = False,
    ) -> pa.Table:
        """All rows whose indexed columns have these values (or one of these), those of the first value first.

        >>> users.lookup_index("by_city", "Berlin", columns=["id", "name"])
        >>> users.lookup_index("by_city", ["Berlin", "Paris"]).num_rows
        2
        """
        lookup = self._ready().by_index(index, columns)
        return lookup.by_key(self._find(lookup, lookup.keys(values), at_least, strong))

    def _ready(self) -> Lookups:
        """The lookups of the table, after this connection's rows were flushed."""
        face = self._face
        writer = face.session.writers.get(face.table_id)
        if writer is not None and writer.has_outstanding():
            self._session.flush_table(face.table_id)
        return face.lookups

    def _find(
        self, lookup: Lookup, keys: pa.RecordBatch, at_least: WrittenTo | None, strong: bool
    ) -> list[LookupHits]:
        """In this thread if that works, else on the loop, which can retry."""
        found = lookup.find_directly(keys, at_least, strong)
        return self._session.run(lookup.find(keys, at_least, strong)) if found is None else found

    # --- indexes ----------------------------------------------------------------------------------------------

    def create_index(self, name: str, columns: str | Sequence[str], *, wait: bool = True) -> None:
        """Index columns of the live table. Built in the background; this waits for it unless ``wait`` is False.

        >>> users.create_index("by_city", ["city"])
        """
        self._session.run(self._face.create_index(name, columns, wait=wait))

    def drop_index(self, name: str) -> None:
        """Drop an index.

        >>> users.drop_index("by_city")
        """
        self._session.run(self._face.drop_index(name))

    def indexes(self) -> Mapping[str, IndexStatus]:
        """The indexes by name, with their columns, and whether they are ready.

        >>> users.indexes()
        {'by_city': IndexStatus(name='by_city', columns=('city',), state='ready', rows=1000000)}
        """
        return self._session.run(self._face.indexes())
