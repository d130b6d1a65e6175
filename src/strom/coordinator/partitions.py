"""Creating and dropping partitions, by hand or by time.

A partition is named by its values. Its id is unique among all tables and never reused, so dropping and recreating a
name never mixes rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.entries import encode_number, encode_partition
from strom.coordinator.lake import drop_from_lake, puts_of
from strom.coordinator.new_copies import buckets_in, delete_steps, new_entries, put_steps
from strom.coordinator.placement import leaders
from strom.coordinator.plan import CommitStep, UpdatePlan
from strom.coordinator.tables import in_steps
from strom.errors import InvalidPartition, PartitionExists, TableNotPartitioned, TooManyPartitions
from strom.metadata.changes import Delete, Exists, Put, Requirement, Update
from strom.model import properties
from strom.model.auto_partition import AutoPartition
from strom.model.filters.partition_pruning import check_texts
from strom.model.lake.lake import LakeKey
from strom.model.partitions import check_spec, matches, partition_name, values_of
from strom.model.table import Partition, TableEntry, TablePath


@dataclass(frozen=True, slots=True)
class AutoPartitioned:
    """What the passing of time did to a table."""

    created: tuple[Partition, ...] = ()
    dropped: tuple[Partition, ...] = ()


def create_partition(
    catalog: Catalog,
    path: TablePath,
    values: Mapping[str, str],
    *,
    ignore_if_exists: bool = False,
    now_ms: int,
    alive: Collection[int] | None = None,
) -> UpdatePlan[Partition]:
    """A new partition, given a value for each partition key. ``alive``: in a cluster, who seems to live."""
    table = partitioned_table(catalog, path)
    partition_keys = table.description.partition_keys
    row = values_of(values, partition_keys)
    check_texts(partition_keys, row, [table.schema.column(key).type for key in partition_keys])
    name = partition_name(row)
    existing = catalog.find_partition(table.table_id, name)
    if existing is not None:
        if ignore_if_exists:
            return UpdatePlan(existing)
        raise PartitionExists(f"Table {path} already has partition {name!r}", table=str(path), partition=name)
    _check_room(catalog, table)
    _check_retention(table, row, now_ms)
    partitions = _new_partitions(catalog, table, [row], now_ms)
    before, create = _creation(catalog, table, partitions, alive)
    return in_steps(partitions[0], before, create)


def drop_partition(
    catalog: Catalog, path: TablePath, values: Mapping[str, str], *, ignore_if_not_exists: bool = False
) -> UpdatePlan[Partition | None]:
    """Remove a partition, and let the lake forget it too. Its id is never reused."""
    table = partitioned_table(catalog, path)
    name = partition_name(values_of(values, table.description.partition_keys))
    if ignore_if_not_exists and catalog.find_partition(table.table_id, name) is None:
        return UpdatePlan(None)
    partition = catalog.partition(table, name)
    key = keys.partition(table.table_id, partition.partition_id)
    requirements: list[Requirement] = [catalog.unchanged(key)]
    updates: list[Update] = [Delete(key)]
    record = drop_from_lake(catalog, table.table_id, name)
    if record is not None:
        requirements.append(catalog.unchanged(keys.lake(table.table_id)))
        updates += puts_of(catalog, record)
    later = delete_steps(catalog, buckets_in(table, partition.partition_id))
    return UpdatePlan(partition, requirements, updates, later=later)


def list_partitions(
    catalog: Catalog, path: TablePath, values: Mapping[str, str] | None = None
) -> list[Partition]:
    """The partitions of a table, by name; with ``values``, only those that have them."""
    table = partitioned_table(catalog, path)
    partition_keys, wanted = table.description.partition_keys, values or {}
    check_spec(wanted, partition_keys)
    found = catalog.partitions_of(table.table_id)
    return [partition for partition in found if matches(wanted, partition_keys, partition.values)]


def auto_partition(
    catalog: Catalog,
    table_id: int,
    *,
    now_ms: int,
    expire_ms: int | None = None,
    ends: Mapping[LakeKey, int] | None = None,
    alive: Collection[int] | None = None,
) -> UpdatePlan[AutoPartitioned]:
    """Create the partitions that are due and drop the expired ones, if the table asks for it.

    ``expire_ms``: the time to expire by, where that is not the clock's (which may have leapt). Never raises for a full
    table: it creates what there is room for, the earliest first. ``ends``: where the buckets of a table in the lake
    end; an expired partition stays until the lake holds all of it.
    """
    table = catalog.table_by_id(table_id)
    rule = (
        None if table is None else properties.auto_partition(table.description.properties, table.description)
    )
    if table is None or rule is None:
        return UpdatePlan(AutoPartitioned())
    existing = {partition.name: partition for partition in catalog.partitions_of(table_id)}
    plan = rule.plan(now_ms, existing)
    old = plan.drop if expire_ms is None else rule.plan(expire_ms, existing).drop
    dropped = tuple(
        existing[name] for name in old if not _awaited(catalog, table, existing[name], ends or {})
    )
    room = max(0, catalog.limits.partition_num_max - len(existing) + len(dropped))
    created = _new_partitions(catalog, table, [(name,) for name in plan.create[:room]], now_ms)
    result = AutoPartitioned(created, dropped)
    before, create = _creation(catalog, table, created, alive)
    deletes = [Delete(keys.partition(table_id, partition.partition_id)) for partition in dropped]
    made = in_steps(result, before, CommitStep(create.requirements, [*deletes, *create.updates]))
    gone = [bucket for partition in dropped for bucket in buckets_in(table, partition.partition_id)]
    return replace(made, later=delete_steps(catalog, gone))


def is_due(catalog: Catalog, table_id: int, *, now_ms: int, expire_ms: int | None = None) -> bool:
    """Whether a table has partitions to create or drop, without checking for room or for the lake."""
    table = catalog.table_by_id(table_id)
    rule = (
        None if table is None else properties.auto_partition(table.description.properties, table.description)
    )
    if rule is None:
        return False
    names = [partition.name for partition in catalog.partitions_of(table_id)]
    plan = rule.plan(now_ms, names)
    return bool(plan.create or (plan.drop if expire_ms is None else rule.plan(expire_ms, names).drop))


def _awaited(catalog: Catalog, table: TableEntry, partition: Partition, ends: Mapping[LakeKey, int]) -> bool:
    """Whether rows of a partition may be missing in the lake; a bucket whose end is unknown counts as missing."""
    if not properties.lake_enabled(table.description.properties):
        return False
    record = catalog.lake_of(table.table_id)
    for bucket in range(table.bucket_count):
        end = ends.get(LakeKey(partition.partition_id, bucket))
        held = 0 if record is None else record.offset_of(partition.partition_id, bucket)
        if end is None or end > held:
            return True
    return False


def partitioned_table(catalog: Catalog, path: TablePath) -> TableEntry:
    """The table of this path, which must be partitioned."""
    table = catalog.table(path)
    if not table.partitioned:
        raise TableNotPartitioned(f"Table {path} has no partitions", table=str(path))
    return table


def _check_room(catalog: Catalog, table: TableEntry) -> None:
    count, count_max = catalog.partition_count(table.table_id), catalog.limits.partition_num_max
    if count >= count_max:
        raise TooManyPartitions(
            f"Table {table.path} has {count} partitions, max.partition.num is {count_max}: drop some first",
            table=str(table.path),
            partitions=count,
            partitions_max=count_max,
        )


def _check_retention(table: TableEntry, row: Sequence[str], now_ms: int) -> None:
    """Refuse a partition that retention would drop at once, and its rows with it."""
    rule: AutoPartition | None = properties.auto_partition(table.description.properties, table.description)
    if rule is not None and rule.expired(row[rule.key_position], now_ms):
        raise InvalidPartition(
            f"Partition {partition_name(row)!r} of {table.path} is older than its retention "
            f"(table.auto-partition.num-retention = {rule.retention}) and would be dropped at once",
            table=str(table.path),
        )


def _new_partitions(
    catalog: Catalog, table: TableEntry, rows: Iterable[tuple[str, ...]], now_ms: int
) -> tuple[Partition, ...]:
    first = catalog.next_id(keys.PARTITION_COUNTER)
    return tuple(
        Partition(
            partition_id=partition_id,
            table_id=table.table_id,
            name=partition_name(row),
            values=row,
            leaders=()
            if catalog.limits.replicated
            else leaders(partition_id, table.bucket_count, catalog.servers),
            created_ms=now_ms,
        )
        for partition_id, row in enumerate(rows, first)
    )


def _creation(
    catalog: Catalog, table: TableEntry, partitions: Sequence[Partition], alive: Collection[int] | None
) -> tuple[list[CommitStep], CommitStep]:
    """What comes before new partitions, and what makes them.

    No partition was added meanwhile (the counter also guards names and the limit), and the table still exists.
    """
    unchanged = [catalog.unchanged(keys.PARTITION_COUNTER)]
    puts = [
        Put(keys.partition(one.table_id, one.partition_id), encode_partition(one, epoch=0))
        for one in partitions
    ]
    exists: list[Requirement] = [Exists(keys.table(table.table_id))]
    if not partitions:
        return [], CommitStep([*exists, *unchanged], ())
    counter = Put(keys.PARTITION_COUNTER, encode_number(partitions[-1].partition_id + 1))
    before = [CommitStep(unchanged, [counter])]
    if catalog.limits.replicated:
        ids = [one.partition_id for one in partitions]
        before += put_steps(catalog, new_entries(catalog, table, ids, alive))
    return before, CommitStep(exists, puts)
