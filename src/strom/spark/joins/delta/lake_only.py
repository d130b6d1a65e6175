"""Which rows of a side only the lake has: those of partitions that retention took from the servers."""

from __future__ import annotations

from strom.lake.read.lake_only_rows import LakeOnlyRows, find_lake_only_rows
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.joins.delta.join_plan import Input


def lake_only_rows_of(server: ConnectOptions, side: Input) -> LakeOnlyRows | None:
    """The lake-only rows of a side; None for a table that can never have any."""
    database = connections.database(server)
    info = side.info(server)
    session = database.session.face.session
    columns = sorted({*side.join, *side.key})
    return database.session.run(find_lake_only_rows(session.cluster, session.warehouses, info, columns))


def partitions_of(server: ConnectOptions, side: Input) -> frozenset[int]:
    """The ids of the partitions on the servers."""
    table = connections.known_table(server, side.table, side.table_id)
    return frozenset(one.partition_id for one in table.partitions())
