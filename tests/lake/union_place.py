"""Tables of a shared server whose rows go to the lake: the small language of the tests of union reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

import strom
from lake.small_tierer import SmallTierer, small_tierer
from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.lake.read.union_plan import UnionPlan
from strom.testing.process import ServerProcess

_numbers = itertools.count()

COLUMNS = {"id": "BIGINT", "name": "STRING", "amount": "DOUBLE"}
LAKE = {"table.datalake.enabled": "true"}


@contextmanager
def lake_table(
    server: ServerProcess, columns: Any = None, *, file_rows: int | None = None, **options: Any
) -> Iterator[tuple[strom.Database, strom.Table, SmallTierer]]:
    """A connection, a new table, and who tiers it."""
    with strom.connect(server.address) as db, small_tierer(db, file_rows=file_rows) as tierer:
        table = db.create_table(f"lake_{next(_numbers)}", columns or COLUMNS, properties=LAKE, **options)
        try:
            yield db, table, tierer
        finally:
            db.drop_table(table.name, if_missing="ignore")


def rows(*ids: int, name: str = "n", **more: Any) -> dict[str, list[Any]]:
    """Rows of COLUMNS."""
    found: dict[str, list[Any]] = {
        "id": list(ids),
        "name": [f"{name}{number}" for number in ids],
        "amount": [number / 4 for number in ids],
    }
    return found | {key: [value] * len(ids) for key, value in more.items()}


def sorted_rows(data: pa.Table) -> list[str]:
    """The rows in an order that does not depend on where they were."""
    return sorted(map(repr, data.to_pylist()))


def hot_rows_at(table: strom.Table, plan: UnionPlan) -> pa.Table:
    """What the servers alone hold at the instant of a plan: they keep everything in these tests."""
    hot: ScanPlan | KeyScanPlan
    if table.primary_key:
        instants = [Instant(one.bucket, one.partition, one.end, None) for one in plan.ends if one.end]
        hot = KeyScanPlan(plan.table_id, tuple(instants), None)
    else:
        ranges = [BucketRange(one.bucket, one.partition, 0, one.end) for one in plan.ends if one.end]
        hot = ScanPlan(plan.table_id, tuple(ranges))
    return table.read_plan(hot).to_arrow()
