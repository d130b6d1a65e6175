"""Any sequence of commands, on the real catalog and on a dict: the same answers, also after a restart.

The reference knows nothing of stores, keys or versions: databases are dicts of tables, tables are dicts of
partitions. Every id that was ever given out is remembered, and none may come back.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.house import NOW_MS, House, path
from strom.coordinator import commands
from strom.coordinator.alter import Alteration, NewColumn
from strom.coordinator.coordinator import Coordinator
from strom.coordinator.limits import DecisionLimits
from strom.coordinator.partitions import list_partitions
from strom.errors import Refused
from strom.metadata.embedded import EmbeddedStore
from strom.metadata.memory import MemoryStore
from strom.metadata.store import MetadataStore
from strom.model import types
from strom.runtime.files import LocalFiles

DATABASES = st.sampled_from(["fluss", "a", "b"])
TABLES = st.sampled_from(["t", "u"])
DAYS = st.sampled_from(["mon", "tue", "wed"])
FLAGS = st.booleans()
MEMORY = "/dev/shm"
"""Hundreds of restarts: in memory where there is such a folder."""
LIMITS = DecisionLimits(partition_num_max=2, bucket_num_max=3)


class TableModel:
    """A table as the reference knows it."""

    def __init__(self, table_id: int, *, partitioned: bool, buckets: int) -> None:
        self.table_id = table_id
        self.partitioned = partitioned
        self.buckets = buckets
        self.columns = ["id", "day", "region", "price"]
        self.schemas = 1
        self.custom: dict[str, str] = {}
        self.partitions: dict[str, int] = {}


class CatalogMachine(RuleBasedStateMachine):
    """The catalog on a store in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.databases: dict[str, dict[str, TableModel]] = {"fluss": {}}
        self.table_ids: set[int] = set()
        self.partition_ids: set[int] = set()
        self.writer_ids: set[int] = set()
        self.store = self.open_store()
        self.house = House(self.store, LIMITS)

    def open_store(self) -> MetadataStore:
        return MemoryStore()

    def reopen_store(self) -> MetadataStore:
        return self.store

    def outcome(self, command: Any, *arguments: Any, **named: Any) -> Any:
        """The result, or the name of the refusal."""
        try:
            return self.house.do(command, *arguments, **named)
        except Refused as error:
            return type(error).__name__

    def find(self, database: str, table: str) -> TableModel | None:
        return self.databases.get(database, {}).get(table)

    @initialize()
    def start_with_something(self) -> None:
        self.create_database("a", ignore=False)
        self.create_table("a", "t", partitioned=True, buckets=2, ignore=False)

    @rule(name=DATABASES, ignore=FLAGS)
    def create_database(self, name: str, ignore: bool) -> None:
        found = self.outcome(commands.create_database, name, ignore_if_exists=ignore, now_ms=NOW_MS)
        assert found == ("DatabaseExists" if name in self.databases and not ignore else None)
        self.databases.setdefault(name, {})

    @rule(name=DATABASES, ignore=FLAGS, cascade=FLAGS)
    def drop_database(self, name: str, ignore: bool, cascade: bool) -> None:
        found = self.outcome(commands.drop_database, name, ignore_if_not_exists=ignore, cascade=cascade)
        if name not in self.databases:
            assert found == (None if ignore else "DatabaseNotFound")
        elif name == "fluss":
            assert found == "InvalidDatabase"
        elif self.databases[name] and not cascade:
            assert found == "DatabaseNotEmpty"
        else:
            assert found is None
            del self.databases[name]

    @rule(database=DATABASES, name=TABLES, partitioned=FLAGS, buckets=st.integers(1, 4), ignore=FLAGS)
    def create_table(self, database: str, name: str, partitioned: bool, buckets: int, ignore: bool) -> None:
        keys = ("day",) if partitioned else ()
        try:
            found: Any = self.house.table(
                f"{database}.{name}", buckets=buckets, partition_by=keys, ignore_if_exists=ignore
            )
        except Refused as error:
            found = type(error).__name__
        known = self.find(database, name)
        if database not in self.databases:
            assert found == "DatabaseNotFound"
        elif known is not None:
            assert found == "TableExists" if not ignore else found.table_id == known.table_id
        elif buckets > 3:
            assert found == "TooManyBuckets"
        else:
            assert found.table_id not in self.table_ids
            self.table_ids.add(found.table_id)
            made = TableModel(found.table_id, partitioned=partitioned, buckets=buckets)
            self.databases[database][name] = made

    @rule(database=DATABASES, name=TABLES, ignore=FLAGS)
    def drop_table(self, database: str, name: str, ignore: bool) -> None:
        found = self.outcome(commands.drop_table, path(f"{database}.{name}"), ignore_if_not_exists=ignore)
        if self.find(database, name) is None:
            assert found == (None if ignore else "TableNotFound")
        else:
            assert found.table_id == self.databases[database].pop(name).table_id

    @rule(
        database=DATABASES,
        name=TABLES,
        column=st.sampled_from(["x", "y", "price"]),
        value=st.sampled_from("12"),
    )
    def alter_table(self, database: str, name: str, column: str, value: str) -> None:
        alteration = Alteration((NewColumn(column, types.parse("int")),), {"k": value})
        found = self.outcome(commands.alter_table, path(f"{database}.{name}"), alteration, now_ms=NOW_MS)
        known = self.find(database, name)
        if known is None:
            assert found == "TableNotFound"
        elif column in known.columns:
            assert found == "InvalidAlter"
        else:
            known.columns.append(column)
            known.schemas += 1
            known.custom["k"] = value

    @rule(database=DATABASES, name=TABLES, day=DAYS, ignore=FLAGS)
    def create_partition(self, database: str, name: str, day: str, ignore: bool) -> None:
        where = path(f"{database}.{name}")
        found = self.outcome(
            commands.create_partition, where, {"day": day}, ignore_if_exists=ignore, now_ms=NOW_MS
        )
        known = self.find(database, name)
        if known is None:
            assert found == "TableNotFound"
        elif not known.partitioned:
            assert found == "TableNotPartitioned"
        elif day in known.partitions:
            assert found == "PartitionExists" if not ignore else found.partition_id == known.partitions[day]
        elif len(known.partitions) == 2:
            assert found == "TooManyPartitions"
        else:
            assert found.partition_id not in self.partition_ids
            self.partition_ids.add(found.partition_id)
            known.partitions[day] = found.partition_id

    @rule(database=DATABASES, name=TABLES, day=DAYS, ignore=FLAGS)
    def drop_partition(self, database: str, name: str, day: str, ignore: bool) -> None:
        where = path(f"{database}.{name}")
        found = self.outcome(commands.drop_partition, where, {"day": day}, ignore_if_not_exists=ignore)
        known = self.find(database, name)
        if known is None:
            assert found == "TableNotFound"
        elif not known.partitioned:
            assert found == "TableNotPartitioned"
        elif day not in known.partitions:
            assert found == (None if ignore else "PartitionNotFound")
        else:
            assert found.partition_id == known.partitions.pop(day)

    @rule(count=st.integers(1, 5))
    def allocate_writer_ids(self, count: int) -> None:
        block = self.house.do(commands.allocate_writer_ids, count)
        assert len(block) == count
        assert self.writer_ids.isdisjoint(block)
        self.writer_ids.update(block)

    @rule(server_ids=st.sets(st.integers(0, 3), min_size=1))
    def change_servers(self, server_ids: set[int]) -> None:
        self.house.servers(*server_ids)
        self.house.do(commands.reassign_leaders, sorted(server_ids))
        catalog = self.house.catalog
        assert set(catalog.servers) == server_ids
        for table in catalog.all_tables():
            led = [table, *catalog.partitions_of(table.table_id)]
            assert all(set(one.leaders) <= server_ids for one in led)
            assert [len(one.leaders) for one in led[table.partitioned :]] == [table.bucket_count] * (
                len(led) - table.partitioned
            )

    @rule()
    def restart(self) -> None:
        self.store = self.reopen_store()
        self.house = House(self.store, LIMITS)

    @invariant()
    def the_catalog_is_the_reference(self) -> None:
        catalog = self.house.catalog
        assert catalog.databases() == sorted(self.databases)
        for database, tables in self.databases.items():
            assert catalog.tables_of(database) == sorted(tables)
            for name, known in tables.items():
                table = catalog.table(path(f"{database}.{name}"))
                assert (table.table_id, table.bucket_count) == (known.table_id, known.buckets)
                assert list(table.schema.names) == known.columns
                assert [schema.schema_id for schema in table.schemas] == list(range(1, known.schemas + 1))
                assert table.description.custom_properties == known.custom
                if known.partitioned:
                    partitions = list_partitions(catalog, table.path)
                    assert {one.name: one.partition_id for one in partitions} == known.partitions

    @invariant()
    def a_fresh_look_sees_the_same(self) -> None:
        grown, fresh = self.house.catalog, Coordinator(self.store, LIMITS).catalog
        assert (grown._tables, grown._partitions_of) == (fresh._tables, fresh._partitions_of)
        assert (grown._ids, grown._schemas, grown._counters) == (fresh._ids, fresh._schemas, fresh._counters)


class EmbeddedCatalogMachine(CatalogMachine):
    """The same on SQLite, where a restart reopens the files."""

    def open_store(self) -> MetadataStore:
        self.folder = tempfile.mkdtemp(prefix="strom-", dir=MEMORY if Path(MEMORY).is_dir() else None)
        return EmbeddedStore.open(LocalFiles(), self.folder, owner=True)

    def reopen_store(self) -> MetadataStore:
        self.store.close()
        store = EmbeddedStore.open(LocalFiles(), self.folder, owner=True)
        assert store.notice is None
        return store

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)


TestCatalog = pytest.mark.slow(CatalogMachine.TestCase)
TestCatalog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

TestEmbeddedCatalog = pytest.mark.slow(EmbeddedCatalogMachine.TestCase)
TestEmbeddedCatalog.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
