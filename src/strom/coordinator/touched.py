"""What a change of the metadata touched, so that whoever keeps something per table looks at these tables only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from strom.coordinator.entries import id_in
from strom.coordinator.keys import ACTIVE
from strom.errors import MetadataCorrupt
from strom.metadata.store import Entry
from strom.model.bucket import BucketId


class Changed(NamedTuple):
    """The entries of one kind that were put, by key, and the keys that were deleted."""

    put: dict[str, bytes]
    gone: list[str]


class ChangedEntries(NamedTuple):
    """The same with their versions."""

    put: dict[str, Entry]
    gone: list[str]


class PartitionOf(NamedTuple):
    """A partition and its table."""

    table_id: int
    partition_id: int


@dataclass(frozen=True, slots=True)
class Touched:
    """Tables and partitions that were added, removed or changed; a table also when its lake record changed.

    ``servers``: whether a server, an announcement, the active coordinator or what people want of them came, went or
    changed.
    """

    names: frozenset[tuple[str, str]] = frozenset()
    tables: frozenset[int] = frozenset()
    partitions: frozenset[PartitionOf] = frozenset()
    servers: bool = False
    buckets: frozenset[BucketId] = frozenset()
    """Buckets whose replica entries changed, as far as they concern this process: that touches no table."""

    @classmethod
    def of(cls, by_kind: Mapping[str, Changed], replicas: Iterable[str]) -> Touched:
        """Built from the entries that changed, by kind; of those of buckets, the keys."""
        found = {kind: [*changed.put, *changed.gone] for kind, changed in by_kind.items()}
        names = frozenset((database, table) for _, database, table in map(_parts, found.get("names", ())))
        ids = {id_in(key, 1) for kind in ("tables", "schemas", "lake") for key in found.get(kind, ())}
        # A table whose name changed hands is touched by its own entry; a partition touches no table.
        partitions = frozenset(
            PartitionOf(id_in(key, 1), id_in(key, 2)) for key in found.get("partitions", ())
        )
        servers = any(kind in found for kind in ("servers", "alive", ACTIVE, "operations"))
        buckets = frozenset(map(bucket_in, replicas))
        return cls(names, frozenset(ids), partitions, servers, buckets)

    def __bool__(self) -> bool:
        return bool(self.names or self.tables or self.partitions or self.servers or self.buckets)

    def __or__(self, other: Touched) -> Touched:
        return Touched(
            self.names | other.names,
            self.tables | other.tables,
            self.partitions | other.partitions,
            self.servers or other.servers,
            self.buckets | other.buckets,
        )


def bucket_in(key: str) -> BucketId:
    """The bucket whose replica entry has this key."""
    try:
        _, table, partition, bucket = key.split("/")
        return BucketId(int(table), None if partition == "-" else int(partition), int(bucket))
    except ValueError as error:
        raise MetadataCorrupt(f"{key} is not the key of a bucket", key=key) from error


def _parts(key: str) -> list[str]:
    return key.split("/")
