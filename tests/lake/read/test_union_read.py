"""A tiered table is one table: lake and log together, each row once, and only the tier that the filter needs."""

from __future__ import annotations

import asyncio
import datetime as dt
import pickle

import pytest

import strom
from lake.union_place import COLUMNS, hot_rows_at, lake_table, rows, sorted_rows
from strom import aio
from strom.errors import InvalidRequest, LakeCorrupt, LakeDisabled, LakeSnapshotNotFound, TableNotFound
from strom.lake.read.union_plan import UnionPlan
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


def test_a_log_is_read_from_the_lake_and_goes_on_in_the_log(server: ServerProcess) -> None:
    with lake_table(server, buckets=3) as (db, table, tierer):
        table.append(rows(1, 2, 3))
        table.flush()
        tierer.round(table)
        table.append(rows(4, 5))
        scan = table.scan()
        plan = scan.plan()
        assert isinstance(plan, UnionPlan)
        assert (sum(file.rows for file in plan.files), plan.hot.rows) == (3, 2)
        assert sorted(scan.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 5]
        assert table.count() == 5
        assert db.sql(f"SELECT sum(id) AS s FROM {table.name}").to_pylist() == [{"s": 15}]


def test_a_primary_key_table_leaves_out_what_died_since(server: ServerProcess) -> None:
    with lake_table(server, primary_key="id", buckets=2) as (db, table, tierer):
        table.upsert(rows(*range(20)))
        tierer.round(table)
        table.upsert(rows(3, 4, 30, name="new"))
        table.delete({"id": [5, 6]})
        tierer.round(table)
        table.upsert(rows(4, 7, 31, name="newer"))
        table.delete({"id": [8, 30]})
        table.flush()
        found = table.scan()
        assert isinstance(found.plan(), UnionPlan)
        assert any(file.deletes for file in found.plan().files)  # type: ignore[union-attr]
        names = dict(zip(*(found.to_arrow()[name].to_pylist() for name in ("id", "name")), strict=True))
        expected = {n: f"n{n}" for n in range(20) if n not in (5, 6, 8)}
        expected |= {3: "new3", 4: "newer4", 7: "newer7", 31: "newer31"}
        assert names == expected
        assert sorted_rows(db.sql(f"SELECT * FROM {table.name}").to_arrow()) == sorted_rows(found.to_arrow())
        assert table.count() == len(expected) == table.scan(where="id >= 0").count()


def test_rows_come_in_the_order_of_the_hot_tier(server: ServerProcess) -> None:
    for key in (None, "id"):
        options = {"primary_key": key} if key else {}
        with lake_table(server, buckets=3, file_rows=7, **options) as (_, table, tierer):
            put = table.upsert if key else table.append
            for start in (0, 30, 60):
                put(rows(*range(start, start + 40)))
                if start < 60:
                    tierer.round(table)
            scan = table.scan()
            expected = hot_rows_at(table, scan.plan())  # type: ignore[arg-type]
            assert scan.to_arrow().equals(expected)
            batches = list(table.scan(limit=50).to_batches())
            assert sum(batch.num_rows for batch in batches) == 50
            assert [n for batch in batches for n in batch["id"].to_pylist()] == expected["id"].to_pylist()[
                :50
            ]


def test_a_filter_on_the_newest_rows_asks_neither_catalog_nor_storage(server: ServerProcess) -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    with lake_table(server, {**COLUMNS, "moment": "TIMESTAMP_LTZ(6)"}) as (_, table, tierer):
        table.append(rows(1, 2, 3, moment=start))
        tierer.round(table)
        table.append(rows(4, 5, moment=start + dt.timedelta(days=1)))
        table.flush()
        with strom.connect(server.address) as fresh:
            name = table.name
            condition = f"moment > TIMESTAMPTZ '{start + dt.timedelta(hours=1)}'"
            with fresh.sql(f"SELECT id FROM {name} WHERE {condition} ORDER BY id") as result:
                assert result.to_pylist() == [{"id": 4}, {"id": 5}]
                assert result.statistics.lake_files == 0
            found = fresh.table(name).scan(["id"], where="moment > '2026-01-01T01:00:00Z'").to_arrow()
            assert found["id"].to_pylist() == [4, 5]
            assert fresh.session.face.session.warehouses.catalogs == []
            assert fresh.table(name).count() == 5
            (catalog,) = fresh.session.face.session.warehouses.catalogs
            assert catalog.asked == 1
            assert catalog.storage.counters.opened == [], "counting opens no data file"


def test_an_old_partition_moves_no_hot_byte(server: ServerProcess) -> None:
    columns = {**COLUMNS, "day": "STRING"}
    for options in ({}, {"primary_key": ["id", "day"]}):
        with lake_table(server, columns, partition_by="day", **options) as (db, table, tierer):
            put = table.upsert if options else table.append
            put(rows(1, 2, 3, day="2026-01-01"))
            tierer.round(table)
            put(rows(4, 5, day="2026-01-02"))
            table.flush()
            scan = table.scan(where="day = '2026-01-01'")
            assert sorted(scan.to_arrow()["id"].to_pylist()) == [1, 2, 3]
            assert (scan.statistics.requests, scan.statistics.bytes_fetched) == (0, 0)
            with db.sql(f"SELECT count(*) AS n FROM {table.name} WHERE day = '2026-01-01'") as result:
                assert result.to_pylist() == [{"n": 3}]
                assert (result.statistics.bytes_fetched, result.statistics.lake_files) == (0, 1)
            newer = table.scan(where="day = '2026-01-02'")
            assert sorted(newer.to_arrow()["id"].to_pylist()) == [4, 5]
            assert newer.plan().files == ()  # type: ignore[union-attr]


def test_files_are_chosen_by_the_filter(server: ServerProcess) -> None:
    with lake_table(server, file_rows=10) as (db, table, tierer):
        table.append(rows(*range(100)))
        tierer.round(table)
        scan = table.scan(where="id >= 35 and id < 45")
        assert scan.to_arrow()["id"].to_pylist() == list(range(35, 45))
        assert len(scan.plan().files) == 2  # type: ignore[union-attr]
        with db.sql(f"SELECT count(*) AS n FROM {table.name} WHERE id = 77") as result:
            assert result.to_pylist() == [{"n": 1}]
            assert result.statistics.lake_files == 1


def test_a_column_added_later_is_null_in_older_files(server: ServerProcess) -> None:
    with lake_table(server) as (db, table, tierer):
        table.append(rows(1))
        tierer.round(table)
        table.add_column("extra", "INT")
        table.append(rows(2, extra=7))
        tierer.round(table)
        table.append(rows(3, extra=8))
        expected = [(1, None), (2, 7), (3, 8)]
        found = table.scan(["id", "extra"]).to_arrow().to_pylist()
        assert [(row["id"], row["extra"]) for row in found] == expected
        asked = db.sql(f"SELECT id, extra FROM {table.name} ORDER BY id").to_pylist()
        assert [(row["id"], row["extra"]) for row in asked] == expected
        assert table.scan(where="extra is null").count() == 1


def test_a_query_finds_columns_of_files_by_their_ids(server: ServerProcess) -> None:
    """The fields of a nested column have ids too, so those of later columns are not their places."""
    columns = {"id": "BIGINT", "at": "ROW<city STRING, zip INT>", "name": "STRING", "tags": "ARRAY<STRING>"}
    with lake_table(server, columns, buckets=1) as (db, table, tierer):
        first = {"id": 1, "at": {"city": "x", "zip": 7}, "name": "one", "tags": ["a"]}
        table.append([first])
        tierer.round(table)
        table.add_column("late", "STRING")
        second = first | {"id": 2, "name": "two", "late": "now"}
        table.append([second])
        tierer.round(table)
        whole = [first | {"late": None}, second]
        assert db.sql(f"SELECT * FROM {table.name} ORDER BY id").to_pylist() == whole
        picked = db.sql(f"SELECT late, name FROM {table.name} WHERE name = 'two'").to_pylist()
        assert picked == [{"late": "now", "name": "two"}]


def test_one_tier_can_be_read_alone(server: ServerProcess) -> None:
    with lake_table(server) as (db, table, tierer):
        table.append(rows(1, 2))
        tierer.round(table)
        table.append(rows(3))
        assert table.scan(tier="lake").to_arrow()["id"].to_pylist() == [1, 2]
        assert table.scan(tier="hot").to_arrow()["id"].to_pylist() == [1, 2, 3]
        assert db.sql(
            f'SELECT id, __bucket, __offset FROM "{table.name.partition(".")[2]}$lake"'
        ).to_pylist() == [
            {"id": 1, "__bucket": 0, "__offset": 0},
            {"id": 2, "__bucket": 0, "__offset": 1},
        ]
        with pytest.raises(InvalidRequest, match="tier="):
            table.scan(tier="cold")  # type: ignore[arg-type]


def test_the_lake_of_a_table_that_has_none_is_a_clear_error(server: ServerProcess) -> None:
    with lake_table(server) as (_, table, _tierer):
        table.append(rows(1))
        assert table.scan().to_arrow()["id"].to_pylist() == [1]
        with pytest.raises(LakeDisabled, match="not in the lake yet"):
            table.scan(tier="lake").to_arrow()


def test_tables_beside_a_table_show_its_lake(server: ServerProcess) -> None:
    with lake_table(server, buckets=1) as (db, table, tierer):
        table.append(rows(1, 2))
        first = tierer.round(table)
        table.append(rows(3))
        second = tierer.round(table)
        table.append(rows(4, 5))
        table.flush()
        snapshots = db.table(f"{table.name}$snapshots").scan().to_arrow().to_pylist()
        assert [one["snapshot_id"] for one in snapshots] == [first.snapshot_id, second.snapshot_id]
        assert [(one["rows"], one["current"]) for one in snapshots] == [(2, False), (3, True)]
        (offsets,) = (
            db.table(f"{table.name}$offsets")
            .scan(["lake_offset", "log_end", "pending"])
            .to_arrow()
            .to_pylist()
        )
        assert offsets == {"lake_offset": 3, "log_end": 5, "pending": 2}
        lake = db.table(f"{table.name}$lake")
        assert lake.schema.names[-3:] == ["__bucket", "__offset", "__timestamp"]
        assert lake.scan(["id", "__offset"], where="id > 1").to_arrow().to_pydict() == {
            "id": [2, 3],
            "__offset": [1, 2],
        }
        assert lake.count() == 3
        with pytest.raises(TableNotFound, match="did you mean 'snapshots'"):
            db.table(f"{table.name}$snapshot")


def test_a_lake_snapshot_can_be_read_again(server: ServerProcess) -> None:
    for options in ({}, {"primary_key": "id"}):
        with lake_table(server, **options) as (db, table, tierer):
            put = table.upsert if options else table.append
            put(rows(1, 2))
            first = tierer.round(table)
            put(rows(2, 3, name="new"))
            tierer.round(table)
            put(rows(4))
            old = table.scan(at=first.snapshot_id).to_arrow()
            assert old.to_pydict() == {"id": [1, 2], "name": ["n1", "n2"], "amount": [0.25, 0.5]}
            assert db.table(f"{table.name}$lake").scan(["name"], at=first.snapshot_id).count() == 2
            one = table.scan(["name"], where="id = 2", at=first.snapshot_id)
            assert one.to_arrow()["name"].to_pylist() == ["n2"], "a key is looked up in the past, not now"
            asked = f"SELECT name FROM {table.name} AT (VERSION => {first.snapshot_id}) WHERE id = 2"
            assert db.sql(asked).to_pylist() == [{"name": "n2"}]
            with pytest.raises(LakeSnapshotNotFound):
                table.scan(at=first.snapshot_id + 1).to_arrow()


def test_a_plan_whose_files_are_gone_is_an_error_and_no_other_plan_takes_its_place(
    server: ServerProcess,
) -> None:
    with lake_table(server, buckets=1) as (_, table, tierer):
        for number in range(3):
            table.append(rows(number))
            tierer.round(table)
        plan = table.scan().plan()
        fresh = table.scan()
        fresh.plan()
        table.append(rows(3))
        tierer.compact(table, report=True)
        assert tierer.expire(table).files_removed > 0
        with strom.connect(server.address) as other, pytest.raises(LakeCorrupt):
            other.table(table.name).read_plan(plan).to_arrow()
        with pytest.raises(LakeCorrupt):
            table.read_plan(plan).to_arrow()
        assert fresh.to_arrow()["id"].to_pylist() == [0, 1, 2, 3], "what nobody was promised is planned anew"


def test_what_nobody_was_promised_is_planned_anew_however_it_is_read(server: ServerProcess) -> None:
    with lake_table(server, buckets=1) as (_, table, tierer):
        for number in range(3):
            table.append(rows(number))
            tierer.round(table)
        later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
        then = table.scan(tier="lake", at=later)
        blocking = [table.scan(), table.scan(), table.scan(where="id >= 0"), then]
        for scan in blocking:
            scan.plan()

        def rewrite() -> None:
            table.append(rows(3))
            tierer.compact(table, report=True)
            assert tierer.expire(table).files_removed > 0

        async def read() -> tuple[list[int], list[int], int]:
            async with await aio.connect(server.address) as db:
                found = await db.table(table.name)
                scans = [found.scan(), found.scan(), found.scan(where="id >= 0")]
                for scan in scans:
                    await scan.plan()
                await asyncio.to_thread(rewrite)
                whole = await scans[0].to_arrow()
                parts = [n async for batch in scans[1].to_batches() for n in batch["id"].to_pylist()]
                return whole["id"].to_pylist(), parts, await scans[2].count()

        every = [0, 1, 2, 3]
        assert asyncio.run(read()) == (every, every, 4)
        assert blocking[0].to_arrow()["id"].to_pylist() == every
        assert [n for batch in blocking[1].to_batches() for n in batch["id"].to_pylist()] == every
        assert blocking[2].count() == 4
        assert then.to_arrow()["id"].to_pylist() == every[:3], "the newest snapshot by that time"


def test_a_log_is_read_as_it_was_at_a_time_and_between_offsets(server: ServerProcess) -> None:
    with lake_table(server, buckets=1) as (_, table, tierer):
        moments = []
        for number in range(6):
            table.append(rows(number))
            table.flush()
            stamp = table.changelog(start={0: number}).to_arrow()["_commit_timestamp"][0].as_py()
            moments.append(stamp)
            while dt.datetime.now(dt.UTC) <= stamp + dt.timedelta(milliseconds=2):
                pass  # the next batch has another commit time
            if number == 3:
                tierer.round(table)
        for number, moment in enumerate(moments):
            assert table.scan(at=moment).to_arrow()["id"].to_pylist() == list(range(number))
            assert table.scan(start=moment).to_arrow()["id"].to_pylist() == list(range(number, 6))
        for start in range(7):
            for end in range(7):
                found = table.scan(start=start, end=end).to_arrow()["id"].to_pylist()
                assert found == list(range(start, end))


def test_a_plan_can_be_sent_elsewhere(server: ServerProcess) -> None:
    with lake_table(server, primary_key="id") as (_, table, tierer):
        table.upsert(rows(1, 2, 3))
        tierer.round(table)
        table.upsert(rows(2, name="new"))
        table.flush()
        plan = table.scan().plan()
        table.upsert(rows(9))
        table.flush()
        again = pickle.loads(pickle.dumps(plan))
        found = table.read_plan(again).to_arrow()
        assert sorted(found["name"].to_pylist()) == ["n1", "n3", "new2"]


def test_the_async_face_reads_both_tiers_too(server: ServerProcess) -> None:
    with lake_table(server) as (_, table, tierer):
        table.append(rows(1, 2))
        tierer.round(table)
        table.append(rows(3))
        table.flush()

        async def read() -> tuple[list[int], list[int], int]:
            async with await aio.connect(server.address) as db:
                found = await db.table(table.name)
                whole = await found.scan().to_arrow()
                parts = [
                    n async for batch in found.scan(["id"]).to_batches() for n in batch["id"].to_pylist()
                ]
                return whole["id"].to_pylist(), parts, await found.count()

        assert asyncio.run(read()) == ([1, 2, 3], [1, 2, 3], 3)


def test_without_the_lake_extra_a_hot_read_works_and_a_lake_read_says_what_to_install(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    from strom.errors import NotInstalled

    with lake_table(server) as (_, table, tierer):
        table.append(rows(1))
        tierer.round(table)
        table.append(rows(50))
        table.flush()
        for name in (
            "strom.lake.iceberg.catalogs",
            "strom.lake.iceberg.table",
            "strom.lake.iceberg.snapshot_files",
        ):
            monkeypatch.setitem(__import__("sys").modules, name, None)
        with strom.connect(server.address) as fresh:
            other = fresh.table(table.name)
            assert other.scan(where="id > 40").to_arrow()["id"].to_pylist() == [50]
            assert other.scan(tier="hot").count() == 2
            with pytest.raises(NotInstalled, match=r"pip install 'strom\[lake\]'"):
                other.scan().to_arrow()


def test_a_limit_amid_a_file_ends_the_rows_however_they_are_read(server: ServerProcess) -> None:
    with lake_table(server, file_rows=9) as (_, table, tierer):
        table.append(rows(*range(20)))
        table.flush()
        tierer.round(table)
        table.append(rows(*range(20, 30)))
        table.flush()

        async def read(limit: int) -> int:
            async with await aio.connect(server.address) as db:
                found = await db.table(table.name)
                return sum([batch.num_rows async for batch in found.scan(limit=limit).to_batches()])

        for limit in (0, 1, 4, 9, 13, 25, 30, 99):
            assert asyncio.run(read(limit)) == min(limit, 30)
            assert table.scan(limit=limit).to_arrow().num_rows == min(limit, 30)


def test_two_system_tables_in_one_query_are_two(server: ServerProcess) -> None:
    with lake_table(server, buckets=3) as (db, table, tierer):
        table.append(rows(*range(20)))
        table.flush()
        tierer.round(table)
        name = table.name.partition(".")[2] or table.name
        query = (
            f'SELECT (SELECT count(*) FROM "{name}$snapshots") s, (SELECT count(*) FROM "{name}$offsets") o'
        )
        with db.sql(query) as found:
            assert found.to_arrow().to_pylist() == [{"s": 1, "o": 3}]
