"""Union reads where one tier has no part: the ends of a log, and partitions that only the lake keeps."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import strom
from lake.small_tierer import SmallTierer
from lake.union_place import lake_table, rows
from strom.client.cluster.cluster import Cluster
from strom.errors import LakeCorrupt, LakeQuarantined
from strom.lake.iceberg.held_files import held_files
from strom.lake.iceberg.lake_head import LakeHead, read_head
from strom.lake.read.union_planner import UnionPlanner
from strom.model.lake.lake_record import LakeReport
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

DAYS = {"day": "STRING", "id": "BIGINT"}


def ids(found: Any) -> list[int]:
    return sorted(found.to_arrow()["id"].to_pylist())


def let_retention_drop(tierer: SmallTierer, table: strom.Table, name: str) -> LakeHead:
    """As when a partition's time is over: the servers drop it, and the lake keeps its rows."""
    lake = tierer.lake_table(table)
    head = read_head(lake)
    gone = {number for number, known in head.partitions.items() if known == name}
    offsets = {key: place for key, place in head.offsets.items() if key.partition_id not in gone}
    names = {number: known for number, known in head.partitions.items() if number not in gone}
    table.drop_partition({"day": name})
    tierer.report(table.table_id, replace(head, held=replace(head.held, offsets=offsets, partitions=names)))
    tierer.report(table.table_id, head)
    return head


def test_from_the_latest_on_there_is_nothing_and_before_the_earliest_neither(server: ServerProcess) -> None:
    with lake_table(server, buckets=2) as (_, table, tierer):
        table.append(rows(1, 2, 3))
        tierer.round(table)
        table.append(rows(4, 5))
        table.flush()
        assert ids(table.scan(start="latest")) == []
        assert ids(table.scan(end="earliest")) == []
        assert ids(table.scan(start="earliest", end="latest")) == [1, 2, 3, 4, 5]


def test_rows_of_a_partition_that_only_the_lake_keeps_count(server: ServerProcess) -> None:
    keys: dict[str, Any] = {"primary_key": ["day", "id"], "partition_by": "day"}
    with lake_table(server, DAYS, **keys) as (db, table, tierer):
        table.upsert({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        assert ids(table.scan()) == [1, 2, 3]
        assert ids(table.scan(where="day = 'a' and id = 1")) == [1], "no server can look it up"
        assert table.count() == table.scan().count() == 3
        assert ids(table.scan(where="day = 'a' and id = 1")) == [1], "also by its whole key"
        assert db.sql(f"SELECT count(*) AS n FROM {table.name}").to_pylist() == [{"n": 3}]


def test_a_time_is_not_answered_without_the_partitions_that_only_the_lake_keeps(
    server: ServerProcess,
) -> None:
    keys: dict[str, Any] = {"primary_key": ["day", "id"], "partition_by": "day"}
    with lake_table(server, DAYS, **keys) as (_, table, tierer):
        table.upsert({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        tierer.round(table)
        moment = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=50)
        while dt.datetime.now(dt.UTC) <= moment:
            pass
        let_retention_drop(tierer, table, "a")
        assert ids(table.scan(at=moment)) == [1, 2, 3]


def test_a_quarantined_lake_that_alone_has_a_partition_is_an_error(server: ServerProcess) -> None:
    keys: dict[str, Any] = {"primary_key": ["day", "id"], "partition_by": "day"}
    with lake_table(server, DAYS, **keys) as (_, table, tierer):
        table.upsert({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        tierer.round(table)
        head = let_retention_drop(tierer, table, "a")
        report = LakeReport(
            head.snapshot_id,
            head.offsets,
            head.partitions,
            state="quarantined",
            reason="somebody wrote to it",
        )
        told = tierer._run(tierer._door.report(table.table_id, report, service_id="s", rebuild=True))
        assert told is None
        with pytest.raises(LakeQuarantined, match="somebody wrote"):
            table.scan().to_arrow()
        assert ids(table.scan(where="day = 'b'")) == [3]
        assert ids(table.scan(tier="hot")) == [3]


def test_an_older_snapshot_has_the_rows_of_a_partition_that_was_made_again(server: ServerProcess) -> None:
    with lake_table(server, DAYS, partition_by="day", buckets=1) as (_, table, tierer):
        table.append({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        first = tierer.round(table).snapshot_id
        assert ids(table.scan(at=first)) == [1, 2, 3]
        let_retention_drop(tierer, table, "a")
        table.append({"day": ["a"], "id": [4]})
        assert ids(table.scan()) == [1, 2, 3, 4]
        tierer.round(table)
        assert ids(table.scan()) == [1, 2, 3, 4]
        assert ids(table.scan(at=first)) == [1, 2, 3]


@pytest.mark.parametrize("asked", ["before", "after"])
def test_a_partition_that_goes_while_a_read_is_planned_brings_its_last_rows(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """What the planner asks first is told as it was before the last round and the drop, the rest as it is then."""
    with lake_table(server, DAYS, partition_by="day", buckets=1) as (_, table, tierer):
        table.append({"day": ["a", "b"], "id": [1, 2]})
        tierer.round(table)
        before = tierer._run(tierer._door.describe(table.info.path))
        listed = tierer._run(tierer._cluster.partitions(table.info))
        table.append({"day": ["a"], "id": [3]})
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        calls: list[str] = []
        facts, partitions = UnionPlanner.facts, Cluster.partitions

        async def facts_then(*given: Any) -> Any:
            calls.append("facts")
            return before if calls == ["facts"] else await facts(*given)

        async def partitions_then(*given: Any) -> Any:
            calls.append("partitions")
            return list(listed) if calls == ["partitions"] and asked == "before" else await partitions(*given)

        monkeypatch.setattr(UnionPlanner, "facts", facts_then)
        monkeypatch.setattr(Cluster, "partitions", partitions_then)
        assert ids(table.scan()) == [1, 2, 3]


def test_a_partition_that_is_made_and_tiered_while_a_read_is_planned_is_read_of_the_servers_too(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake_table(server, DAYS, partition_by="day", buckets=1) as (_, table, tierer):
        table.append({"day": ["a"], "id": [1]})
        tierer.round(table)
        listed = [tierer._run(tierer._cluster.partitions(table.info))]
        table.append({"day": ["b"], "id": [2]})
        tierer.round(table)
        table.append({"day": ["b"], "id": [3]})
        table.flush()
        partitions = Cluster.partitions

        async def partitions_then(*given: Any) -> Any:
            return listed.pop() if listed else await partitions(*given)

        monkeypatch.setattr(Cluster, "partitions", partitions_then)
        assert ids(table.scan()) == [1, 2, 3]
        assert not listed


@pytest.mark.parametrize("key", [None, "id"])
def test_a_nan_is_above_every_number_in_both_tiers(server: ServerProcess, key: str | None) -> None:
    options: dict[str, Any] = {"primary_key": key} if key else {}
    with lake_table(server, **options) as (db, table, tierer):
        put = table.upsert if key else table.append
        put({"id": [1, 2, 3], "name": ["a"] * 3, "amount": [1.0, float("nan"), 2.0]})
        tierer.round(table)
        put({"id": [4, 5], "name": ["a"] * 2, "amount": [float("nan"), 3.0]})
        table.flush()
        assert ids(table.scan(where="amount > 1000")) == [2, 4]
        for asked in ("WHERE amount > 1000", "WHERE amount = 'NaN'", "ORDER BY amount DESC LIMIT 2"):
            assert ids(db.sql(f"SELECT id FROM {table.name} {asked}")) == [2, 4], asked


def test_a_damaged_file_is_told_in_our_words_however_sql_reads_it(server: ServerProcess) -> None:
    columns = {"id": "BIGINT", "file_row_number": "BIGINT"}
    with lake_table(server, columns, buckets=1, primary_key="id") as (db, table, tierer):
        table.upsert({"id": [1, 2], "file_row_number": [0, 10]})
        tierer.round(table)
        table.delete([{"id": 2}])
        table.flush()
        lake = tierer.lake_table(table)
        (file,) = held_files(lake).data
        path = Path(lake.storage.path(file.path))
        path.write_bytes(bytes(path.stat().st_size))
        for query in ("SELECT id FROM {0}", "SELECT count(*) FROM {0} a JOIN {0} b USING (id)"):
            with pytest.raises(LakeCorrupt, match=path.name):
                db.sql(query.format(table.name)).to_arrow()


def test_columns_may_have_the_names_that_sql_gives_to_files_and_their_rows(server: ServerProcess) -> None:
    for extra in ("__file", "file_row_number", "FILE_INDEX"):
        keys: dict[str, Any] = {"primary_key": "id"}
        with lake_table(server, {"id": "BIGINT", extra: "BIGINT"}, **keys) as (db, table, tierer):
            table.upsert({"id": [1, 2, 3, 4], extra: [0, 10, 20, 30]})
            tierer.round(table)
            table.delete([{"id": 2}])
            tierer.round(table)
            table.delete([{"id": 3}])
            table.flush()
            found = db.sql(f'SELECT id, "{extra}" AS e FROM {table.name} ORDER BY id').to_pylist()
            assert found == [{"id": 1, "e": 0}, {"id": 4, "e": 30}], extra
