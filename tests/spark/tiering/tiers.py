"""Rounds on demand, by a service in this process on the tests' Spark; and readers that know nothing of Strom."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergTable

import strom
from strom.client.admin.lake_admin import Heartbeat, LakeFacts
from strom.lake.rounds.cluster import TieringCluster
from strom.lake.rounds.service import RoundEnd, RoundListener, TieringOptions
from strom.spark.connect.options import ConnectOptions
from strom.spark.tiering.running import cluster_of, service_of
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN = ("__bucket", "__offset", "__timestamp")
"""What the lake adds to every row."""


class Heard(RoundListener):
    """Keeps how every round ended."""

    def __init__(self) -> None:
        self.ends: list[RoundEnd] = []

    def ended(self, end: RoundEnd) -> None:
        self.ends.append(end)


def tier(server: ServerProcess, spark: SparkSession, *tables: strom.Table, **options: Any) -> list[RoundEnd]:
    """Tier these tables until nothing is left; how their rounds ended."""
    heard = Heard()
    address = ConnectOptions(server.address, retry_s=10)
    chosen = TieringOptions(tables=tuple(one.name for one in tables), once=True, **options)
    with cluster_of(address) as cluster:
        service_of(address, cluster, spark, chosen, heard).run()
    return heard.ends


def assert_all_landed(ends: list[RoundEnd]) -> None:
    """There were rounds, and each has a result. How many there were is up to what a round found when it began."""
    assert ends
    assert [end.error for end in ends if end.result is None] == []


def facts_of(server: ServerProcess, table: strom.Table) -> LakeFacts:
    """What the coordinator knows of a table's lake."""
    with TieringCluster(server.address, retry_s=10) as cluster:
        return cluster.describe(table.info.path)


def bury(server: ServerProcess, table: strom.Table) -> None:
    """Let the lease of a service that was killed run out at once."""
    with TieringCluster(server.address, retry_s=10) as cluster:
        dead = cluster.describe(table.info.path).service_id
        if dead is not None:
            cluster.heartbeat(Heartbeat(dead, wants=0, leaving=True))


def iceberg(server: ServerProcess, table: strom.Table) -> IcebergTable:
    """The lake table, by PyIceberg's own catalog."""
    config = facts_of(server, table).config
    assert config is not None
    catalog = SqlCatalog("strom", uri=f"sqlite:///{config.catalog_uri}", warehouse=config.warehouse)
    try:
        path = table.info.path
        return catalog.load_table((path.database, path.table))
    finally:
        catalog.engine.dispose()


def by_pyiceberg(server: ServerProcess, table: strom.Table) -> pa.Table:
    """The rows of the lake as PyIceberg reads them, without what the lake adds."""
    found = iceberg(server, table).scan().to_arrow()
    return found.drop_columns([name for name in OWN if name in found.column_names])


def by_polars(server: ServerProcess, table: strom.Table) -> pa.Table:
    """The same by polars."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pl.exceptions.PerformanceWarning)  # planned by PyIceberg: good enough
        frame = pl.scan_iceberg(iceberg(server, table)).collect()
    found = frame.to_arrow()
    return found.drop_columns([name for name in OWN if name in found.column_names])


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether both hold the same rows, each as often, in any order."""
    columns = one.column_names
    assert sorted(columns) == sorted(other.column_names), (columns, other.column_names)
    rows = [sorted(map(repr, table.select(columns).to_pylist())) for table in (one, other)]
    return rows[0] == rows[1]


def in_lake(server: ServerProcess, table: strom.Table) -> bool:
    """Whether the lake, read by two strangers, holds what the table holds."""
    want = hot(table)
    return same_rows(want, by_pyiceberg(server, table)) and same_rows(want, by_polars(server, table))


def hot(table: strom.Table) -> pa.Table:
    """What the servers hold of a table, without the lake."""
    plan = table.scan(tier="hot").plan()
    return table.read_plan(plan).to_arrow()
