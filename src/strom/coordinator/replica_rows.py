"""The entries of all buckets that have copies, and which server has or leads which of them.

An immutable value that shares with the one before it whatever stayed the same, as the catalog does. It also knows what
each server has, so that the death of one costs what it had, not what the cluster has. There may be a million entries:
they are checked when they come in and kept as bytes, and those that are asked for are kept decoded for a while.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from strom.coordinator.touched import ChangedEntries, bucket_in
from strom.metadata.sharing_map import SharingMap
from strom.metadata.store import Entry
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry, BucketOutline, decode_bucket, outline_bucket

PREFIX = "replicas/"
Index = SharingMap[int, SharingMap[str, int]]
"""By server, then by key. For a leader the value is the process that leads, by its incarnation."""
Keys = SharingMap[str, bool]

_decoded = lru_cache(maxsize=1 << 14)(decode_bucket)


@lru_cache(maxsize=1 << 12)
def _shared(incarnation: int) -> int:
    """The same object for equal numbers: a million entries name a thousand processes."""
    return incarnation


class ReplicaRows:
    """All entries under ``replicas/``."""

    __slots__ = ("_copies", "_lacking", "_led", "_rows")

    def __init__(self, rows: SharingMap[str, Entry] | None = None) -> None:
        """None at all; use ``changed``."""
        self._rows = rows or SharingMap()
        self._led: Index = SharingMap()
        self._copies: Index = SharingMap()
        self._lacking: Keys = SharingMap()

    @property
    def entries(self) -> Mapping[str, Entry]:
        """All of them as the metadata have them, by key."""
        return self._rows

    def changed(self, changed: ChangedEntries) -> ReplicaRows:
        """The rows after a change of the metadata."""
        if not changed.put and not changed.gone:
            return self
        found = ReplicaRows(self._rows.changed(changed.put, changed.gone))
        led, copies = _Moves(), _Moves()
        lacking: dict[str, bool] = {}
        for key in changed.gone:
            before = self._outline(key)
            led.move(key, _leader(before), {})
            copies.move(key, _servers(before), {})
        for key, entry in changed.put.items():
            after = outline_bucket(key, entry.value)
            before = self._outline(key)
            if before is None:
                led.add(key, after.leader, _shared(after.incarnation))
                for server in after.servers:
                    copies.add(key, server, 1)
            else:
                led.move(key, _leader(before), _leader(after))
                copies.move(key, _servers(before), _servers(after))
            if after.lacking:
                lacking[key] = True
        found._lacking = self._lacking.changed(lacking, self._no_longer_lacking(changed, lacking))
        found._led, found._copies = led.applied(self._led), copies.applied(self._copies)
        return found

    def _no_longer_lacking(self, changed: ChangedEntries, lacking: Mapping[str, bool]) -> list[str]:
        if not self._lacking:
            return []
        touched = (*changed.gone, *(key for key in changed.put if key not in lacking))
        return [key for key in touched if key in self._lacking]

    def get(self, bucket: BucketId) -> BucketEntry | None:
        """The entry of a bucket; None if it has none."""
        return self._entry(f"{PREFIX}{bucket}") if len(self._rows) else None

    def _entry(self, key: str) -> BucketEntry | None:
        found = self._rows.get(key)
        return None if found is None else _decoded(key, found.value)

    def _outline(self, key: str) -> BucketOutline | None:
        found = self._rows.get(key)
        return None if found is None else outline_bucket(key, found.value)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[BucketId]:
        """Every bucket that has an entry."""
        return map(bucket_in, self._rows)

    def led_by(self, server_id: int) -> list[BucketId]:
        """The buckets whose entries name this server as the leader, in order."""
        return _buckets(self._led.get(server_id))

    def on(self, server_id: int) -> list[BucketId]:
        """The buckets of which this server has a copy, in order."""
        return _buckets(self._copies.get(server_id))

    def led_by_former(self, server_id: int, incarnation: int) -> list[BucketId]:
        """The buckets whose entries name another process of this server than the one of now: nobody leads them."""
        led = self._led.get(server_id) or SharingMap()
        return _buckets([key for key, found in led.items() if found != incarnation])

    def lacking(self) -> list[BucketId]:
        """The buckets whose entries alone say that something lacks, or that rows were given up; in order."""
        return _buckets(self._lacking)

    def leader_count(self, server_id: int) -> int:
        """How many buckets this server leads."""
        return len(self._led.get(server_id) or ())

    def copy_count(self, server_id: int) -> int:
        """How many copies this server has."""
        return len(self._copies.get(server_id) or ())


class _Moves:
    """Changes of an index, gathered by server."""

    def __init__(self) -> None:
        self._put: defaultdict[int, dict[str, int]] = defaultdict(dict)
        self._gone: dict[int, list[str]] = {}

    def add(self, key: str, server: int, value: int) -> None:
        self._put[server][key] = value

    def move(self, key: str, before: Mapping[int, int], after: Mapping[int, int]) -> None:
        if before == after:
            return
        for server in before:
            if server not in after:
                self._gone.setdefault(server, []).append(key)
        for server, value in after.items():
            if before.get(server) != value:
                self._put[server][key] = value

    def applied(self, index: Index) -> Index:
        none: SharingMap[str, int] = SharingMap()
        changed = {
            server: (index.get(server) or none).changed(self._put.get(server, {}), self._gone.get(server, ()))
            for server in {*self._put, *self._gone}
        }
        kept = {server: one for server, one in changed.items() if one}
        return index.changed(kept, [server for server in changed if server not in kept])


def _leader(outline: BucketOutline | None) -> dict[int, int]:
    return {} if outline is None else {outline.leader: _shared(outline.incarnation)}


def _servers(outline: BucketOutline | None) -> dict[int, int]:
    return {} if outline is None else dict.fromkeys(outline.servers, 1)


def _buckets(found: Iterable[str] | None) -> list[BucketId]:
    return sorted(map(bucket_in, found or ()), key=_order)


def _order(bucket: BucketId) -> tuple[int, int, int]:
    return bucket.table_id, -1 if bucket.partition_id is None else bucket.partition_id, bucket.bucket
