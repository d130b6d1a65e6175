"""The loops of ``call_loop`` by the clients of Kafka and Fluss.

``python -m benchmarks.peer_call_loop kafka|pyfluss ADDRESS TABLE FILE``: one row, and its acknowledgement by all copies
in sync; idempotent, and sent as soon as it is there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import fluss
from confluent_kafka import Producer

from benchmarks.call_loop import Call, run
from benchmarks.kafka_ways import client
from benchmarks.packed_rows import packed
from benchmarks.workload import small_batch

GIVE_UP_MS = 300_000


def kafka(address: str, topic: str) -> Call:
    """A message."""
    producer = Producer(
        {
            **client(address),
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": GIVE_UP_MS,
        }
    )
    message = packed(small_batch(1))[0]

    def produce(number: int) -> None:
        producer.produce(topic, message)
        producer.flush()

    return produce


def pyfluss(address: str, name: str, runner: asyncio.Runner) -> Call:
    """A row."""
    row = small_batch(1)

    async def writer() -> tuple[fluss.FlussConnection, fluss.AppendWriter]:
        connection = await fluss.FlussConnection.create(fluss.Config({"bootstrap.servers": address}))
        table = await connection.get_table(fluss.TablePath("fluss", name))
        return connection, table.new_append().create_writer()

    connection, appending = runner.run(writer())

    async def write() -> None:
        appending.write_arrow_batch(row)
        await appending.flush()

    def append(number: int) -> None:
        assert connection is not None  # it lives as long as the loop
        runner.run(write())

    return append


def main(arguments: Sequence[str]) -> None:
    kind, address, name, path = arguments
    with asyncio.Runner() as runner:
        run(kafka(address, name) if kind == "kafka" else pyfluss(address, name, runner), path)


if __name__ == "__main__":
    main(sys.argv[1:])
