"""Which answers stand in the README and in the comparison: chosen here; the figures come from the kept runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Kept = Mapping[str, Mapping[str, Any]]
LESS_IS_BETTER = {"s", "ms", "µs", "ms p99", "bytes", "MB", "CPU s", "ms CPU"}


@dataclass(frozen=True)
class Row:
    """An answer that is shown: the question's file, a pattern for the answer, and what readers are told it is."""

    question: str
    pattern: str
    words: str
    beside: str | None = None
    """What it is measured beside, where the benchmark's own words are too short."""


ROWS: dict[str, tuple[Row, ...]] = {
    "log tables": (
        Row("log_append", r"\(os\)", "append, 10 k-row batches, durability `os`"),
        Row("log_append", r"\(group\)", "append, `group`: synced before it is acknowledged"),
        Row("log_scan", "full scan", "full scan to Arrow"),
        Row("log_projection", "50 %", "2 KB rows: columns that hold 50 % of the bytes"),
        Row("log_projection", "10 %", "… that hold 10 % of the bytes"),
        Row("log_partitions", "time", "1 of 20 partitions"),
        Row(
            "log_latency",
            r"\(os, back to back\)",
            "one row to a tail in another process, median",
            "asyncio echo",
        ),
        Row(
            "log_fairness",
            r"^small fetch.*p99$",
            "small fetch beside a full scan and a bulk load, p99",
            "idle",
        ),
        Row("log_restart", "restart", "restart after kill -9, seconds longer"),
        Row("log_memory", "memory", "server memory under load"),
    ),
    "primary-key tables": (
        Row(
            "keys_upserts",
            r"engine upserts, int64.*FULL, 10000.*batches, \S+ keys$",
            "engine upserts, int64 key, `FULL`",
        ),
        Row(
            "keys_upserts",
            r"engine upserts, int64.*WAL, 10000.*batches, \S+ keys$",
            "engine upserts, int64 key, `WAL`",
        ),
        Row("keys_served", "int64.*FULL", "upserts through client and server, `FULL`"),
        Row("keys_served", "int64.*WAL", "upserts through client and server, `WAL`"),
        Row("keys_peer_rows", "pyfluss", "rows as pyfluss encodes them", "RocksDB putting the same bytes"),
        Row("keys_lookup", r"median \(alone\)", "one lookup, median"),
        Row("keys_lookup_many", "int64", "`lookup_many` of 1,000 int64 keys"),
        Row("keys_scan", "scan", "scan of two columns of the live rows"),
        Row(
            "keys_beside",
            r"^p99 of lookups beside a full scan, bulk.*snapshots$",
            "lookup p99 beside scan, upserts, upkeep",
        ),
        Row("keys_restart", "int64", "opening a bucket from its snapshot"),
    ),
    "the lake": (
        Row("lake_tiering", "tier a log", "a round of a log on Spark `local[2]`"),
        Row("lake_changes", "how many times", "a round of changes of a primary-key table"),
        Row("lake_commits", "of a log", "commit time of a late round (log)"),
        Row("lake_commits", "primary-key", "commit time of a late round (primary key)"),
        Row("lake_union", "^sum.*a log", "SQL sum over lake and log"),
        Row(
            "lake_union", "a row is in", "a new row in a union read, median (ratio: the slowest of 50, in s)"
        ),
        Row("lake_spark", "sum.*a log.*table", "Spark's sum over lake and log, `strom.spark.table`"),
        Row("lake_spark", "sum.*a log.*catalog", "Spark's sum over lake and log, SQL catalog"),
        Row("lake_spark", "sum.*primary-key.*table$", "the same, primary-key table, `strom.spark.table`"),
        Row("lake_outside", "Polars", "Polars on the lake after 50 primary-key rounds"),
        Row("lake_outside", "PyIceberg.*primary", "PyIceberg on it (slow from the first dead row on)"),
        Row("lake_small_writes", "batches", "small batches, each acknowledged"),
        Row("lake_small_writes", "aggregations", "aggregations after them"),
    ),
    "Spark and joins": (
        Row("spark_read", "reads", "reading 10 columns"),
        Row("spark_catalog", "sum", "sum of one column by the SQL catalog"),
        Row("spark_write", "log table, uncompressed", "writing a log table, exactly once"),
        Row("spark_write", "primary-key", "writing a primary-key table, exactly once"),
        Row("spark_latency", "median", "a row from append to `foreachBatch`, median"),
        Row("join_lookup", "lookup join", "lookup join"),
        Row("join_delta", "times faster", "delta join"),
        Row("join_delta", "CPU", "delta join, CPU seconds"),
    ),
    "three copies, all servers on one machine": (
        Row(
            "cluster_pause",
            "writer.*is killed, median",
            "pause of a writer whose leader is killed, median, in s",
        ),
        Row("cluster_pause", "writer.*is killed, slowest", "… the slowest"),
        Row(
            "cluster_pause",
            "lookup loop.*is killed, slowest",
            "pause of lookups whose leader is killed, the slowest",
        ),
        Row(
            "cluster_pause",
            "writer.*is frozen, slowest",
            "pause of a writer whose leader is frozen, the slowest",
        ),
        Row("cluster_pause", "writer.*is cut off, slowest", "… is cut off from everybody, the slowest"),
        Row("cluster_pause", "writer.*hands over, slowest", "… is told to hand over, the slowest"),
        Row("cluster_append", r"\(os\)", "append, `acks` all, durability `os`"),
        Row("cluster_lookup", "one by one", "one lookup after the other"),
        Row("cluster_lookup", "in a call", "lookups of 1,000 keys in a call"),
        Row("cluster_replica", "new copy", "a new copy of a primary-key table"),
        Row("cluster_replica", "p99", "p99 of lookups while a copy is made"),
    ),
}

BESIDE_OTHERS: tuple[Row, ...] = (
    Row("lake_small_writes", "batches", "small batches, each acknowledged", "PyIceberg"),
    Row("lake_small_writes", "aggregations", "aggregations after them", "PyIceberg"),
    Row("keys_scan", "scan", "scan of two columns of the live rows", "RocksDB"),
    Row("keys_served", "int64.*WAL", "upserts, new rows in the changelog", "RocksDB get + put"),
    Row("keys_served", "int64.*FULL", "upserts, old and new rows", "RocksDB get + put"),
    Row("keys_lookup_many", "int64", "1,000 lookups in one call", "RocksDB multi-get"),
    Row("join_delta", "times faster", "join of two streams", "stream-stream join"),
    Row("lake_union", "^sum.*a log", "SQL sum over lake and log", "one Parquet copy"),
    Row("spark_read", "reads", "Spark reads all columns", "Spark on Parquet"),
    Row("log_scan", "full scan", "full scan to Arrow", "raw socket + decode"),
    Row("spark_catalog", "sum", "Spark sums one column", "Spark on Parquet"),
    Row("log_append", r"\(os\)", "append", "raw socket into a file"),
    Row("keys_lookup", r"median \(alone\)", "one lookup", "Redis GET"),
    Row("log_latency", r"\(os, back to back\)", "one row to a tailing reader", "asyncio echo"),
)

_BY_PYFLUSS = ": Strom by pyfluss beside Fluss by pyfluss$"


def _beside_brokers(question: str, pattern: str, words: str) -> tuple[Row, ...]:
    """A question about logs: the same client first, then each with its own."""
    return (
        Row(question, f"{pattern}.*{_BY_PYFLUSS}", f"{words}, both by pyfluss", "Fluss"),
        Row(question, pattern + ".*: Strom beside Fluss by pyfluss$", words, "Fluss by pyfluss"),
        Row(question, pattern + ".*: Strom beside Kafka, a message per row$", words, "Kafka, row messages"),
        Row(
            question, pattern + ".*: Strom beside Kafka, a message per Arrow", words, "Kafka, Arrow messages"
        ),
    )


BESIDE_BROKERS: tuple[Row, ...] = (
    *_beside_brokers("peers_append", "append", "append"),
    *_beside_brokers("peers_scan", "full scan", "full scan to Arrow"),
    Row("peers_scan", "beside Kafka, raw", "full scan to Arrow", "Kafka, rows not decoded"),
    *_beside_brokers("peers_scan", "two of ten", "two of ten columns"),
    Row("peers_latency", rf"median \(back.*{_BY_PYFLUSS}", "one row to a reader, both by pyfluss", "Fluss"),
    Row(
        "peers_latency",
        r"median \(back.*default wait$",
        "one row to a reader, by pyfluss",
        "Fluss, default wait",
    ),
    Row(
        "peers_latency",
        r"median \(back.*: Strom beside Fluss by pyfluss$",
        "one row to a reader",
        "Fluss by pyfluss",
    ),
    Row("peers_latency", r"median \(back.*: Strom beside Kafka", "one row to a reader", "Kafka"),
    Row("peers_latency", r"p99 \(back.*: Strom beside Kafka", "one row to a reader, p99", "Kafka"),
    Row("peers_keys", f"upserts.*{_BY_PYFLUSS}", "upserts, both by pyfluss", "Fluss"),
    Row("peers_keys", "upserts.*: Strom beside", "upserts", "Fluss by pyfluss"),
    Row("peers_keys", f"median.*{_BY_PYFLUSS}", "one lookup, both by pyfluss (it waits)", "Fluss"),
    Row("peers_footprint", "first ack.*Kafka", "start to the first row", "Kafka"),
    Row("peers_footprint", "first ack.*Fluss", "start to the first row", "Fluss"),
    Row("peers_footprint", "idle.*Kafka", "memory, idle", "Kafka"),
    Row("peers_footprint", "idle.*Fluss", "memory, idle", "Fluss"),
    Row("peers_footprint", "after.*Kafka", "memory after a load", "Kafka"),
    Row("peers_footprint", "after.*Fluss", "memory after a load", "Fluss"),
)
"""What ``make bench ONLY=peers`` measures beside the two brokers."""

BESIDE_CLUSTERS: tuple[Row, ...] = (
    *_beside_brokers("cluster_peers", "^append", "append"),
    Row("cluster_peers", "one-row.*beside Kafka", "one row until it is acknowledged, p99", "Kafka"),
    Row(
        "cluster_peers", "one-row.*beside Fluss", "one row until it is acknowledged, p99", "Fluss by pyfluss"
    ),
    Row("cluster_peers", "pause.*beside Kafka", "pause of a writer whose leader is killed", "Kafka"),
    Row(
        "cluster_peers", "pause.*beside Fluss", "pause of a writer whose leader is killed", "Fluss by pyfluss"
    ),
)
"""What ``make bench ONLY=cluster`` measures beside clusters of the two."""


def find(kept: Kept, row: Row) -> Mapping[str, Any] | None:
    """The answer that a row shows; None where no kept run has it. Of several the last: the largest size."""
    answers = kept.get(row.question, {}).get("answers", ())
    matching = [answer for answer in answers if re.search(row.pattern, answer["question"])]
    if row.question in ("spark_catalog", "keys_scan"):
        return matching[0] if matching else None  # the first is the one beside somebody else's
    return matching[-1] if matching else None


def missing(kept: Kept) -> list[Row]:
    """Rows for which nothing is kept."""
    return [row for row in _all() if find(kept, row) is None]


def better(answer: Mapping[str, Any]) -> float | None:
    """How many times better than the reference, whichever way the unit points; None without a reference."""
    figure, reference = answer["figure"], answer["reference"]
    if not reference or not figure["median"] or not reference["median"]:
        return None
    ratio = float(figure["median"]) / float(reference["median"])
    return 1 / ratio if figure["unit"] in LESS_IS_BETTER else ratio


def _all() -> Iterator[Row]:
    for rows in ROWS.values():
        yield from rows
    yield from BESIDE_OTHERS
    yield from BESIDE_BROKERS
    yield from BESIDE_CLUSTERS
