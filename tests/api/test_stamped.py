"""Rows with their stamps, and what died below an offset: what the lake is written from."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import strom
from api.place import events, table_on
from strom.client.cluster.options import ClientOptions
from strom.client.plan.key_plan import KeyScanPlan
from strom.errors import NotYetVisible
from strom.testing.process import ServerProcess

KEYS = {"id": "BIGINT", "score": "INT"}


def test_a_range_of_a_log_tells_the_offset_and_time_of_every_row(server: ServerProcess) -> None:
    with table_on(server, buckets=1) as table:
        before = dt.datetime.now(dt.UTC) - dt.timedelta(milliseconds=1)
        for start in range(0, 300, 30):
            table.append(events(*range(start, start + 30)))
            table.flush()
        plan = table.scan().plan()
        part = replace(plan, ranges=(replace(plan.ranges[0], start=45, end=250),))
        found = table.read_stamped(part, columns=["id"]).to_arrow()
        after = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=1)
        assert found.column_names == ["id", "__offset", "__timestamp"]
        assert found.column("__offset").to_pylist() == list(range(45, 250))
        assert found.column("id").to_pylist() == list(range(45, 250))
        assert found.schema.field("__timestamp").type == pa.timestamp("ms", "UTC")
        times = found.column("__timestamp").to_pylist()
        assert times == sorted(times)
        assert all(before <= one <= after for one in times)


def test_the_images_since_an_offset_and_the_dead_below_it_are_what_changed(server: ServerProcess) -> None:
    with table_on(server, KEYS, primary_key="id", buckets=1) as table:
        table.upsert([{"id": n, "score": 0} for n in range(200)])
        table.flush()
        (first,) = table.scan().plan().instants
        cold = rows_of(table.read_stamped(KeyScanPlan(table.table_id, (first,), None)).to_arrow())
        assert [row["id"] for row in cold.values()] == list(range(200))
        table.upsert([{"id": n, "score": 1} for n in range(150, 250)])
        table.upsert([{"id": n, "score": 2} for n in range(150, 160)])
        table.delete([3, 5, 240])
        table.flush()
        (now,) = table.scan().plan().instants
        since = replace(now, start=first.at)
        dead = table.dead_offsets(since)
        hot = rows_of(table.read_stamped(KeyScanPlan(table.table_id, (since,), None)).to_arrow())
        assert dead.dtype == np.int64
        assert min(hot) >= first.at
        union = {offset: row for offset, row in cold.items() if offset not in set(dead.tolist())} | hot
        assert {row["id"]: row["score"] for row in union.values()} == {
            row["id"]: row["score"] for row in table.scan().to_arrow().to_pylist()
        }
        assert len(union) == table.count()
        assert len(table.dead_offsets(replace(now, start=0))) == 0


def test_dead_offsets_of_an_instant_that_is_not_there_are_refused(server: ServerProcess) -> None:
    impatient = ClientOptions(retry_timeout_ms=200)  # it may become visible: a client waits for that
    with (
        table_on(server, KEYS, primary_key="id", buckets=1) as table,
        strom.connect(server.address, options=impatient) as db,
    ):
        table.upsert([{"id": 1, "score": 0}])
        table.flush()
        (now,) = table.scan().plan().instants
        with pytest.raises(NotYetVisible):
            db.table(table.name).dead_offsets(replace(now, start=1, at=now.at + 5, epoch=None))


def rows_of(found: pa.Table) -> dict[int, dict[str, int]]:
    """By offset."""
    assert found.column("__timestamp").null_count == found.num_rows
    return {row["__offset"]: row for row in found.to_pylist()}
