"""A plan made in one place is read in another: exactly its rows, whole or in parts."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import strom
from api.place import EVENTS, events, ids_of, table_on
from strom.client.cluster.options import ClientOptions
from strom.client.plan.key_plan import KeyScanPlan
from strom.client.plan.log_plan import ScanPlan
from strom.errors import NotYetVisible
from strom.protocol.api_keys import GET_METADATA
from strom.rpc.caller import Caller
from strom.testing.process import ServerProcess


def test_another_connection_reads_a_pickled_plan_of_a_log(server: ServerProcess) -> None:
    with table_on(server, buckets=2) as table, strom.connect(server.address) as other:
        table.append(events(*range(100)))
        plan = table.scan().plan()
        table.append(events(*range(100, 110)))
        table.flush()
        again = other.table(table.name)
        found = again.read_plan(pickle.loads(pickle.dumps(plan)), columns=["id"], where="id >= 50")
        assert sorted(ids_of(found.to_arrow())) == list(range(50, 100))
        assert found.schema.names == ["id"]
        assert again.read_plan(plan, limit=7).to_arrow().num_rows == 7
        changes = again.read_plan(plan, changes=True).to_arrow()
        assert changes.column_names[:4] == ["_change_type", "_log_offset", "_commit_timestamp", "_bucket"]
        assert changes.num_rows == 100


def test_parts_of_an_instant_together_are_the_instant(server: ServerProcess) -> None:
    schema = {"id": "BIGINT", "score": "INT"}
    with table_on(server, schema, primary_key="id", buckets=2) as table:
        table.upsert([{"id": n, "score": 0} for n in range(300)])
        table.upsert([{"id": n, "score": 1} for n in range(0, 300, 3)])
        table.delete(list(range(0, 300, 7)))
        table.flush()
        plan = table.scan().plan()
        assert isinstance(plan, KeyScanPlan)
        table.upsert([{"id": n, "score": 2} for n in range(400)])
        table.flush()
        live = {n: int(n % 3 == 0) for n in range(300) if n % 7}
        parts = [
            replace(instant, start=low, end=min(low + 60, instant.at))
            for instant in plan.instants
            for low in range(0, instant.at, 60)
        ]
        pieces = [table.read_plan(KeyScanPlan(plan.table_id, (part,), None)).to_arrow() for part in parts]
        found = pa.concat_tables(pieces).to_pylist()
        assert len(found) == len(live)
        assert {row["id"]: row["score"] for row in found} == live
        images = table.read_plan(plan, changes=True).to_arrow()
        assert set(images.column("_change_type").to_pylist()) == {"+I"}
        assert images.column("_commit_timestamp").null_count == images.num_rows
        assert {row["id"]: row["score"] for row in images.to_pylist()} == live
        pieces = [
            table.read_plan(KeyScanPlan(plan.table_id, (part,), None), changes=True).to_arrow()
            for part in parts
        ]
        told = ["_bucket", "_log_offset", "id"]
        assert sorted(map(str, images.select(told).to_pylist())) == sorted(
            map(str, pa.concat_tables(pieces).select(told).to_pylist())
        )


def test_partitions_that_this_connection_never_met_are_found_with_one_question(
    either: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    call = Caller.call

    async def noted(self: Caller, api: Any, *given: Any, **named: Any) -> Any:
        asked.append(api)
        return await call(self, api, *given, **named)

    monkeypatch.setattr(Caller, "call", noted)
    schema = pa.schema([*EVENTS, ("day", pa.string())])
    with (
        table_on(either, schema, partition_by="day", buckets=2) as table,
        strom.connect(either.address) as other,
    ):
        table.append([row | {"day": day} for day in "abc" for row in events(1, 2)])
        plan = table.scan().plan()
        again = other.table(table.name)
        asked.clear()
        assert again.read_plan(plan).to_arrow().num_rows == 6
        assert asked.count(GET_METADATA) == 1, "for all partitions"


def test_an_instant_that_is_not_there_is_an_error_and_nothing_less(server: ServerProcess) -> None:
    with table_on(server, {"id": "BIGINT"}, primary_key="id", buckets=1) as table:
        table.upsert([{"id": 1}])
        table.flush()
        (instant,) = table.scan().plan().instants  # type: ignore[union-attr]
        later = KeyScanPlan(table.table_id, (replace(instant, at=99, epoch=None),), None)
        with (
            strom.connect(server.address, options=ClientOptions(retry_timeout_ms=200)) as other,
            pytest.raises(NotYetVisible),
        ):
            other.table(table.name).read_plan(later).to_arrow()


def test_the_extent_tells_of_every_bucket_and_offsets_of_any_place(server: ServerProcess) -> None:
    with table_on(server, buckets=3) as table:
        assert [(one.start, one.end) for one in table.extent().ranges] == [(0, 0)] * 3
        table.append(events(*range(30)))
        table.flush()
        extent = table.extent()
        assert isinstance(extent, ScanPlan)
        assert (len(extent.ranges), extent.rows) == (3, 30)
        assert table.offsets() == extent.offsets
        assert set(table.offsets("earliest").values()) == {0}
