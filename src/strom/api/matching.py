"""Lookups that tell which key each row belongs to, for callers that block: what a join does for whole columns of keys.

``Table.lookup_many`` and its sisters answer people. A join asks for tens of thousands of keys at once, may get many
rows for one of them, and goes on with positions. An answer that would be too large is asked for in halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.client.arrow_input import concatenate
from strom.client.key_door import Written, WrittenTo
from strom.client.key_facts import KeyFacts
from strom.client.key_plan import Planner
from strom.client.lookup import Found, Lookup
from strom.client.lookups import Lookups
from strom.client.metadata import TableInfo
from strom.errors import LimitExceeded
from strom.model.bucket import BucketId

if TYPE_CHECKING:
    from strom.api.database import Database


class Matches(NamedTuple):
    """Rows, and the position of the key that each belongs to."""

    rows: pa.RecordBatch
    keys: npt.NDArray[np.int64]


class Matching:
    """One way to look up one table: by its primary key, by a prefix of it, or by an index."""

    def __init__(
        self,
        database: Database,
        table: TableInfo,
        columns: Sequence[str] | None,
        *,
        prefix: Sequence[str] | None = None,
        index: str | None = None,
    ) -> None:
        self._session = database.session
        lookups = Lookups(self._session.face.session.cluster, lambda: table)
        if index is not None:
            self._lookup: Lookup = lookups.by_index(index, columns)
        elif prefix is not None:
            self._lookup = lookups.by_prefix(prefix, columns)
        else:
            self._lookup = lookups.by_key(columns)

    @property
    def asked(self) -> tuple[str, ...]:
        """The columns that keys are given by."""
        return self._lookup.shape.given

    def find(self, keys: pa.RecordBatch, at_least: WrittenTo | None = None) -> Matches:
        """The rows of these keys, in no particular order. ``at_least``: what must be seen, by bucket."""
        batch = self._lookup.keys(keys)
        found = self._found(batch, at_least) if batch.num_rows else []
        if not found:
            return Matches(self._lookup.empty, np.empty(0, np.int64))
        if len(found) == 1:
            return Matches(*found[0])
        rows = concatenate([one.rows for one in found])
        return Matches(rows, np.concatenate([one.keys for one in found]))

    def _found(self, keys: pa.RecordBatch, at_least: WrittenTo | None) -> list[Found]:
        try:
            found = self._lookup.find_directly(keys, at_least)
            return self._session.run(self._lookup.find(keys, at_least)) if found is None else found
        except LimitExceeded:
            if keys.num_rows == 1:
                raise
        half = keys.num_rows // 2
        later = self._found(keys.slice(half), at_least)
        return [
            *self._found(keys.slice(0, half), at_least),
            *(Found(one.rows, one.keys + half) for one in later),
        ]


def written_to(database: Database, table: TableInfo) -> dict[BucketId, Written]:
    """How far every bucket of a primary-key table can be seen now: for ``at_least``, in any process."""
    session = database.session

    async def ask() -> dict[BucketId, Written]:
        cluster = session.face.session.cluster
        buckets = [bucket for bucket, _ in await Planner(cluster, table, None, None).buckets()]
        facts = await KeyFacts(cluster, table).of(buckets)
        return {bucket: Written(known.high_watermark, known.epoch) for bucket, known in facts.items()}

    return session.run(ask())
