"""The driver's part of writing: publish what the tasks staged, or free it if it cannot have been published.

Spark calls ``commit`` and, if that fails, ``abort`` in separate processes that share only the driver's machine. A
commit whose answer was lost may have been decided, and then its stages are needed. So a commit leaves a mark before it
asks, and an abort that finds the mark frees nothing: those stages expire with their lease.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from strom.api.staging import free, publish
from strom.client.write.decision import Committed, Sink
from strom.client.write.staging import StageFact
from strom.errors import PartitionNotFound, Refused
from strom.runtime.private_folder import private_folder
from strom.spark.connect import connections
from strom.spark.sink.task_writer import StagedTask, check_one_table
from strom.spark.sink.write_options import WriteOptions


def publish_all(
    options: WriteOptions,
    sink: Sink,
    epoch: int,
    table_id: int,
    messages: Sequence[StagedTask],
    *,
    overwrite: bool,
) -> Committed:
    """One decision for everything that all tasks staged."""
    check_one_table(messages)
    database = connections.database(options.server)
    facts = [fact for message in messages for fact in message.facts]
    overwrites = _overwrites(options, table_id, facts) if overwrite else []
    mark = _mark(sink, epoch)
    mark.touch()
    try:
        committed = publish(database, sink, epoch, [table_id], facts, overwrites=overwrites)
    except Refused:
        free(database, facts)
        mark.unlink(missing_ok=True)
        raise
    mark.unlink(missing_ok=True)
    for warning in committed.warnings:
        print(f"strom: WARNING: {warning}", file=sys.stderr)
    return committed


def free_all(options: WriteOptions, sink: Sink, epoch: int, messages: Sequence[StagedTask]) -> None:
    """Free what was staged, unless it may have been published."""
    if not _mark(sink, epoch).exists():
        facts = [fact for message in messages for fact in message.facts]
        free(connections.database(options.server), facts)


def _overwrites(
    options: WriteOptions, table_id: int, facts: Sequence[StageFact]
) -> list[tuple[int, int | None]]:
    if options.dynamic and connections.known_table(options.server, options.table, table_id).partition_by:
        return sorted({(table_id, fact.partition_id) for fact in facts}, key=str)
    if options.partition is None:
        return [(table_id, None)]
    table = connections.known_table(options.server, options.table, table_id)
    wanted = {key: str(value) for key, value in options.partition.items()}
    keys = table.partition_by
    if set(wanted) != set(keys):
        raise PartitionNotFound(
            f"{table.name} is partitioned by {', '.join(keys) or 'nothing'}, not by {', '.join(wanted)}"
        )
    values = tuple(wanted[key] for key in keys)
    return [(table_id, one.partition_id) for one in table.partitions() if one.values == values]


def _mark(sink: Sink, epoch: int) -> Path:
    name = hashlib.sha256(f"{sink.name}\0{epoch}".encode()).hexdigest()[:32]
    return private_folder("commits") / name
