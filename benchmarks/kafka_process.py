"""A real Kafka: one process that is broker and controller (KRaft), without a sync of its own, as it comes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
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
FORMAT_TIMEOUT_S = 60


@dataclass(frozen=True)
class KafkaServer:
    """A broker that answers."""

    address: str
    pids: list[int]
    started_in_s: float
    """From the command to the first answer; its storage was formatted before."""


@contextmanager
def kafka_server(folder: Path) -> Iterator[KafkaServer]:
    """A fresh one in this folder."""
    folder.mkdir(parents=True)
    port, controller = free_ports(2)
    path = written(folder / "server.properties", settings(folder / "data", port, controller), "=")
    _format(path)
    began = time.monotonic()
    broker = JavaProcess(peer_jars.KAFKA, "kafka.Kafka", [str(path)], folder, [*HEAP, *COLLECTOR])
    try:
        address = f"{LOOPBACK}:{port}"
        await_true(lambda: accepts(port) and _answers(address), [broker])
        yield KafkaServer(address, [broker.process.pid], time.monotonic() - began)
    finally:
        broker.end()


def settings(data: Path, port: int, controller: int) -> dict[str, object]:
    """One node, loopback only; what is not said is as Kafka ships it."""
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": data,
        "message.max.bytes": MESSAGE_BYTES_MAX,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
    }


def _format(path: Path) -> None:
    """A node does not start on storage that nobody gave a cluster's name."""
    command = [peer_jars.java(), "-cp", peer_jars.class_path(peer_jars.KAFKA), "kafka.tools.StorageTool"]
    subprocess.run(
        [*command, "format", "--cluster-id", CLUSTER_ID, "--config", str(path)],
        check=True,
        capture_output=True,
        timeout=FORMAT_TIMEOUT_S,
    )


def _answers(address: str) -> bool:
    from confluent_kafka import KafkaException  # here, so that the settings can be read without the client
    from confluent_kafka.admin import AdminClient

    try:
        found = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=2)
    except KafkaException:
        return False
    return bool(found.brokers)
