"""A real Kafka: processes that are broker and controller (KRaft), without a sync of their own, as it comes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import peer_jars
from benchmarks.peer_java import LOOPBACK, JavaProcess, accepts, await_true, free_ports, written

CLUSTER_ID = "c3Ryb20tYmVuY2htYXJrcw"
"""Any 16 bytes in base64."""
MESSAGE_BYTES_MAX = 16 << 20
HEAP = ("-Xms1g", "-Xmx1g")
"""What its own start script gives it."""
COLLECTOR = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
FORMAT_TIMEOUT_S = 180


@dataclass(frozen=True)
class KafkaServer:
    """A cluster that answers; often of one broker."""

    address: str
    brokers: dict[int, JavaProcess]
    """By their numbers, from 1."""
    started_in_s: float
    """From the first command to the first answer; the storage was formatted before."""

    @property
    def pids(self) -> list[int]:
        """Of all brokers."""
        return [one.process.pid for one in self.brokers.values()]


@contextmanager
def kafka_server(folder: Path, brokers: int = 1) -> Iterator[KafkaServer]:
    """A fresh one in this folder; every node is broker and controller."""
    ports = free_ports(2 * brokers)
    nodes = {node: (ports[2 * node - 2], ports[2 * node - 1]) for node in range(1, brokers + 1)}
    voters = ",".join(f"{node}@{LOOPBACK}:{controller}" for node, (_, controller) in nodes.items())
    paths = {}
    for node, (port, controller) in nodes.items():
        home = folder / f"node-{node}"
        home.mkdir(parents=True)
        told = settings(home / "data", port, controller, node=node, voters=voters, copies=brokers)
        paths[node] = written(home / "server.properties", told, "=")
    _format(list(paths.values()))
    began = time.monotonic()
    running: dict[int, JavaProcess] = {}
    try:
        for node, path in paths.items():
            options = [*HEAP, *COLLECTOR]
            running[node] = JavaProcess(peer_jars.KAFKA, "kafka.Kafka", [str(path)], path.parent, options)
        address = ",".join(f"{LOOPBACK}:{port}" for port, _ in nodes.values())
        await_true(
            lambda: all(accepts(port) for port, _ in nodes.values()) and _answers(address, brokers),
            list(running.values()),
        )
        yield KafkaServer(address, running, time.monotonic() - began)
    finally:
        for one in running.values():
            one.end()


def settings(
    data: Path, port: int, controller: int, *, node: int = 1, voters: str = "", copies: int = 1
) -> dict[str, object]:
    """One node, loopback only; what is not said is as Kafka ships it."""
    least = min(2, copies)
    return {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": voters or f"{node}@{LOOPBACK}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "replica.fetch.max.bytes": MESSAGE_BYTES_MAX,
        "auto.create.topics.enable": "false",
        "min.insync.replicas": least,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": least,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": least,
    }


def _format(paths: Sequence[Path]) -> None:
    """A node does not start on storage that nobody gave a cluster's name. All at once: most of it is Java's start."""
    command = [
        *(peer_jars.java(), "-XX:TieredStopAtLevel=1", "-cp", peer_jars.class_path(peer_jars.KAFKA)),
        *("kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID, "--config"),
    ]
    pipe = subprocess.PIPE
    begun = [subprocess.Popen([*command, str(path)], stdout=pipe, stderr=pipe) for path in paths]
    try:
        for one in begun:
            _, told = one.communicate(timeout=FORMAT_TIMEOUT_S)
            if one.returncode:
                raise RuntimeError(f"Kafka's storage was not formatted: {told.decode(errors='replace')}")
    finally:
        for one in begun:
            one.kill()
            one.wait()


def _answers(address: str, brokers: int) -> bool:
    from confluent_kafka import KafkaException  # here, so that the settings can be read without the client
    from confluent_kafka.admin import AdminClient

    try:
        found = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=2)
    except KafkaException:
        return False
    return len(found.brokers) == brokers
