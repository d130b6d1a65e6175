"""Clusters of Strom, Fluss and Kafka side by side, each of three servers on the loopback that keep three copies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

import strom
from benchmarks.fluss_process import FlussServer, fluss_server
from benchmarks.kafka_process import KafkaServer, kafka_server
from benchmarks.kafka_ways import TIMEOUT_S, KafkaArrow, KafkaRows, client
from benchmarks.on_cluster import cluster, server_pids
from benchmarks.peer_systems import FLUSS, KAFKA_ARROW, KAFKA_ROWS, OWN, PEER
from benchmarks.peer_ways import ByPyfluss, ByStrom, Way
from benchmarks.workload import SMALL_SCHEMA
from strom.client.cluster.cluster import Cluster
from strom.model.bucket import BucketId
from strom.model.table import TablePath
from strom.runtime.world import World
from strom.testing.cluster_process import ClusterProcess

SERVERS = 3
KAFKA = "Kafka"


@dataclass(frozen=True)
class PeerClusters:
    """All of them, running."""

    strom: ClusterProcess
    db: strom.Database
    fluss: FlussServer
    kafka: KafkaServer

    def pids_of(self, way: str) -> list[int]:
        """Whose processes do the work of a way, by the first word of its name."""
        return {"Strom": server_pids(self.strom), "Fluss": self.fluss.pids}.get(
            way.split()[0], self.kafka.pids
        )

    def address_of(self, way: str) -> str:
        """Whom it asks."""
        return {"Strom": self.strom.address, "Fluss": self.fluss.address}.get(
            way.split()[0], self.kafka.address
        )

    @contextmanager
    def ways(self) -> Iterator[dict[str, Way]]:
        """Every way to a log with three copies, connected."""
        with ExitStack() as open_ones:
            runner = open_ones.enter_context(asyncio.Runner())
            others: dict[str, ByPyfluss | KafkaRows | KafkaArrow] = {
                PEER: ByPyfluss(self.strom.address, runner),
                FLUSS: ByPyfluss(self.fluss.address, runner),
                KAFKA_ROWS: KafkaRows(self.kafka.address, SERVERS),
                KAFKA_ARROW: KafkaArrow(self.kafka.address, SERVERS),
            }
            for way in others.values():
                open_ones.callback(way.close)
            yield {OWN: ByStrom(self.db), **others}

    def create(self, way: str, name: str) -> None:
        """A table, or topic, of one bucket."""
        if way == KAFKA:
            admin = AdminClient(client(self.kafka.address))
            admin.create_topics([NewTopic(name, 1, SERVERS)])[name].result(TIMEOUT_S)
        elif way == OWN:
            self.db.create_table(name, SMALL_SCHEMA, buckets=1)
        else:
            asyncio.run(_create(self.fluss.address, name))

    def kill_leader(self, way: str, name: str) -> None:
        """Kill -9 of the server that leads the table."""
        if way == KAFKA:
            found = AdminClient(client(self.kafka.address)).list_topics(name, timeout=TIMEOUT_S)
            self.kafka.brokers[found.topics[name].partitions[0].leader].end()
        else:
            leader = asyncio.run(_leader(self.address_of(way), name))
            if way == OWN:
                self.strom.tablets[leader].kill()
            else:
                self.fluss.tablets[leader].end()


async def _create(address: str, name: str) -> None:
    import fluss

    async with await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address})) as peer:
        descriptor = fluss.TableDescriptor(fluss.Schema(SMALL_SCHEMA), bucket_count=1)
        await peer.get_admin().create_table(fluss.TablePath("fluss", name), descriptor)


async def _leader(address: str, name: str) -> int:
    """By our client, whoever answers."""
    asked = await Cluster.connect(World.system(), address)
    try:
        table = await asked.table(TablePath("fluss", name))
        found = asked.metadata.leader_id(BucketId(table.table_id, None, 0))
        assert found is not None, f"nobody leads {name}"
        return found
    finally:
        await asked.close()


@contextmanager
def running(folder: Path) -> Iterator[PeerClusters]:
    """All three, fresh; Strom with durability `os`, since none of the others waits for the disk."""
    with (
        kafka_server(folder / "kafka", SERVERS) as kafka,
        fluss_server(folder / "fluss", SERVERS) as fluss,
        cluster(folder / "strom", {"durability": "os"}) as (found, db),
    ):
        yield PeerClusters(found, db, fluss, kafka)
