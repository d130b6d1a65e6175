"""A primary-key bucket whose own files are lost is made anew from the lake's rows, and goes on behind them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import strom
from lake.drill_place import LAKE, House, ids
from lake.small_tierer import SmallTierer
from strom.errors import InvalidRequest, LakeAhead, LakeCorrupt, StaleEpoch, StromError
from strom.lake.iceberg.lake_head import read_head
from strom.lake.read.live_rows import live_rows
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey
from strom.server.tablets.tablet_slot import TabletSlot

pytestmark = pytest.mark.slow

COLUMNS = {"id": "BIGINT", "name": "STRING", "big": "BOOLEAN", "tags": "ARRAY<STRING>"}
BUCKETS = 2


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def people(*numbers: int, name: str = "n") -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "name": f"{name}{number % 7}",
            "big": None if number % 3 else number > 9,
            "tags": ["a"] * (number % 4),
        }
        for number in numbers
    ]


def created(db: strom.Database) -> strom.Table:
    return db.create_table(
        "k", COLUMNS, buckets=BUCKETS, primary_key="id", properties=LAKE, indexes={"by_name": "name"}
    )


def upsert(table: strom.Table, rows: list[dict[str, Any]]) -> None:
    with table.writer() as writer:
        writer.upsert(rows)


def rows_of(found: Any) -> list[dict[str, Any]]:
    return sorted(found.to_arrow().to_pylist(), key=lambda row: row["id"])


def prepared(house: House, *, compact: bool = False) -> list[dict[str, Any]]:
    """A table in the lake, and changes that are not: then all its local files are lost. What the lake has."""
    with house.open() as (db, tierer):
        table = created(db)
        upsert(table, people(*range(40)))
        tierer.round(table)
        upsert(table, people(*range(5, 20), name="again"))
        with table.writer() as writer:
            writer.delete([{"id": number} for number in range(0, 40, 10)])
        tierer.round(table)
        if compact:
            assert tierer.compact(table, report=True).head is not None
        kept = rows_of(table.scan(tier="lake"))
        upsert(table, people(1, 2, 99, name="lost"))
        table_id = table.table_id
    shutil.rmtree(house.folder / "buckets" / str(table_id))
    return kept


def restore(tierer: SmallTierer, table: strom.Table, bucket: int, rows: Any = None) -> int:
    lake = tierer.lake_table(table)
    head = read_head(lake)
    assert head.snapshot_id is not None
    found = live_rows(lake, head.snapshot_id, (None, bucket)) if rows is None else rows
    place = head.offsets[LakeKey(None, bucket)]
    epoch: int = tierer._run(
        tierer._door.restore(table.info, BucketId(table.table_id, None, bucket), place, found)
    )
    assert epoch > place.epoch
    return epoch


def check(db: strom.Database, table: strom.Table, want: list[dict[str, Any]]) -> None:
    """Whatever way it is asked for, the table holds these rows."""
    assert (
        rows_of(table.scan(tier="hot")) == rows_of(table.scan()) == rows_of(db.sql("SELECT * FROM k")) == want
    )
    assert table.count() == len(want)
    for row in want:
        assert table.lookup({"id": row["id"]}) == row
    assert table.lookup({"id": 0}) is None
    for name in {row["name"] for row in want} | {"lost1", "n0"}:
        found = table.lookup_index("by_name", {"name": name}).to_pylist()
        assert sorted(row["id"] for row in found) == [row["id"] for row in want if row["name"] == name]


def test_rows_lookups_and_indexes_are_the_lakes_and_writes_and_rounds_go_on(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strom.client.admin.lake_admin.PIECE_BYTES", 500)
    want = prepared(house)
    with house.open() as (db, tierer):
        table = db.table("k")
        with pytest.raises(LakeAhead, match="strom tier"):
            upsert(table, people(7))
        assert rows_of(table.scan()) == want, "read from the lake alone"
        epochs = [restore(tierer, table, bucket) for bucket in range(BUCKETS)]
        assert epochs == [restore(tierer, table, bucket) for bucket in range(BUCKETS)], (
            "asked again, the same"
        )
        check(db, table, want)
    model = {row["id"]: row for row in want}
    with house.open() as (db, tierer):
        table = db.table("k")
        check(db, table, want)
        changed = people(3, 5, 100, 101, name="new")
        upsert(table, changed)
        with table.writer() as writer:
            writer.delete([{"id": 6}, {"id": 100}])
        model |= {row["id"]: row for row in changed}
        del model[6], model[100]
        check(db, table, sorted(model.values(), key=lambda row: row["id"]))
        tierer.round(table)
        assert rows_of(table.scan(tier="lake")) == sorted(model.values(), key=lambda row: row["id"])
    with house.open() as (db, tierer):
        check(db, db.table("k"), sorted(model.values(), key=lambda row: row["id"]))


def test_a_crash_before_the_restored_store_is_in_its_place_loses_nothing(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = prepared(house)
    with house.open() as (db, tierer):
        table = db.table("k")

        async def die(*_: Any) -> None:
            raise OSError("the machine stopped")

        with monkeypatch.context() as patched:
            patched.setattr(TabletSlot, "reopen", die)
            for bucket in range(BUCKETS):
                with pytest.raises(StromError, match="internal error"):
                    restore(tierer, table, bucket)
        assert len(list((house.folder / "buckets").rglob("kv.restored"))) == BUCKETS
    with house.open() as (db, tierer):
        check(db, db.table("k"), want)
        assert not list((house.folder / "buckets").rglob("kv.restor*"))


@pytest.mark.parametrize("foreign", [False, True])
def test_rows_of_files_that_were_written_anew_come_back_too(
    house: House, monkeypatch: pytest.MonkeyPatch, foreign: bool
) -> None:
    """After a compaction; and as if it were another engine's, whose files may hold rows in any order."""
    want = prepared(house, compact=True)
    with house.open() as (db, tierer):
        table = db.table("k")
        if foreign:
            monkeypatch.setattr("strom.lake.read.live_rows.is_own", lambda _: False)
        for bucket in range(BUCKETS):
            restore(tierer, table, bucket)
        check(db, table, want)
        upsert(table, people(5, name="new"))
        tierer.round(table)
        assert rows_of(table.scan(tier="lake")) == rows_of(table.scan(tier="hot"))


def test_rows_that_cannot_be_the_buckets_are_refused_and_nothing_changes(house: House) -> None:
    prepared(house)
    with house.open() as (db, tierer):
        table = db.table("k")
        lake = tierer.lake_table(table)
        head = read_head(lake)
        assert head.snapshot_id is not None
        found = list(live_rows(lake, head.snapshot_id, (None, 0)))
        offsets, batch = found[0]
        for wrong in (
            [(offsets, batch), (offsets, batch)],
            [(offsets + 10_000, batch)],
            [(offsets[:2], batch.take([0, 0]))],
        ):
            with pytest.raises(LakeCorrupt):
                restore(tierer, table, 0, wrong)
        place = head.offsets[LakeKey(None, 0)]
        other = place._replace(offset=place.offset + 1)
        with pytest.raises(InvalidRequest, match="record says"):
            tierer._run(tierer._door.restore(table.info, BucketId(table.table_id, None, 0), other, found))
        assert ids(table.scan(tier="hot")) == []
        restore(tierer, table, 0)
        assert ids(table.scan(tier="hot")) == sorted(
            number for _, rows in found for number in rows.column("id").to_pylist()
        )


@pytest.mark.parametrize("between", ["at once", "opened again"])
def test_a_bucket_that_took_writes_after_its_loss_is_not_made_anew_over_them(
    house: House, between: str
) -> None:
    """While the table was not copied nobody held writes back; then it is, and the lake has more than the bucket."""
    backup = house.folder.parent / "backup"
    with house.open() as (db, tierer):
        table = created(db)
        upsert(table, people(*range(10)))
        tierer.round(table)
        buckets = house.folder / "buckets" / str(table.table_id)
    shutil.copytree(buckets, backup)
    with house.open() as (db, tierer):
        table = db.table("k")
        upsert(table, people(*range(40)))
        tierer.round(table)
        table.alter(set={"table.datalake.enabled": "false"})
    shutil.rmtree(buckets)
    shutil.copytree(backup, buckets)
    # This opening has the lake's epoch again, which the backup does not know of; the next one has a later one.
    with house.open() as (db, tierer):
        upsert(db.table("k"), people(3, 4, 5, 6, name="early"))
    with house.open() as (db, tierer):
        table = db.table("k")
        upsert(table, people(3, 4, 5, 6, name="late"))
        table.alter(set=LAKE)
        if between == "at once":
            refused(tierer, table)
    with house.open() as (db, tierer):
        table = db.table("k")
        refused(tierer, table)
        late = [row for row in rows_of(table.scan(tier="hot")) if row["name"].startswith("late")]
        assert late == people(3, 4, 5, 6, name="late"), "what was acknowledged is there"


def refused(tierer: SmallTierer, table: strom.Table) -> None:
    """Neither bucket is made anew."""
    for bucket in range(BUCKETS):
        with pytest.raises(StaleEpoch, match="took writes"):
            restore(tierer, table, bucket)


def test_a_server_remembers_few_unfinished_restores_and_who_was_forgotten_begins_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strom.client.admin.lake_admin.PIECE_BYTES", 200)
    monkeypatch.setattr("strom.server.calls.lake.lake_resume.RESTORES_MAX", 1)
    want = prepared(house)
    with house.open() as (db, tierer):
        table = db.table("k")
        lake = tierer.lake_table(table)
        head = read_head(lake)
        assert head.snapshot_id is not None
        rows = [list(live_rows(lake, head.snapshot_id, (None, bucket))) for bucket in range(BUCKETS)]

        async def side_by_side() -> list[Any]:
            begun = [
                tierer._door.restore(
                    table.info,
                    BucketId(table.table_id, None, bucket),
                    head.offsets[LakeKey(None, bucket)],
                    rows[bucket],
                )
                for bucket in range(BUCKETS)
            ]
            return await asyncio.gather(*begun, return_exceptions=True)

        found = tierer._run(side_by_side())
        [forgotten] = [bucket for bucket in range(BUCKETS) if isinstance(found[bucket], StromError)]
        assert isinstance(found[forgotten], InvalidRequest)
        assert "start again" in str(found[forgotten])
        restore(tierer, table, forgotten)
        check(db, table, want)
