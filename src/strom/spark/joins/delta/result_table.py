"""The table that holds the result of a join: its key, its columns, and the join it belongs to.

The key is (``__jk``, ``__lk``, ``__rk``): the join key, the left row's key and the right row's, as bytes
(``key_bytes.py``). An empty one means that there is no row on that side. None of them is NULL, so rows are unique for
every kind of join. Rows are spread by ``__jk``: all rows of a join key are in one bucket and can be looked up by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strom.api.database import Database
from strom.api.table import Table
from strom.client.cluster.metadata import TableInfo
from strom.errors import InvalidRequest, TableNotFound
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.joins.definition import JK, OWN
from strom.spark.joins.delta.join_plan import JoinPlan

MARK = "delta.join"
"""A property of a result table: the fingerprint of its join."""


@dataclass(frozen=True)
class JoinResult:
    """Where the rows go."""

    table: str
    table_id: int
    schema_id: int

    @property
    def sink(self) -> str:
        """The name under which batches are published."""
        return f"join-{self.table}"

    def info(self, server: ConnectOptions) -> TableInfo:
        """The table."""
        return connections.known_table(server, self.table, self.table_id, self.schema_id).info


def result_of(
    plan: JoinPlan,
    name: str,
    *,
    buckets: int | None,
    indexes: Mapping[str, str | Sequence[str]],
    properties: Mapping[str, object],
) -> JoinResult:
    """The table of a result, created if it does not exist."""
    database = connections.database(plan.server)
    try:
        table = connections.table(plan.server, name)
    except TableNotFound:
        _create(database, plan, name, buckets, indexes, properties)
        table = connections.table(plan.server, name)
    else:
        _check(table, plan)
        _index(table, indexes)
        table = connections.table(plan.server, name)
    return JoinResult(str(table.info.path), table.table_id, table.info.schema.schema_id)


def _create(
    database: Database,
    plan: JoinPlan,
    name: str,
    buckets: int | None,
    indexes: Mapping[str, str | Sequence[str]],
    properties: Mapping[str, object],
) -> None:
    schema = dict.fromkeys(OWN, "BYTES NOT NULL") | {one.name: one.type.sql() for one in plan.outputs}
    if buckets is None:
        buckets = max(side.info(plan.server).bucket_count for side in (plan.left, plan.right))
    database.create_table(
        name,
        schema,
        primary_key=list(OWN),
        bucket_key=JK,
        buckets=buckets,
        indexes=indexes,
        properties={**properties, MARK: plan.fingerprint},
        comment=f"{plan.how} join of {plan.left.table} and {plan.right.table}",
        if_exists="ignore",
    )


def _check(table: Table, plan: JoinPlan) -> None:
    path = table.info.path
    mark = table.properties.get(MARK)
    if mark is None:
        raise InvalidRequest(
            f"{path} exists and is not the result of a join: name another table, and it will be created"
        )
    if mark != plan.fingerprint:
        raise InvalidRequest(
            f"{path} holds the result of another join (other tables, filters, columns, on or how). Name another table, "
            f"or drop it:  strom table drop {path}"
        )


def _index(table: Table, indexes: Mapping[str, str | Sequence[str]]) -> None:
    for name, columns in indexes.items():
        if name not in table.indexes():
            table.create_index(name, columns)
