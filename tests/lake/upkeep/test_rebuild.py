"""`strom lake rebuild`: what the cluster lost, the lake still tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import strom
from lake.drill_place import COLUMNS, LAKE, House, ids, put, record_of
from lake.small_tierer import SmallTierer
from strom.errors import (
    LakeCorrupt,
    LakeForeignCommit,
    LakeOfAnotherCluster,
    LakeOfAnotherTable,
    LakeQuarantined,
)
from strom.lake.iceberg.lake_head import read_head
from strom.lake.read.union_plan import UnionPlan
from strom.model.lake.lake_record import LakeReport

pytestmark = pytest.mark.slow

KINDS: list[dict[str, Any]] = [{}, {"primary_key": "id"}]
BY_DAY = {"day": "STRING", "id": "BIGINT"}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def told(tierer: SmallTierer, table: strom.Table, report: LakeReport) -> None:
    admin = tierer._door
    assert tierer._run(admin.report(table.table_id, report, service_id="s", rebuild=True)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_record_comes_back_and_tiering_goes_on_with_each_row_once(
    house: House, kind: dict[str, Any]
) -> None:
    with house.open() as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=2, properties=LAKE, **kind)
        put(table, *range(20))
        tierer.round(table)
        put(table, *(range(15, 25) if kind else range(20, 25)))
        tierer.round(table)
        before, table_id = record_of(db, table), table.table_id
    house.lose_record(table_id)
    with house.open() as (db, tierer):
        table = db.table("t")
        assert record_of(db, table) is None
        put(table, 25, 26)
        looked = db.lake_rebuild("t", dry_run=True)
        assert looked.changes == ("there is no record",)
        assert record_of(db, table) is None, "only looked"
        assert db.lake_rebuild("t").changed
        after = record_of(db, table)
        assert before is not None
        assert after is not None
        assert replace(after, committed_ms=0, fresh_ms=0, round=0, facts={}) == replace(
            before, committed_ms=0, fresh_ms=0, round=0, facts={}, readable_low=after.readable_low
        )
        assert not db.lake_rebuild("t").changed, "the second time there is nothing to do"
        model = list(range(27))
        assert ids(table.scan()) == ids(db.sql("SELECT id FROM t")) == model
        plan = table.scan().plan()
        assert isinstance(plan, UnionPlan)
        assert plan.files, "rows of the lake are read from it"
        tierer.round(table)
        assert ids(table.scan(tier="lake")) == ids(table.scan()) == model


def test_an_older_record_is_told_to_be_rebuilt_where_rows_would_be_missing(house: House) -> None:
    """As with metadata from a backup: what retention took since is only in the lake, further than the record says."""
    with house.open() as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(table, 1, 2)
        old = record_of_report(tierer.round(table))
        put(table, 3, 4)
        tierer.round(table)
        told(tierer, table, old)
        assert db.lake_rebuild("t").changes
        assert ids(table.scan(tier="lake")) == [1, 2, 3, 4]


def record_of_report(head: Any) -> LakeReport:
    return LakeReport(head.snapshot_id, head.offsets, head.partitions, bounds=head.bounds)


def test_partitions_that_only_the_lake_has_come_back_too(house: House) -> None:
    with house.open() as (db, tierer):
        table = db.create_table("p", BY_DAY, partition_by="day", buckets=1, properties=LAKE)
        table.append({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        head = tierer.round(table)
        table_id = table.table_id
        # Retention dropped it: the lake alone has its rows.
        told(tierer, table, LakeReport(None, {}))
        table.drop_partition({"day": "a"})
        tierer.report(table_id, head)
        assert ids(table.scan()) == [1, 2, 3]
    house.lose_record(table_id)
    with house.open() as (db, _):
        assert db.lake_rebuild("p").changed
        assert ids(db.table("p").scan()) == [1, 2, 3]


def test_a_lake_of_another_table_id_is_refused_and_nothing_of_it_is_mixed_in(house: House) -> None:
    with house.open() as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(table, 1, 2, 3)
        tierer.round(table)
        db.drop_table("t")
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(table, 7)
        with pytest.raises(LakeOfAnotherTable, match=rf"and fluss.t is table id {table.table_id} now"):
            db.lake_rebuild("t")
        assert record_of(db, table) is None
        assert ids(table.scan()) == [7]
        tierer.round(table)
        assert not db.lake_rebuild("t").changed
        assert ids(table.scan(tier="lake")) == [7]


def test_a_foreign_commit_is_taken_back_on_request_and_the_table_is_tiered_on(house: House) -> None:
    with house.open() as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(table, 1, 2, 3)
        tierer.round(table)
        iceberg = tierer.lake_table(table).iceberg
        iceberg.append(iceberg.scan().to_arrow())
        foreign = iceberg.current_snapshot()
        assert foreign is not None
        record = record_of(db, table)
        assert record is not None
        told(tierer, table, quarantined(record))
        with pytest.raises(LakeQuarantined, match="strom lake rebuild"):
            table.scan(tier="lake").to_arrow()
        assert ids(table.scan()) == [1, 2, 3], "the servers have all of it"
        with pytest.raises(LakeForeignCommit, match="roll-back"):
            db.lake_rebuild("t")
        looked = db.lake_rebuild("t", roll_back=True, dry_run=True)
        assert looked.rolled_back == foreign.snapshot_id
        with pytest.raises(LakeForeignCommit):
            read_head(tierer.lake_table(table))
        made = db.lake_rebuild("t", roll_back=True)
        assert made.rolled_back == foreign.snapshot_id
        assert db.lake("t").state == "active"
        put(table, 4)
        assert ids(table.scan()) == [1, 2, 3, 4]
        tierer.round(table)
        assert ids(table.scan(tier="lake")) == [1, 2, 3, 4]
        again = db.lake_rebuild("t", roll_back=True)
        assert (again.rolled_back, again.changed) == (None, False)


def quarantined(record: Any) -> LakeReport:
    return LakeReport(
        record.snapshot_id,
        record.offsets,
        record.partitions,
        bounds=record.bounds,
        files=record.files,
        rows=record.rows,
        size_bytes=record.size_bytes,
        state="quarantined",
        reason="somebody wrote to it",
    )


def test_a_lake_table_that_lost_its_snapshots_is_not_taken_for_an_empty_one(house: House) -> None:
    with house.open() as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(table, 1, 2, 3)
        tierer.round(table)
        tierer.catalog.drop(table.info.path)
        with pytest.raises(LakeCorrupt, match="catalog was lost"):
            db.lake_rebuild("t")
        (house.warehouse / "fluss" / f"t-{table.table_id}" / "metadata" / "strom-claim.json").unlink()
        tierer.lake_table(table)  # somebody made an empty one in its place
        with pytest.raises(LakeCorrupt, match="is empty"):
            db.lake_rebuild("t")
        record = record_of(db, table)
        assert record is not None
        assert record.rows == 3


def test_a_cluster_that_was_made_anew_takes_nothing_over_from_a_table_of_the_same_id(tmp_path: Path) -> None:
    place = {"lake_warehouse": f"file://{tmp_path}/shared"}
    before, after = House(tmp_path / "before"), House(tmp_path / "after")
    with before.open(**place) as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(table, 1, 2, 3)
        tierer.round(table)
        table_id = table.table_id
    with after.open(**place) as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        assert table.table_id == table_id
        put(table, 7)
        with pytest.raises(LakeOfAnotherCluster, match="take-over"):
            tierer.round(table)
        db.lake_take_over()
        for wrong in (lambda: tierer.round(table), lambda: db.lake_rebuild("t")):
            with pytest.raises(LakeOfAnotherTable, match="created at another time"):
                wrong()
        assert ids(table.scan()) == [7]
        table.alter(set={"table.datalake.enabled": "false"})
        assert [one.rows for one in db.lake_drop("t").removed] == [3]
        table.alter(set=LAKE)
        tierer.round(table)
        assert ids(table.scan(tier="lake")) == ids(table.scan()) == [7]
