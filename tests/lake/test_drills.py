"""Disaster drills: a clear error on the table that it is about, and the others go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import strom
from lake.drill_place import COLUMNS, LAKE, House, ids, put
from lake.small_tierer import SmallTierer
from strom.errors import LakeAhead, LakeCorrupt, LakeUnavailable, StromError
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey

pytestmark = pytest.mark.slow


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def two_tables(db: strom.Database, tierer: SmallTierer, key: str | None = None) -> list[strom.Table]:
    """One that will be struck, and one that will not: rows 1 to 6 in the lake, 7 on the servers."""
    made = []
    for name in ("struck", "sound"):
        options: dict[str, Any] = {"primary_key": key} if key else {}
        table = db.create_table(name, COLUMNS, buckets=1, properties=LAKE, **options)
        put(table, 1, 2, 3, 4)
        tierer.round(table)
        put(table, *((4, 5, 6) if key else (5, 6)))
        tierer.round(table)
        put(table, 7)
        assert ids(table.scan()) == [1, 2, 3, 4, 5, 6, 7]
        made.append(table)
    return made


def files(house: House, table: strom.Table, ending: str) -> list[Path]:
    """The lake's files of a table whose names end so, oldest first."""
    folder = house.warehouse / "fluss" / f"struck-{table.table_id}"
    found = [one for one in folder.rglob(f"*{ending}") if ending != ".parquet" or "deletes" not in one.name]
    assert found, ending
    return sorted(found, key=lambda one: one.stat().st_mtime_ns)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def overwritten(path: Path) -> None:
    path.write_bytes(b"\x00" * path.stat().st_size)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


DAMAGE = [Path.unlink, cut, overwritten, emptied]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_data_file_that_is_missing_or_damaged_is_named_and_hot_reads_and_other_tables_go_on(
    house: House, damage: Callable[[Path], None]
) -> None:
    with house.open() as (db, tierer):
        struck, sound = two_tables(db, tierer)
        path = files(house, struck, ".parquet")[0]
        damage(path)
    with house.open() as (db, tierer):
        struck, sound = db.table("struck"), db.table("sound")
        reads: list[Callable[[], Any]] = [
            lambda: struck.scan().to_arrow(),
            lambda: struck.scan(where="id < 3").to_arrow(),
            lambda: struck.scan(columns=["name"]).to_arrow(),
            lambda: db.sql("SELECT sum(id) FROM struck").to_arrow(),
            lambda: db.sql("SELECT * FROM struck WHERE id < 3").to_arrow(),
        ]
        for read in reads:
            with pytest.raises(LakeCorrupt, match=path.name):
                read()
        assert ids(struck.scan(where="id > 6")) == ids(db.sql("SELECT id FROM struck WHERE id > 6")) == [7]
        assert ids(struck.scan(tier="hot")) == [1, 2, 3, 4, 5, 6, 7]
        assert ids(sound.scan()) == [1, 2, 3, 4, 5, 6, 7]
        put(struck, 8)
        tierer.round(struck)
        assert ids(struck.scan(where="id > 6")) == [7, 8], "rounds need no old file of a log"


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_of_deletes_that_is_missing_or_damaged_is_an_error_and_never_a_row_too_many(
    house: House, damage: Callable[[Path], None]
) -> None:
    with house.open() as (db, tierer):
        struck, sound = two_tables(db, tierer, "id")
        (path,) = files(house, struck, "-deletes.parquet")
        damage(path)
    with house.open() as (db, _):
        struck, sound = db.table("struck"), db.table("sound")
        for read in (struck.scan().to_arrow, db.sql("SELECT id FROM struck").to_arrow):
            with pytest.raises(LakeCorrupt, match=path.name):
                read()
        assert struck.lookup({"id": 4}) == {"id": 4, "name": "n4"}
        assert ids(struck.scan(tier="hot")) == ids(sound.scan()) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("damage", [cut, overwritten, emptied])
def test_a_damaged_file_of_offsets_stops_the_round_that_needs_it_and_without_it_rounds_go_on(
    house: House, damage: Callable[[Path], None]
) -> None:
    with house.open() as (db, tierer):
        table = db.create_table("struck", COLUMNS, buckets=1, properties=LAKE, primary_key="id")
        put(table, 1, 2, 3, 4)
        put(table, 2)
        tierer.round(table)
        (path,) = files(house, table, ".offsets")
        before = path.read_bytes()
        damage(path)
        put(table, 1)
        with pytest.raises(LakeCorrupt, match=path.name):
            tierer.round(table)
        assert ids(table.scan()) == [1, 2, 3, 4], "reads need it not"
        path.unlink()
        tierer.round(table)
        assert ids(table.scan(tier="lake")) == [1, 2, 3, 4]
        assert before, "its column tells the same"


@pytest.mark.parametrize("what", ["snap-", ".metadata.json"])
def test_lost_metadata_of_a_lake_table_is_an_error_of_that_table_alone(house: House, what: str) -> None:
    with house.open() as (db, tierer):
        struck, sound = two_tables(db, tierer)
        for path in files(house, struck, ""):
            if what in path.name:
                path.unlink()
    with house.open() as (db, _):
        struck, sound = db.table("struck"), db.table("sound")
        with pytest.raises(LakeCorrupt, match="missing or damaged"):
            struck.scan().to_arrow()
        assert ids(struck.scan(where="id > 6")) == [7]
        assert ids(sound.scan()) == [1, 2, 3, 4, 5, 6, 7]


def test_a_catalog_that_is_down_is_told_and_reads_that_need_no_lake_go_on(house: House) -> None:
    with house.open() as (db, tierer):
        two_tables(db, tierer)
    away = house.folder.parent / "catalog.db"
    with strom.open(house.folder) as db:
        shutil.move(house.warehouse / "catalog.db", away)
        (house.warehouse / "catalog.db").mkdir()
        table = db.table("struck")
        for read in (table.scan().to_arrow, lambda: db.lake_rebuild("struck")):
            with pytest.raises(LakeUnavailable, match="does not answer"):
                read()
        assert ids(table.scan(where="id > 6")) == ids(db.sql("SELECT id FROM struck WHERE id = 7")) == [7]
        put(table, 8)
        assert ids(table.scan(where="id > 6")) == [7, 8]
        (house.warehouse / "catalog.db").rmdir()
        shutil.move(away, house.warehouse / "catalog.db")
        assert ids(table.scan()) == [1, 2, 3, 4, 5, 6, 7, 8], "once it is back, the same connection reads"


def test_a_lost_catalog_is_not_taken_for_an_empty_lake(house: House) -> None:
    with house.open() as (db, tierer):
        two_tables(db, tierer)
    (house.warehouse / "catalog.db").unlink()
    with strom.open(house.folder) as db:
        for read in (db.table("struck").scan().to_arrow, lambda: db.lake_rebuild("struck")):
            with pytest.raises(LakeCorrupt, match="the catalog was lost"):
                read()
        assert ids(db.table("struck").scan(where="id > 6")) == [7]


def test_a_log_that_is_older_than_its_lake_is_read_from_the_lake_and_goes_on_behind_it(house: House) -> None:
    """A data folder from a backup, and the lake of today."""
    with house.open() as (db, tierer):
        struck = db.create_table("struck", COLUMNS, buckets=1, properties=LAKE)
        sound = db.create_table("sound", COLUMNS, buckets=1, properties=LAKE)
        for table in (struck, sound):
            put(table, 1, 2, 3)
        table_id = struck.table_id
    backup = house.folder.parent / "backup"
    shutil.copytree(house.folder / "buckets" / str(table_id), backup)
    with house.open() as (db, tierer):
        for name in ("struck", "sound"):
            put(db.table(name), 4, 5)
            head = tierer.round(db.table(name))
            if name == "struck":
                place = head.offsets[LakeKey(None, 0)]
            put(db.table(name), 6)
    shutil.rmtree(house.folder / "buckets" / str(table_id))
    shutil.copytree(backup, house.folder / "buckets" / str(table_id))
    with house.open() as (db, tierer):
        struck, sound = db.table("struck"), db.table("sound")
        assert ids(struck.scan()) == ids(db.sql("SELECT id FROM struck")) == [1, 2, 3, 4, 5]
        with pytest.raises(LakeAhead, match="strom tier"), struck.writer() as writer:
            writer.append({"id": [7], "name": ["x"]})
        with pytest.raises(LakeAhead):
            tierer.round(struck)
        put(sound, 7)
        tierer.round(sound)
        assert ids(sound.scan(tier="lake")) == [1, 2, 3, 4, 5, 6, 7]
        admin = tierer._door
        tierer._run(admin.resume(struck.info, BucketId(table_id, None, 0), place))
        with struck.writer() as writer:
            writer.append({"id": [8], "name": ["x"]})
        assert ids(struck.scan()) == [1, 2, 3, 4, 5, 8]
        tierer.round(struck)
        assert ids(struck.scan(tier="lake")) == [1, 2, 3, 4, 5, 8]


def test_an_error_of_one_table_is_a_strom_error_with_its_table(house: House) -> None:
    with house.open() as (db, tierer):
        struck, _ = two_tables(db, tierer)
        files(house, struck, ".parquet")[0].unlink()
        db.lake_rebuild("struck")
        with pytest.raises(StromError) as found:
            db.sql("SELECT count(s.name) FROM struck s JOIN sound USING (id)").to_arrow()
        assert isinstance(found.value, LakeCorrupt)
