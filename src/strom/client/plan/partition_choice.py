"""The partitions and buckets that a read covers: chosen by name, by partition values, or by the filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import PartitionInfo, TableInfo
from strom.client.plan.filters import prune
from strom.client.plan.log_plan import buckets_of
from strom.errors import PartitionNotFound, TableNotPartitioned
from strom.model.bucket import BucketId
from strom.model.filters.predicate import Predicate
from strom.model.names import nearest
from strom.model.partitions import check_spec, value_text
from strom.model.table import TableDescription

PartitionChoice = str | Mapping[str, Any]
"""A partition by name, or by the values of some partition keys."""


async def chosen_buckets(
    cluster: Cluster,
    table: TableInfo,
    wanted: PartitionChoice | Sequence[PartitionChoice] | None = None,
    predicate: Predicate | None = None,
) -> list[tuple[BucketId, str | None]]:
    """The buckets that may hold matching rows, in scan order, after learning their leaders."""
    if not table.partitioned:
        choose_partitions(table.description, [], wanted)
        return list(buckets_of(table, None))
    chosen = choose_partitions(table.description, await cluster.partitions(table), wanted)
    if predicate is not None:
        chosen = prune(chosen, table.description, predicate)
    await cluster.find_leaders(table, [partition.partition_id for partition in chosen])
    return list(buckets_of(table, chosen))


def choose_partitions(
    description: TableDescription,
    existing: Sequence[PartitionInfo],
    wanted: PartitionChoice | Sequence[PartitionChoice] | None,
) -> list[PartitionInfo]:
    """The partitions that match; all of them without a choice. One named in full must exist."""
    if wanted is None:
        return list(existing)
    if not description.partitioned:
        raise TableNotPartitioned("partitions= was given, and the table has none")
    choices = [wanted] if isinstance(wanted, str | Mapping) else list(wanted)
    chosen: dict[int, PartitionInfo] = {}
    for choice in choices:
        for partition in _matching(description, existing, choice):
            chosen[partition.partition_id] = partition
    return sorted(chosen.values(), key=lambda partition: partition.name)


def _matching(
    description: TableDescription, existing: Sequence[PartitionInfo], choice: PartitionChoice
) -> list[PartitionInfo]:
    if isinstance(choice, str):
        found = [partition for partition in existing if partition.name == choice]
        whole = True
    else:
        spec = partition_texts(description, choice)
        positions = {description.partition_keys.index(key): text for key, text in spec.items()}
        found = [
            partition
            for partition in existing
            if all(partition.values[position] == text for position, text in positions.items())
        ]
        whole = len(spec) == len(description.partition_keys)
    if whole and not found:
        hint = nearest(str(choice), (partition.name for partition in existing))
        raise PartitionNotFound(f"there is no partition {choice}{hint}", partition=str(choice))
    return found


def partition_texts(description: TableDescription, values: Mapping[str, Any]) -> dict[str, str]:
    """Partition values as text, as in a partition's name, in key order. Keys may be left out."""
    check_spec(values, description.partition_keys)
    return {
        key: value_text(values[key], description.schema.column(key).type)
        for key in description.partition_keys
        if key in values
    }
