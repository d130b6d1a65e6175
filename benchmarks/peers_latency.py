"""How long until a one-row append reaches a tailing reader of Strom, of Fluss and of Kafka?

Expected: Kafka is the quickest, well below a millisecond: two hops through a warm JVM and C clients, linger 0. Strom by
its own client takes about twice that: its server and both clients are Python. By pyfluss Strom and Fluss are within a
factor of two of each other; its flush and its poll cost more than either server. A Fluss of one copy does not wake a
fetch that waits for rows: its reader waits a millisecond at most and asks again, and the client's default of half a
second is beside it; Strom's reader by pyfluss has the default. Writer and reader are processes of their own; the next
row is appended when the last one is acknowledged (back to back) or 2 ms after that. Nobody syncs.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import fluss
import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import strom
from benchmarks.harness import Answer, Bench, Samples
from benchmarks.kafka_ways import client
from benchmarks.peer_systems import FLUSS, OWN, PEER, Systems, running, versions

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
KAFKA, FLUSS_AS_IT_COMES = "Kafka", "Fluss by pyfluss with its default wait"
WAIT_MS = 1
"""How long a fetch from Fluss may wait: with one copy nothing wakes it before its time is over (apache/fluss#777)."""
RHYTHMS = {"back to back": 0.0, "2 ms apart": 0.002}
PAIRS = ((PEER, FLUSS), (OWN, FLUSS), (OWN, KAFKA))
WARM_UP = 300
"""The servers compile what they run: before that they are several times slower."""
TIMEOUT_S = 30.0
RUN_TIMEOUT_S = 45.0
"""Seen once: writer and reader of Fluss by pyfluss stood still for minutes while ZooKeeper and the tablet server were
busy. Why is not known; such a run is begun anew."""

Stamps = list[int]


def measure(bench: Bench) -> list[Answer]:
    count = bench.size(full=1500, quick=100)
    with running(bench.folder) as systems:
        answers = []
        for number, (words, pause) in enumerate(RHYTHMS.items()):
            pairs = PAIRS if pause else (*PAIRS, (PEER, FLUSS_AS_IT_COMES))
            found = {
                name: _tried(f"{name.split()[0].lower()}{len(name)}_{number}", name, systems, count, pause)
                for name in dict.fromkeys(one for pair in reversed(pairs) for one in reversed(pair))
            }
            answers += [one for pair in pairs for one in _pair(words, found, *pair)]
    return answers


def _pair(words: str, found: dict[str, Samples], ours: str, theirs: str) -> list[Answer]:
    """The median and the slowest hundredth."""
    figures = {"median": (found[ours], found[theirs]), "p99": (_p99(found[ours]), _p99(found[theirs]))}
    return [
        Answer(
            question=f"one row to a tailing reader, {which} ({words}): {ours} beside {theirs}",
            figure=figure,
            reference=reference,
            reference_name=theirs,
            ratio=figure.median / reference.median,
            notes=versions(),
        )
        for which, (figure, reference) in figures.items()
    ]


def _p99(samples: Samples) -> Samples:
    return Samples((statistics.quantiles(samples.values, n=100)[98],), samples.unit, 0.0, 0.0)


def _tried(name: str, way: str, systems: Systems, count: int, pause_s: float) -> Samples:
    """Once more, with another table, when it came to a standstill."""
    try:
        return _latencies(name, way, systems, count, pause_s)
    except (TimeoutError, subprocess.TimeoutExpired):
        return _latencies(f"{name}_again", way, systems, count, pause_s)


def _latencies(name: str, way: str, systems: Systems, count: int, pause_s: float) -> Samples:
    """Microseconds from just before the append until the row is in the reader's hands."""
    total = count + WARM_UP
    address = systems.address_of(way)
    writer = {KAFKA: _by_kafka, OWN: _by_strom}.get(way, _by_pyfluss)
    root = Path(__file__).parent.parent

    def reading() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "benchmarks.peers_latency", way, address, name, str(total)]
        reader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        readers.append(reader)
        return reader

    readers: list[subprocess.Popen[str]] = []
    try:
        sent = writer(address, name, total, pause_s, reading)
        told, _ = readers[0].communicate(timeout=TIMEOUT_S)
    finally:
        for one in readers:
            one.kill()
            one.communicate()
    arrived = json.loads(told)
    waits = [(after - before) / 1e3 for before, after in zip(sent, arrived, strict=True)][WARM_UP:]
    return Samples(tuple(waits), "µs", sum(waits) / 1e6, 0.0)


# --- writers: make the table, let the reader begin, append one row after the other -------------------------------


def _by_strom(address: str, name: str, count: int, pause_s: float, reading: Callable[[], object]) -> Stamps:
    rows = [pa.record_batch([[i], ["x"], [float(i)]], schema=SCHEMA) for i in range(count)]
    sent = []
    with strom.connect(address) as db:
        table = db.create_table(name, SCHEMA)
        reading()
        with table.writer() as writer:
            for row in rows:
                sent.append(time.monotonic_ns())
                writer.append(row)
                writer.flush()
                if pause_s:
                    time.sleep(pause_s)
    return sent


def _by_pyfluss(address: str, name: str, count: int, pause_s: float, reading: Callable[[], object]) -> Stamps:
    async def main() -> Stamps:
        sent = []
        config = fluss.Config({"bootstrap.servers": address})
        async with await fluss.FlussConnection.create(config) as peer:
            path = fluss.TablePath("fluss", name)
            descriptor = fluss.TableDescriptor(fluss.Schema(SCHEMA), bucket_count=1)
            await peer.get_admin().create_table(path, descriptor)
            writer = (await peer.get_table(path)).new_append().create_writer()
            reading()
            for i in range(count):
                row = (i, "x", float(i))
                sent.append(time.monotonic_ns())
                writer.append(row)
                await writer.flush()
                if pause_s:
                    time.sleep(pause_s)  # noqa: ASYNC251 - nothing else runs here
        return sent

    return asyncio.run(asyncio.wait_for(main(), RUN_TIMEOUT_S))


def _by_kafka(address: str, name: str, count: int, pause_s: float, reading: Callable[[], object]) -> Stamps:
    where = client(address)
    admin = AdminClient(where)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    producer = Producer({**where, "acks": 1, "linger.ms": 0})
    producer.list_topics(name, timeout=TIMEOUT_S)
    reading()
    sent = []
    for i in range(count):
        row = json.dumps({"id": i, "name": "x", "value": float(i)}).encode()
        sent.append(time.monotonic_ns())
        producer.produce(name, row)
        producer.flush()
        if pause_s:
            time.sleep(pause_s)
    return sent


# --- readers, each in a process of its own: tail, and note when each row came ------------------------------------


def _read_strom(address: str, name: str, count: int) -> Stamps:
    arrived, left = [0] * count, count
    with strom.connect(address) as db, db.table(name).tail(start="earliest") as tail:
        print("ready", flush=True)
        for batch in tail:
            left -= _note(arrived, batch.data.column("id").to_pylist())
            if not left:
                break
    return arrived


def _read_pyfluss(address: str, name: str, count: int, wait_ms: int | None = None) -> Stamps:
    async def main() -> Stamps:
        arrived, left = [0] * count, count
        config = fluss.Config({"bootstrap.servers": address})
        if wait_ms is not None:
            config.scanner_log_fetch_wait_max_time_ms = wait_ms
        async with await fluss.FlussConnection.create(config) as peer:
            table = await peer.get_table(fluss.TablePath("fluss", name))
            scanner = await table.new_scan().create_record_batch_log_scanner()
            scanner.subscribe(bucket_id=0, start_offset=0)
            print("ready", flush=True)
            while left:
                for one in await scanner.poll_record_batch(1000):
                    left -= _note(arrived, one.batch.column("id").to_pylist())
        return arrived

    return asyncio.run(main())


def _read_kafka(address: str, name: str, count: int) -> Stamps:
    arrived, left = [0] * count, count
    consumer = Consumer({**client(address), "group.id": "tail", "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, 0, 0)])
    print("ready", flush=True)
    while left:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            left -= _note(arrived, [json.loads(message.value())["id"]])
    consumer.close()
    return arrived


def _note(arrived: Stamps, numbers: list[int]) -> int:
    now = time.monotonic_ns()
    for number in numbers:
        arrived[number] = now
    return len(numbers)


if __name__ == "__main__":
    _way, _address, _name, _count = sys.argv[1:]
    _reader = {
        KAFKA: _read_kafka,
        OWN: _read_strom,
        FLUSS: partial(_read_pyfluss, wait_ms=WAIT_MS),
    }.get(_way, _read_pyfluss)
    print(json.dumps(_reader(_address, _name, int(_count))), flush=True)
