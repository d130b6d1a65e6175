"""`strom lake drop`: what is left of tables that were dropped, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import strom
from lake.drill_place import COLUMNS, LAKE, House, ids, put, record_of
from strom.client.admin.lake_admin import Heartbeat, LakeAdmin
from strom.errors import InvalidRequest, LakeOfAnotherTable, LakeSnapshotNotFound, LakeUnavailable
from strom.lake.files.storage import Storage
from strom.lake.iceberg.catalogs import LakeCatalog
from strom.lake.iceberg.lake_report import report_of

pytestmark = pytest.mark.slow

OFF = {"table.datalake.enabled": "false"}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def folders(house: House, database: str = "fluss") -> list[str]:
    return sorted(one.name for one in (house.warehouse / database).iterdir())


def test_what_is_left_of_a_dropped_table_goes_and_other_tables_stay(house: House) -> None:
    with house.open() as (db, tierer):
        for name in ("t", "t2"):
            table = db.create_table(name, COLUMNS, buckets=1, properties=LAKE)
            put(table, 1, 2, 3)
            tierer.round(table)
        gone = db.table("t").table_id
        db.drop_table("t")
        found = db.lake_drop("t", dry_run=True)
        assert [(one.table_id, one.names, one.rows) for one in found.removed] == [(gone, ("t",), 3)]
        assert len(folders(house)) == 2, "only looked"
        db.lake_drop("t")
        assert folders(house) == [f"t2-{db.table('t2').table_id}"]
        assert tierer.catalog.tables("fluss") == ["t2"]
        with pytest.raises(LakeSnapshotNotFound, match="nothing of a table"):
            db.lake_drop("t")
        assert ids(db.table("t2").scan(tier="lake")) == [1, 2, 3]


def test_tables_that_had_a_name_before_never_mix_with_the_one_that_has_it(house: House) -> None:
    with house.open() as (db, tierer):
        for life in range(3):
            table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
            assert ids(table.scan()) == []
            put(table, life)
            assert ids(table.scan()) == [life]
            tierer.round(table)
            put(table, 10 + life)
            assert ids(table.scan()) == ids(db.sql("SELECT id FROM t")) == [life, 10 + life]
            assert ids(table.scan(tier="lake")) == [life]
            if life < 2:
                db.drop_table("t")
        assert len(folders(house)) == 3
        assert len(db.lake_drop("t").removed) == 2
        assert folders(house) == [f"t-{table.table_id}"]
        assert ids(table.scan()) == [2, 12]
        with pytest.raises(InvalidRequest, match="switch that off first"):
            db.lake_drop("t")
        assert ids(table.scan()) == [2, 12]


@pytest.mark.parametrize("part", ["data", "metadata", ""])
def test_a_removal_that_was_interrupted_is_finished(
    house: House, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    with house.open() as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(table, 1)
        tierer.round(table)
        db.drop_table("t")
        really = Storage.delete_folder

        def dies(self: Storage, uri: str) -> None:
            if uri.endswith(f"/{part}" if part else f"-{table.table_id}"):
                raise LakeUnavailable("killed")
            really(self, uri)

        with monkeypatch.context() as patched:
            patched.setattr(Storage, "delete_folder", dies)
            with pytest.raises(LakeUnavailable, match="killed"):
                db.lake_drop("t")
        assert tierer.catalog.tables("fluss") == []
        (house.warehouse / "fluss" / "t-mine").mkdir()
        (house.warehouse / "fluss" / "t-1-7").mkdir()
        (one,) = db.lake_drop("t").removed
        assert (one.names, one.rows, one.table_id) == ((), None, table.table_id)
        assert folders(house) == ["t-1-7", "t-mine"]


def test_a_folder_that_nothing_shows_to_be_ours_stays(house: House) -> None:
    with house.open() as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(table, 1)
        tierer.round(table)
        db.drop_table("t")
        tierer.catalog.drop(table.info.path)
        with pytest.raises(LakeSnapshotNotFound, match=rf"t-{table.table_id} stays: .* remove the folder"):
            db.lake_drop("t")
        assert folders(house) == [f"t-{table.table_id}"]


def test_the_folder_of_a_table_that_exists_is_its_own_also_when_the_catalog_is_lost(house: House) -> None:
    with house.open() as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(table, 1)
        tierer.round(table)
        tierer.catalog.drop(table.info.path)
        table.alter(set=OFF)
        (one,) = db.lake_drop("t").removed
        assert (one.names, one.table_id) == ((), table.table_id)
        assert folders(house) == []


@pytest.mark.parametrize("alike", [True, False], ids=["the same id", "another id"])
def test_a_lake_of_another_cluster_that_shares_the_warehouse_stays(tmp_path: Path, alike: bool) -> None:
    warehouse = tmp_path / "shared"

    def place(name: str) -> dict[str, str]:
        return {"lake_warehouse": f"file://{warehouse}", "lake_catalog_uri": f"{tmp_path}/{name}.db"}

    theirs, ours = House(tmp_path / "theirs"), House(tmp_path / "ours")
    with (
        theirs.open(**place("theirs")) as (their_db, their_tierer),
        ours.open(**place("ours")) as (db, tierer),
    ):
        other = their_db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(other, 1, 2, 3)
        their_tierer.round(other)
        if not alike:
            db.create_table("first", COLUMNS)
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        assert (table.table_id == other.table_id) == alike
        put(table, 7)
        db.lake_take_over()  # without that it is refused before it comes to this
        if alike:
            with pytest.raises(LakeOfAnotherTable, match="belongs to another lake table"):
                tierer.round(table)
        else:
            tierer.round(table)
        db.drop_table("t")
        found = db.lake_drop("t", dry_run=True)
        left = f"file://{warehouse}/fluss/t-{other.table_id}"
        assert found.others == (left,)
        assert [one.files for one in found.removed] == [not alike]
        db.lake_drop("t")
        assert tierer.catalog.tables("fluss") == []
        assert [one.name for one in (warehouse / "fluss").iterdir()] == [f"t-{other.table_id}"]
        assert ids(other.scan(tier="lake")) == [1, 2, 3]
        with pytest.raises(LakeSnapshotNotFound, match="may be another cluster's"):
            db.lake_drop("t")
        assert ids(other.scan(tier="lake")) == [1, 2, 3]


def test_a_lake_that_lives_on_after_its_removal_failed_is_no_leftover_to_another_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = tmp_path / "shared"

    def place(name: str) -> dict[str, str]:
        return {"lake_warehouse": f"file://{warehouse}", "lake_catalog_uri": f"{tmp_path}/{name}.db"}

    def fails(*_: Any) -> None:
        raise LakeUnavailable("the catalog is away")

    theirs, ours = House(tmp_path / "theirs"), House(tmp_path / "ours")
    with (
        theirs.open(**place("theirs")) as (their_db, their_tierer),
        ours.open(**place("ours")) as (db, _),
    ):
        other = their_db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(other, 1, 2, 3)
        their_tierer.round(other)
        other.alter(set=OFF)
        with monkeypatch.context() as patched:
            patched.setattr(LakeCatalog, "drop", fails)
            with pytest.raises(LakeUnavailable, match="away"):
                their_db.lake_drop("t")
        other.alter(set=LAKE)
        put(other, 4)
        their_tierer.round(other)
        assert ids(other.scan(tier="lake")) == [1, 2, 3, 4]
        with pytest.raises(LakeSnapshotNotFound, match="may be another cluster's"):
            db.lake_drop("t")
        assert ids(other.scan(tier="lake")) == [1, 2, 3, 4]


@pytest.mark.parametrize("key", [None, "id"])
def test_a_table_whose_lake_is_given_up_is_tiered_anew(house: House, key: str | None) -> None:
    with house.open() as (db, tierer):
        options: dict[str, Any] = {"primary_key": key} if key else {}
        table = db.create_table("t", COLUMNS, buckets=2, properties=LAKE, **options)
        put(table, *range(10))
        tierer.round(table)
        put(table, 10, 11)
        table.alter(set=OFF)
        found = db.lake_drop("t")
        assert found.own
        assert record_of(db, table) is None
        assert folders(house) == []
        assert ids(table.scan()) == list(range(12)), "its servers have all of it"
        table.alter(set=LAKE)
        put(table, 12)
        tierer.round(table)
        put(table, 13)
        assert ids(table.scan(tier="lake")) == list(range(13))
        assert ids(table.scan()) == list(range(14))


def test_a_round_that_reports_when_its_lake_is_gone_is_not_believed(house: House) -> None:
    """Retention would drop rows of which it says that the lake has them."""
    with house.open() as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=2, properties=LAKE)
        put(table, *range(10))
        head = tierer.round(table, end="commit")
        admin = LakeAdmin(db.session.cluster)
        beat = db.session.run(admin.heartbeat(Heartbeat("late", wants=1, tables=[table.table_id])))
        (held,) = beat.assigned
        table.alter(set=OFF)
        assert db.lake_drop("t").own
        told = admin.report(table.table_id, report_of(head), service_id="late", round=held.round)
        assert "not copied" in db.session.run(told)
        assert record_of(db, table) is None
        assert ids(table.scan()) == list(range(10))
        table.alter(set=LAKE)
        tierer.round(table)
        assert ids(table.scan(tier="lake")) == list(range(10))


def test_a_record_whose_lake_is_lost_is_given_up_too(house: House) -> None:
    with house.open() as (db, tierer):
        table: strom.Table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(table, 1)
        tierer.round(table)
        tierer.catalog.drop(table.info.path)
        tierer.catalog.storage.delete_folder(f"{tierer.catalog.storage.warehouse}/fluss/t-{table.table_id}")
        table.alter(set=OFF)
        assert db.lake_drop("t").removed == ()
        assert record_of(db, table) is None
        assert ids(table.scan()) == [1]


def test_a_dropped_tables_lake_goes_also_when_its_metadata_is_lost(house: House) -> None:
    with house.open() as (db, tierer):
        for name in ("t", "t2"):
            table = db.create_table(name, COLUMNS, buckets=1, properties=LAKE)
            put(table, 1)
            tierer.round(table)
        gone = db.table("t").table_id
        db.drop_table("t")
        for path in (house.warehouse / "fluss" / f"t-{gone}" / "metadata").glob("*.metadata.json"):
            path.unlink()
        (one,) = db.lake_drop("t").removed
        assert (one.table_id, one.names, one.rows) == (gone, ("t",), None)
        assert tierer.catalog.tables("fluss") == ["t2"]
        assert folders(house) == [f"t2-{db.table('t2').table_id}"]
