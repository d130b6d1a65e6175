"""Ways to a log in Kafka, by librdkafka: a message for every row, as Kafka is used, or one for a batch of Arrow.

A row is 84 packed bytes that were packed before the clock ran, and that numpy turns into columns in one step: kinder to
Kafka than JSON or Avro would be, whose rows take longer to write and to read. Acknowledged by the leader (``acks=1``),
synced by nobody, as Strom's ``os`` and as Fluss do it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import pyarrow as pa
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka_process import MESSAGE_BYTES_MAX
from benchmarks.packed_rows import packed, unpacked
from benchmarks.peer_ways import Batches
from benchmarks.workload import SMALL_SCHEMA

PRODUCING = {
    "acks": 1,
    "compression.type": "none",
    "message.max.bytes": MESSAGE_BYTES_MAX,
    "queue.buffering.max.messages": 2_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
}
CONSUMING = {
    "group.id": "measuring",
    "enable.auto.commit": False,
    "fetch.message.max.bytes": MESSAGE_BYTES_MAX,
    "queued.max.messages.kbytes": 1_000_000,
    "queued.min.messages": 1_000_000,
    "fetch.wait.max.ms": 5,
}
"""As much ahead as it likes: its defaults are made for small messages and slower for large ones. A fetch at the
end waits no longer than that for more: the next scan's first fetch would stand behind it."""
AT_ONCE = 10_000
TIMEOUT_S = 30.0


def client(address: str) -> dict[str, object]:
    """What every client of a broker is given; a broker that is ended is no news."""
    return {"bootstrap.servers": address, "log_level": 2, "socket.nagle.disable": True}


class KafkaLog:
    """What both ways share: topics of one partition, a producer and a consumer that stay connected."""

    def __init__(self, address: str, copies: int = 1) -> None:
        """With several copies a message is acknowledged when all in sync have it."""
        where = client(address)
        self._admin = AdminClient(where)
        self._copies = copies
        self._producer = Producer({**where, **PRODUCING, **({"acks": "all"} if copies > 1 else {})})
        self._consumer = Consumer({**where, **CONSUMING})
        self._names = (f"{type(self).__name__.lower()}-{number}" for number in itertools.count())
        self._filled = ""
        self._messages = 0
        self._schema_rows = 0

    def append(self, batches: Batches) -> float:
        messages = self._encoded(batches)
        topic = self._topic()
        seconds = self._produce(topic, messages)
        self._check_arrived(topic, len(messages))
        self._admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        return seconds

    def fill(self, batches: Batches) -> None:
        messages = self._encoded(batches)
        self._filled, self._messages = self._topic(), len(messages)
        self._schema_rows = sum(batch.num_rows for batch in batches)
        self._produce(self._filled, messages)

    def scan(self, columns: Sequence[str] | None = None) -> float:
        began = time.perf_counter()
        found = pa.Table.from_batches(
            [batch for some in self._consumed() for batch in self._decoded(some, columns)]
        )
        seconds = time.perf_counter() - began
        assert found.num_rows == self._schema_rows, (found.num_rows, self._schema_rows)
        return seconds

    def consume(self) -> float:
        """Seconds until every message is in this process, and nothing is made of it."""
        began = time.perf_counter()
        count = sum(map(len, self._consumed()))
        seconds = time.perf_counter() - began
        assert count == self._messages, (count, self._messages)
        return seconds

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()

    def _encoded(self, batches: Batches) -> list[bytes]:
        raise NotImplementedError

    def _decoded(self, messages: list[Message], columns: Sequence[str] | None) -> list[pa.RecordBatch]:
        raise NotImplementedError

    def _topic(self) -> str:
        name = next(self._names)
        made = NewTopic(name, 1, self._copies, config={"max.message.bytes": str(MESSAGE_BYTES_MAX)})
        self._admin.create_topics([made])[name].result(TIMEOUT_S)
        self._producer.list_topics(
            name, timeout=TIMEOUT_S
        )  # the producer knows its leader before the clock runs
        return name

    def _produce(self, topic: str, messages: list[bytes]) -> float:
        produce = self._producer.produce
        began = time.perf_counter()
        for message in messages:
            produce(topic, message)
        left = self._producer.flush(TIMEOUT_S)
        seconds = time.perf_counter() - began
        assert left == 0, f"{left} messages were not acknowledged"
        return seconds

    def _check_arrived(self, topic: str, count: int) -> None:
        _, high = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
        assert high == count, (high, count)

    def _consumed(self) -> list[list[Message]]:
        self._consumer.assign([TopicPartition(self._filled, 0, 0)])
        found, count = [], 0
        deadline = time.monotonic() + TIMEOUT_S
        while count < self._messages and time.monotonic() < deadline:
            some = self._consumer.consume(min(AT_ONCE, self._messages - count), 1.0)
            count += len(some)
            found.append(some)
        self._consumer.unassign()
        return found


class KafkaRows(KafkaLog):
    """A message is a row."""

    def _encoded(self, batches: Batches) -> list[bytes]:
        return [message for batch in batches for message in packed(batch)]

    def _decoded(self, messages: list[Message], columns: Sequence[str] | None) -> list[pa.RecordBatch]:
        return [unpacked([message.value() for message in messages], columns)]


class KafkaArrow(KafkaLog):
    """A message is a batch of rows, as an Arrow IPC message."""

    def _encoded(self, batches: Batches) -> list[bytes]:
        return [batch.serialize().to_pybytes() for batch in batches]

    def _decoded(self, messages: list[Message], columns: Sequence[str] | None) -> list[pa.RecordBatch]:
        found = [pa.ipc.read_record_batch(pa.py_buffer(one.value()), SMALL_SCHEMA) for one in messages]
        return [batch.select(list(columns)) for batch in found] if columns else found
