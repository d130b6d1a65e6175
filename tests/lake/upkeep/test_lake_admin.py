"""What a person asks of a lake while rounds go on: nothing that a round told is undone, nothing needed goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lake.union_place import lake_table, rows
from strom.client.admin.lake_admin import LakeAdmin
from strom.errors import TableNotFound
from strom.lake.iceberg.lake_head import LakeHead
from strom.lake.upkeep.maintenance import Maintenance, Upkept
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("meanwhile", [False, True], ids=["alone", "beside a round"])
def test_the_record_is_that_of_the_newest_snapshot_after_a_compaction(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    with lake_table(server, primary_key="id", buckets=1) as (db, table, tierer):
        for number in range(3):
            table.upsert(rows(number, 100))
            tierer.round(table)
        landed: list[LakeHead] = []
        compact = Maintenance.compact

        def compacted(*given: Any, **named: Any) -> Upkept:
            done = compact(*given, **named)
            if meanwhile and not landed:
                table.upsert(rows(7))
                landed.append(tierer.round(table))
            return done

        with monkeypatch.context() as patched:
            patched.setattr(Maintenance, "compact", compacted)
            done = db.lake_compact(table.name)
        assert (done.files_before, done.files_after, done.rows_removed) == (3, 1, 2)
        newest = landed[0] if meanwhile else done.head
        assert newest is not None
        status = db.lake(table.name)
        assert (status.facts.snapshot_id, status.lag_rows) == (newest.snapshot_id, 0)
        assert (status.facts.files, status.facts.rows) == (newest.totals.files, newest.totals.rows)
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [
            0,
            1,
            2,
            *([7] if meanwhile else []),
            100,
        ]


def test_the_snapshot_that_the_cluster_knows_outlives_an_expiry_by_hand(server: ServerProcess) -> None:
    few = {"table.datalake.snapshots.keep": 1, "table.datalake.snapshots.keep-time": "0 s"}
    with lake_table(server, buckets=1) as (db, table, tierer):
        table.alter(set=few)
        known = []
        for number in range(3):
            table.append(rows(number))
            known.append(tierer.round(table).snapshot_id)
        for number in range(3, 6):  # rounds that land, and the cluster does not hear of them
            table.append(rows(number))
            tierer.round(table, end="commit")
        assert db.lake_expire(table.name).snapshots_expired == 4
        assert db.lake(table.name).facts.snapshot_id == known[-1]
        assert table.scan(at=known[-1]).to_arrow()["id"].to_pylist() == [0, 1, 2]
        assert table.scan().to_arrow()["id"].to_pylist() == list(range(6))


def test_a_rebuild_of_a_table_that_was_made_again_meanwhile_is_refused(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake_table(server, buckets=1) as (db, table, tierer):
        table.append(rows(1))
        tierer.round(table)
        describe = LakeAdmin.describe

        async def of_the_next(*given: Any) -> Any:
            facts = await describe(*given)
            return replace(facts, table_id=facts.table_id + 1)

        monkeypatch.setattr(LakeAdmin, "describe", of_the_next)
        with pytest.raises(TableNotFound, match="recreated"):
            db.lake_rebuild(table.name)
