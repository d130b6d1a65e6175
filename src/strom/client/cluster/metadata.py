"""What this client knows about the cluster: servers, tables, partitions, leaders. Plain data, no calls.

Everything here may be stale. A wrong server says so (NotLeader, UnknownBucket), and the cluster refreshes. Ids are
never reused, so facts about an id never become wrong, only incomplete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from strom.client.cluster.address import Address
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.model.table import TableDescription, TablePath
from strom.protocol.messages.metadata import BucketMetadata, GetMetadataResponse, ServerNode, TableMetadata


@dataclass(frozen=True)
class TableInfo:
    """A table as this client last saw it."""

    table_id: int
    path: TablePath
    description: TableDescription
    created_ms: int
    modified_ms: int

    @property
    def schema(self) -> Schema:
        """The newest known schema."""
        return self.description.schema

    @property
    def bucket_count(self) -> int:
        """Buckets of the table, or of each of its partitions."""
        assert self.description.bucket_count is not None
        return self.description.bucket_count

    @property
    def partitioned(self) -> bool:
        """Whether the table has partitions."""
        return self.description.partitioned


@dataclass(frozen=True)
class PartitionInfo:
    """A partition of a table: ``name`` is its values, in key order, joined with ``$``."""

    partition_id: int
    name: str
    values: tuple[str, ...]


@dataclass
class Metadata:
    """The facts."""

    servers: dict[int, Address] = field(default_factory=dict)
    coordinator: Address | None = None
    tables: dict[TablePath, TableInfo] = field(default_factory=dict)
    partition_ids: dict[tuple[int, str], int] = field(default_factory=dict)
    """(table id, partition name) -> partition id."""
    schemas: dict[tuple[int, int], Schema] = field(default_factory=dict)
    """(table id, schema id) -> schema."""
    _leaders: dict[BucketId, int] = field(default_factory=dict)
    _epochs: dict[BucketId, int] = field(default_factory=dict)
    """Of the newest leader that was heard of, bucket by bucket."""
    _copies: dict[BucketId, Sequence[int]] = field(default_factory=dict)
    _avoided: set[Address] = field(default_factory=set)
    """Servers that could not be reached lately, for reads that others can answer too."""

    def learn(self, response: GetMetadataResponse) -> None:
        """Merge an answer. Servers are replaced; tables and partitions are added or updated."""
        self.servers = {node.node_id: _address(node) for node in response.tablet_servers}
        self._avoided.clear()
        if response.coordinator_server is not None:
            self.coordinator = _address(response.coordinator_server)
        for table in response.table_metadata:
            self._learn_table(table)
        for partition in response.partition_metadata:
            key = (partition.table_id, partition.partition_name)
            self.partition_ids[key] = partition.partition_id
            self._learn_leaders(partition.table_id, partition.partition_id, partition.bucket_metadata)

    def _learn_table(self, table: TableMetadata) -> None:
        path = TablePath(table.table_path.database_name, table.table_path.table_name)
        info = TableInfo(
            table_id=table.table_id,
            path=path,
            description=TableDescription.from_json(table.table_json, table.schema_id),
            created_ms=table.created_time,
            modified_ms=table.modified_time,
        )
        self.tables[path] = info
        self.schemas[info.table_id, info.schema.schema_id] = info.schema
        self._learn_leaders(info.table_id, None, table.bucket_metadata)

    def _learn_leaders(
        self, table_id: int, partition_id: int | None, buckets: Sequence[BucketMetadata]
    ) -> None:
        for bucket in buckets:
            key = BucketId(table_id, partition_id, bucket.bucket_id)
            epoch = bucket.leader_epoch or 0
            if epoch < self._epochs.get(key, 0):
                continue  # from a server that has not heard of the newest: that leader would show less than was seen
            self._epochs[key], self._copies[key] = epoch, bucket.replica_id
            if bucket.leader_id is None:
                self._leaders.pop(key, None)
            else:
                self._leaders[key] = bucket.leader_id

    def leader_id(self, bucket: BucketId) -> int | None:
        """The id of a bucket's leader, if known."""
        return self._leaders.get(bucket)

    def leader(self, bucket: BucketId) -> Address | None:
        """The address of a bucket's leader, if known."""
        server = self._leaders.get(bucket)
        return None if server is None else self.servers.get(server)

    def follower(self, bucket: BucketId) -> Address | None:
        """Another copy of a bucket than its leader's, if one is known; buckets are spread over the followers."""
        leader = self._leaders.get(bucket)
        found = [self.servers.get(one) for one in self._copies.get(bucket, ()) if one != leader]
        others = [one for one in found if one is not None and one not in self._avoided]
        return others[bucket.bucket % len(others)] if others else None

    def avoid(self, address: Address) -> None:
        """A server could not be reached: until the servers are learned anew, followers are others."""
        self._avoided.add(address)

    def forget_table(self, path: TablePath) -> None:
        """Forget a table that was dropped, or may have been."""
        info = self.tables.pop(path, None)
        if info is None:
            return
        for key in [key for key in self.partition_ids if key[0] == info.table_id]:
            del self.partition_ids[key]
        self._forget_buckets([bucket for bucket in self._leaders if bucket.table_id == info.table_id])

    def forget_partition(self, table_id: int, name: str) -> None:
        """Forget a partition that was dropped, or may have been."""
        partition_id = self.partition_ids.pop((table_id, name), None)
        self._forget_buckets([bucket for bucket in self._leaders if bucket[:2] == (table_id, partition_id)])

    def _forget_buckets(self, buckets: Sequence[BucketId]) -> None:
        for bucket in buckets:
            del self._leaders[bucket]
            self._copies.pop(bucket, None)  # the epoch stays: a late answer may still name an older leader


def _address(node: ServerNode) -> Address:
    return Address(node.host, node.port)
