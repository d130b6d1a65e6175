"""The entries of all buckets that have copies, and which server has or leads which of them.

An immutable value that shares with the one before it whatever stayed the same, as the catalog does. It also knows what
each server has, so that the death of one costs what it had, not what the cluster has. There may be a million entries:
they stay in the store's map, packed, and those that are asked for are kept decoded for a while.

A coordinator decides about all of them: it checks each one that comes in. A tablet server (``server_id``) needs those
of its own copies: it checks and indexes these alone, and decodes another one only when somebody asks for it. So it can
tell everything about any bucket, but of no other server what that one has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, partial

from strom.coordinator.touched import ChangedEntries, bucket_in
from strom.metadata.packed_entries import PackedEntries
from strom.metadata.sharing_map import SharingMap
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry, BucketOutline, decode_bucket, may_name, outline_bucket

PREFIX = "replicas/"
DECODED_MAX = 1 << 14
Index = SharingMap[int, SharingMap[str, int]]
"""By server, then by key. For a leader the value is the process that leads, by its incarnation."""
Keys = SharingMap[str, bool]
_NOBODY: SharingMap[str, int] = SharingMap()


@lru_cache(maxsize=1 << 12)
def _shared(incarnation: int) -> int:
    """The same object for equal numbers: a million entries name a thousand processes."""
    return incarnation


class _Decoded:
    """Entries that were asked for, decoded, at their versions; all rows of one store share it."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, BucketEntry]] = {}

    def entry(self, rows: PackedEntries, key: str) -> tuple[BucketEntry, int] | None:
        """An entry and its version; None if there is none."""
        version = rows.version_of(key)
        if version is None:
            return None
        kept = self._kept.get(key)
        if kept is not None and kept[0] == version:
            return kept[1], version
        decoded = decode_bucket(key, rows[key].value)
        if len(self._kept) >= DECODED_MAX:
            self._kept = {}
        self._kept[key] = version, decoded
        return decoded, version


class ReplicaRows:
    """All entries under ``replicas/``."""

    __slots__ = ("_copies", "_decoded", "_lacking", "_led", "_rows", "_server_id")

    def __init__(self, server_id: int | None = None) -> None:
        """None at all; use ``of`` and ``changed``."""
        self._server_id = server_id
        self._decoded = _Decoded()
        self._rows = PackedEntries.sized()
        self._led: Index = SharingMap()
        self._copies: Index = SharingMap()
        self._lacking: Keys = SharingMap()

    @classmethod
    def of(cls, rows: PackedEntries, server_id: int | None = None) -> ReplicaRows:
        """The rows of all these entries; ``server_id``: of the tablet server that they are for."""
        found = cls(server_id)
        found._rows = rows
        named = None if server_id is None else partial(may_name, server_id=server_id)
        led, copies = _Moves(), _Moves()
        lacking: dict[str, bool] = {}
        for key, entry in rows.each(named):
            after = outline_bucket(key, entry.value)
            if server_id is None:
                led.add(key, after.leader, _shared(after.incarnation))
                for server in after.servers:
                    copies.add(key, server, 1)
            elif server_id in after.servers:
                found._index(key, None, after, led, copies)
            else:
                continue
            if after.lacking:
                lacking[key] = True
        found._led, found._copies = led.applied(found._led), copies.applied(found._copies)
        found._lacking = SharingMap.of(lacking)
        return found

    def changed(self, rows: PackedEntries, changed: ChangedEntries) -> tuple[ReplicaRows, list[str]]:
        """The rows after a change of the metadata, and the keys of what changed and concerns this process."""
        found = ReplicaRows(self._server_id)
        found._rows, found._decoded = rows, self._decoded
        led, copies = _Moves(), _Moves()
        lacking: dict[str, bool] = {}
        concerned: list[str] = []
        for key in changed.gone:
            before = self._concerning(key)
            if before is not None:
                self._index(key, before, None, led, copies)
                concerned.append(key)
        for key, entry in changed.put.items():
            before = self._concerning(key)
            if before is None and self._server_id is not None and not may_name(entry.value, self._server_id):
                continue
            after = outline_bucket(key, entry.value)
            if before is None and self._server_id is not None and self._server_id not in after.servers:
                continue
            self._index(key, before, after, led, copies)
            concerned.append(key)
            if after.lacking:
                lacking[key] = True
        no_longer = [key for key in concerned if key not in lacking and key in self._lacking]
        found._lacking = self._lacking.changed(lacking, no_longer) if lacking or no_longer else self._lacking
        found._led, found._copies = led.applied(self._led), copies.applied(self._copies)
        return found, concerned

    def _index(
        self, key: str, before: BucketEntry | None, after: BucketOutline | None, led: _Moves, copies: _Moves
    ) -> None:
        led.move(key, self._leader(before), self._leader(after))
        copies.move(key, self._servers(before), self._servers(after))

    def _leader(self, one: BucketEntry | BucketOutline | None) -> dict[int, int]:
        if one is None or self._server_id not in (None, one.leader):
            return {}
        return {one.leader: _shared(one.incarnation)}

    def _servers(self, one: BucketEntry | BucketOutline | None) -> dict[int, int]:
        if one is None:
            return {}
        servers = (
            one.servers if self._server_id is None else [self._server_id] * (self._server_id in one.servers)
        )
        return dict.fromkeys(servers, 1)

    def _concerning(self, key: str) -> BucketEntry | None:
        """What was known under a key, if that concerns this process."""
        if self._server_id is not None and key not in (self._copies.get(self._server_id) or _NOBODY):
            return None
        known = self._decoded.entry(self._rows, key)
        return None if known is None else known[0]

    def get(self, bucket: BucketId) -> BucketEntry | None:
        """The entry of a bucket; None if it has none."""
        found = self.versioned(bucket)
        return None if found is None else found[0]

    def versioned(self, bucket: BucketId) -> tuple[BucketEntry, int] | None:
        """The entry of a bucket and its version; None if it has none."""
        return self._decoded.entry(self._rows, f"{PREFIX}{bucket}") if len(self._rows) else None

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[BucketId]:
        """Every bucket that has an entry."""
        return map(bucket_in, self._rows)

    def led_by(self, server_id: int, table_id: int | None = None) -> list[BucketId]:
        """The buckets whose entries name this server as the leader, in order; ``table_id``: of one table."""
        led: Iterable[str] = self._of(server_id, self._led)
        if table_id is not None:
            below = f"{PREFIX}{table_id}/"
            led = [key for key in led if key.startswith(below)]
        return _buckets(led)

    def on(self, server_id: int) -> list[BucketId]:
        """The buckets of which this server has a copy, in order."""
        return _buckets(self._of(server_id, self._copies))

    def led_by_former(self, server_id: int, incarnation: int) -> list[BucketId]:
        """The buckets whose entries name another process of this server than the one of now: nobody leads them."""
        led = self._of(server_id, self._led)
        return _buckets([key for key, found in led.items() if found != incarnation])

    def lacking(self) -> list[BucketId]:
        """The buckets whose entries alone say that something lacks, or that rows were given up; in order."""
        return _buckets(self._lacking)

    def leader_count(self, server_id: int) -> int:
        """How many buckets this server leads."""
        return len(self._of(server_id, self._led))

    def copy_count(self, server_id: int) -> int:
        """How many copies this server has."""
        return len(self._of(server_id, self._copies))

    def _of(self, server_id: int, index: Index) -> SharingMap[str, int]:
        assert self._server_id in (None, server_id), "a tablet server knows what it has itself"
        return index.get(server_id) or _NOBODY


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
        changed = {
            server: (index.get(server) or _NOBODY).changed(
                self._put.get(server, {}), self._gone.get(server, ())
            )
            for server in {*self._put, *self._gone}
        }
        kept = {server: one for server, one in changed.items() if one}
        return index.changed(kept, [server for server in changed if server not in kept])


def _buckets(found: Iterable[str]) -> list[BucketId]:
    return sorted(map(bucket_in, found), key=_order)


def _order(bucket: BucketId) -> tuple[int, int, int]:
    return bucket.table_id, -1 if bucket.partition_id is None else bucket.partition_id, bucket.bucket
