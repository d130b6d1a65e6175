"""Blocking lookups that say which key each row belongs to: what a join does for whole columns of keys.

``Table.lookup_many`` and its siblings answer people. A join looks up tens of thousands of keys at once, may get many
rows for one of them, and works with positions. A request that is too large for the servers, or whose answer would be,
is split in halves, and for a while no larger one is sent; one key that has more rows than an answer holds is read in
pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.written import WrittenTo, WrittenUpTo
from strom.client.input.arrow_input import concatenate
from strom.client.lookup.lookup import Lookup, LookupHits
from strom.client.lookup.lookups import Lookups
from strom.client.plan.key_facts import KeyFacts
from strom.client.plan.partition_choice import chosen_buckets
from strom.errors import LimitExceeded
from strom.model.bucket import BucketId

if TYPE_CHECKING:
    from strom.api.database import Database

KEYS_MOST = 1 << 16


class Matches(NamedTuple):
    """Rows, and the position of the key that each belongs to."""

    rows: pa.RecordBatch
    keys: npt.NDArray[np.int64]

    def within(self, start: int, end: int) -> Matches:
        """Those of the keys from ``start`` to before ``end``; positions stay as they are."""
        chosen = np.flatnonzero((self.keys >= start) & (self.keys < end))
        return Matches(self.rows.take(pa.array(chosen)), self.keys[chosen])


class MatchPart(NamedTuple):
    """What was found of the keys from ``start`` to before ``end``; positions count from the first key of all."""

    start: int
    end: int
    matches: Matches
    more: bool = False
    """More rows of the one key of the part before."""


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
        strong: bool = False,
    ) -> None:
        """``strong``: leaders first make sure that they lead."""
        self._session = database.session
        self._strong = strong
        self.at_once = KEYS_MOST
        """How many keys one call looks up: fewer after a refusal, then slowly more again."""
        lookups = Lookups(self._session.cluster, lambda: table)
        if index is not None:
            self._lookup: Lookup = lookups.by_index(index, columns)
        elif prefix is not None:
            self._lookup = lookups.by_prefix(prefix, columns)
        else:
            self._lookup = lookups.by_key(columns)

    @property
    def nothing(self) -> Matches:
        """The matches of no keys."""
        return Matches(self._lookup.empty, np.empty(0, np.int64))

    @property
    def asked(self) -> tuple[str, ...]:
        """The columns that keys are given by."""
        return self._lookup.shape.given

    def find(self, keys: pa.RecordBatch, at_least: WrittenTo | None = None) -> Matches:
        """The rows of these keys, in no particular order. ``at_least``: what must be seen, by bucket."""
        found = list(self.parts(keys, at_least))
        if len(found) == 1:
            return found[0].matches
        if not found:
            return self.nothing
        rows = concatenate([one.matches.rows for one in found])
        return Matches(rows, np.concatenate([one.matches.keys for one in found]))

    def parts(self, keys: pa.RecordBatch, at_least: WrittenTo | None = None) -> Iterator[MatchPart]:
        """The same in parts: no more is held at once than the servers send in one answer."""
        batch = self._lookup.keys(keys)
        start = 0
        while start < batch.num_rows:
            count = min(self.at_once, batch.num_rows - start)
            try:
                found = self._found(batch.slice(start, count), at_least)
            except LimitExceeded as error:
                if count == 1:
                    if self._lookup.shape.name is None:
                        raise _too_large(self._lookup, error) from None
                    yield from self._pages(batch.slice(start, 1), start, at_least)
                    start += 1
                    continue
                self.at_once = count // 2
                continue
            if count == self.at_once:
                self.at_once += self.at_once // 4 + 1
            yield MatchPart(start, start + count, self._one(found, start))
            start += count

    def _pages(self, key: pa.RecordBatch, place: int, at_least: WrittenTo | None) -> Iterator[MatchPart]:
        """The rows of one key that has more than an answer holds, page by page; at least one part."""
        more = False
        for bucket in self._session.run(self._lookup.buckets(key)):
            after: int | None = -1
            while after is not None:
                found, after = self._session.run(
                    self._lookup.page(key, bucket, after, at_least, self._strong)
                )
                if found is not None:
                    yield MatchPart(place, place + 1, self._one([found], place), more)
                    more = True
        if not more:
            yield MatchPart(place, place + 1, self.nothing)

    def _found(self, keys: pa.RecordBatch, at_least: WrittenTo | None) -> list[LookupHits]:
        found = self._lookup.find_directly(keys, at_least, self._strong)
        return self._session.run(self._lookup.find(keys, at_least, self._strong)) if found is None else found

    def _one(self, found: Sequence[LookupHits], start: int) -> Matches:
        if not found:
            return self.nothing
        rows = found[0].rows if len(found) == 1 else concatenate([one.rows for one in found])
        keys = found[0].keys if len(found) == 1 else np.concatenate([one.keys for one in found])
        return Matches(rows, keys + start if start else keys)


def _too_large(lookup: Lookup, error: LimitExceeded) -> LimitExceeded:
    """A key has one row: there is no smaller request."""
    return LimitExceeded(
        f"a row of {lookup.table.path} is larger than an answer: {error.message}, or raise server.request.max-bytes",
        **error.facts,
    )


def written_to(database: Database, table: TableInfo) -> dict[BucketId, WrittenUpTo]:
    """How far every bucket of a primary-key table can be seen now: for ``at_least``, in any process."""
    session = database.session

    async def ask() -> dict[BucketId, WrittenUpTo]:
        cluster = session.cluster
        buckets = [bucket for bucket, _ in await chosen_buckets(cluster, table)]
        facts = await KeyFacts(cluster, table).of(buckets)
        return {bucket: WrittenUpTo(known.high_watermark, known.epoch) for bucket, known in facts.items()}

    return session.run(ask())
