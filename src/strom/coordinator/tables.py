"""Creating and dropping tables: limits, defaults, and an id that is never reused."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.entries import encode_number, encode_table
from strom.coordinator.new_copies import (
    STEP_ENTRIES_MAX,
    buckets_of,
    check_copies,
    delete_steps,
    new_entries,
    put_steps,
)
from strom.coordinator.placement import leaders
from strom.coordinator.plan import CommitStep, UpdatePlan
from strom.errors import InvalidConfig, TableExists, TooManyBuckets
from strom.metadata.changes import Delete, Exists, Put, Requirement, Update
from strom.model import properties
from strom.model.aggregation import with_aggregates
from strom.model.key_properties import DELETE_BEHAVIOR, MERGE_ENGINE, delete_behavior
from strom.model.table import TableDescription, TableEntry, TablePath

REPLICATION_FACTOR = "table.replication.factor"
REPLICATION_FACTOR_MAX = 1
"""Copies of a bucket where all servers share one folder."""
DURABILITY = "table.durability"

KEY_FORMAT_VERSION = "table.kv.format-version"
KEY_FORMAT_VERSION_DEFAULT = "2"
BUCKET_RULE = "table.bucket.rule"
BUCKET_RULE_DEFAULT = "fluss-rust"
"""Pinned when the table is created: a key must always live in the same bucket, whoever writes it and whatever rules
come later."""

FIRST_SCHEMA_ID = 1

T = TypeVar("T")


def create_table(
    catalog: Catalog,
    path: TablePath,
    description: TableDescription,
    *,
    ignore_if_exists: bool = False,
    now_ms: int,
    alive: Collection[int] | None = None,
) -> UpdatePlan[TableEntry]:
    """A new table, log or primary-key, under an id that no table ever had.

    ``alive``: in a cluster, the servers that seem to live; None: all that are registered.
    """
    path.check()
    catalog.database(path.database)
    existing = catalog.find_table(path)
    if existing is not None:
        if ignore_if_exists:
            return UpdatePlan(existing)
        raise TableExists(
            f'Table {path} already exists; if_exists="ignore" (in SQL IF NOT EXISTS) accepts it as it is',
            table=str(path),
        )
    description = _completed(catalog, description)
    _check(catalog, path, description)
    table_id = catalog.next_id(keys.TABLE_COUNTER)
    assert description.bucket_count is not None
    table = TableEntry(
        table_id=table_id,
        path=path,
        description=description,
        schemas=(description.schema,),
        created_ms=now_ms,
        modified_ms=now_ms,
        leaders=()
        if description.partitioned or catalog.limits.replicated
        else leaders(table_id, description.bucket_count, catalog.servers),
    )
    reserve = CommitStep(
        [catalog.unchanged(keys.TABLE_COUNTER)], [Put(keys.TABLE_COUNTER, encode_number(table_id + 1))]
    )
    create = CommitStep(
        [Exists(keys.database(path.database)), catalog.unchanged(keys.name(path))],
        [
            Put(keys.name(path), encode_number(table_id)),
            Put(keys.table(table_id), encode_table(table, epoch=0)),
        ],
    )
    if not catalog.limits.replicated or description.partitioned:
        return in_steps(table, [reserve], create)
    return in_steps(table, [reserve, *put_steps(catalog, new_entries(catalog, table, [None], alive))], create)


def drop_table(
    catalog: Catalog, path: TablePath, *, ignore_if_not_exists: bool = False
) -> UpdatePlan[TableEntry | None]:
    """Remove a table with its partitions and schemas. Its id is never reused."""
    if ignore_if_not_exists and catalog.find_table(path) is None:
        return UpdatePlan(None)
    table = catalog.table(path)
    table_id = table.table_id
    requirements: list[Requirement] = [
        catalog.unchanged(keys.name(path)),
        catalog.unchanged(keys.table(table_id)),
        catalog.unchanged(keys.floor(table_id)),
        catalog.unchanged(keys.lake(table_id)),
    ]
    updates: list[Update] = [Delete(keys.name(path)), Delete(keys.table(table_id))]
    updates += [Delete(key) for key in catalog.lake_keys(table_id)]
    updates += [Delete(keys.schema(table_id, number)) for number in catalog.older_schema_ids(table_id)]
    if table.schema.auto_increment:
        updates.append(Delete(keys.number_counter(table_id)))
    if catalog.floor_of(table_id):
        updates.append(Delete(keys.floor(table_id)))
    later = delete_steps(catalog, buckets_of(catalog, table))
    if table.partitioned:
        # Every new partition counts up: none was added since this list was made.
        requirements.append(catalog.unchanged(keys.PARTITION_COUNTER))
        updates += [
            Delete(keys.partition(table_id, partition.partition_id))
            for partition in catalog.partitions_of(table_id)
        ]
    return UpdatePlan(table, requirements, updates, later=later)


def in_steps(made: T, before: Sequence[CommitStep], create: CommitStep) -> UpdatePlan[T]:
    """All in one commit where that is small; otherwise the ids are reserved and their buckets' entries put first."""
    steps = (*before, create)
    if len(before) == 1 or sum(len(step.updates) for step in steps) <= STEP_ENTRIES_MAX:
        requirements = [one for step in steps for one in step.requirements]
        return UpdatePlan(made, requirements, [one for step in steps for one in step.updates])
    return UpdatePlan(made, create.requirements, create.updates, earlier=before)


def _completed(catalog: Catalog, description: TableDescription) -> TableDescription:
    """Fill in what the client left open: clients read it back and rely on it."""
    limits = catalog.limits
    defaults = {REPLICATION_FACTOR: str(limits.replication_factor_default)}
    pinned = {}
    if limits.replicated and properties.durability(description.properties) is None:
        # It decides what the identity of a copy is, so it must not change with a server's setting.
        pinned[DURABILITY] = limits.durability_default
    if description.has_primary_key:
        defaults[KEY_FORMAT_VERSION] = KEY_FORMAT_VERSION_DEFAULT
        defaults[BUCKET_RULE] = BUCKET_RULE_DEFAULT
        if MERGE_ENGINE in description.properties:
            defaults[DELETE_BEHAVIOR] = delete_behavior(description.properties)
    said = {**description.custom_properties, **description.properties}
    return replace(
        description,
        schema=replace(with_aggregates(description.schema, said), schema_id=FIRST_SCHEMA_ID),
        bucket_count=description.bucket_count or limits.bucket_count_default,
        properties={**defaults, **description.properties, **pinned},
    )


def _check(catalog: Catalog, path: TablePath, description: TableDescription) -> None:
    properties.validate_table(description)
    bucket_count, bucket_count_max = description.bucket_count, catalog.limits.bucket_num_max
    assert bucket_count is not None
    if bucket_count > bucket_count_max:
        raise TooManyBuckets(
            f"Table {path} would have {bucket_count} buckets, max.bucket.num is {bucket_count_max}",
            table=str(path),
            buckets=bucket_count,
            buckets_max=bucket_count_max,
        )
    factor = properties.replication_factor(description.properties)
    if catalog.limits.replicated:
        check_copies(catalog, description)
    elif factor is not None and factor > REPLICATION_FACTOR_MAX:
        raise InvalidConfig(
            f"{REPLICATION_FACTOR} is {factor}, but servers that share one data folder keep {REPLICATION_FACTOR_MAX} "
            "copy of each bucket: for more, run a cluster (metadata.store = zookeeper)",
            property=REPLICATION_FACTOR,
            value=factor,
        )
