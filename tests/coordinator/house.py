"""The small language of the coordinator's tests: a coordinator on a store in memory, and tables to put into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from strom.coordinator import commands
from strom.coordinator.catalog import ListenerAddress, ServerEntry
from strom.coordinator.coordinator import Coordinator
from strom.coordinator.limits import DecisionLimits
from strom.metadata.memory import MemoryStore
from strom.metadata.store import MetadataStore
from strom.model.schema import Schema
from strom.model.table import Partition, TableDescription, TableEntry, TablePath

NOW_MS = 1_700_000_000_000  # 2023-11-14, a Tuesday
COLUMNS = pa.schema(
    [("id", pa.int64()), ("day", pa.string()), ("region", pa.string()), ("price", pa.float64())]
)


def path(text: str) -> TablePath:
    return TablePath.parse(text)


def described(
    *,
    keys: tuple[str, ...] = (),
    partition_by: tuple[str, ...] = (),
    buckets: int | None = None,
    auto_increment: str | None = None,
    **more: Any,
) -> TableDescription:
    """``auto_increment``: the name of one more column, which is filled with numbers."""
    columns = COLUMNS if auto_increment is None else COLUMNS.append(pa.field(auto_increment, pa.int64()))
    schema = Schema.from_arrow(columns, keys)
    if auto_increment is not None:
        schema = replace(schema, auto_increment=(auto_increment,))
    return TableDescription(schema, partition_keys=partition_by, bucket_count=buckets, **more)


class House:
    """A coordinator; every call is one command."""

    def __init__(self, store: MetadataStore | None = None, limits: DecisionLimits | None = None) -> None:
        self.store = store or MemoryStore()
        self.coordinator = Coordinator(self.store, limits)
        self.do(commands.bootstrap, now_ms=NOW_MS)

    @property
    def catalog(self) -> Any:
        return self.coordinator.refresh()

    def do(self, command: Any, *arguments: Any, **named: Any) -> Any:
        return self.coordinator.perform(command, *arguments, **named)

    def servers(self, *server_ids: int) -> None:
        for server_id in server_ids:
            self.do(
                commands.register_server,
                ServerEntry(server_id, {"CLIENT": ListenerAddress("h", 9000 + server_id)}),
            )

    def database(self, name: str, **named: Any) -> None:
        self.do(commands.create_database, name, now_ms=NOW_MS, **named)

    def table(self, name: str, *, ignore_if_exists: bool = False, **description: Any) -> TableEntry:
        made: TableEntry = self.do(
            commands.create_table,
            path(name),
            described(**description),
            now_ms=NOW_MS,
            ignore_if_exists=ignore_if_exists,
        )
        return made

    def partition(self, name: str, values: Mapping[str, str], **named: Any) -> Partition:
        made: Partition = self.do(commands.create_partition, path(name), values, now_ms=NOW_MS, **named)
        return made
