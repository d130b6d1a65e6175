"""`strom lake rebuild --roll-back` where no snapshot of Strom's is left: it has an answer to everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.update import RemovePropertiesUpdate

from lake.foreign.test_foreign_reads import DAYS, KEYS, LOG, ids, put
from lake.foreign_upkeep import (
    commit_as_others,
    expire_all_but_the_head,
    rewrite_data_and_deletes,
    rows_of,
    their_file,
)
from lake.read.test_union_edges import let_retention_drop
from lake.union_place import lake_table
from strom.errors import LakeForeignCommit
from strom.lake.iceberg.held_files import HeldFile, held_files
from strom.lake.iceberg.lake_head import read_head
from strom.lake.iceberg.summary import HELD
from strom.lake.iceberg.table import LakeTable
from strom.testing.process import ServerProcess


def _changed(lake: LakeTable, change: Callable[[pa.Table], pa.Table]) -> None:
    """Every file with other rows, and everything behind them expired."""
    held = held_files(lake.refresh())

    def anew(file: HeldFile) -> Any:
        return their_file(lake, change(rows_of(lake, held, file)), file)

    old = [file.path for file in held.data] if change is not _again else []
    commit_as_others(lake, added=[anew(file) for file in held.data], removed=old, rewrite=False)
    rewrite_data_and_deletes(lake)
    expire_all_but_the_head(lake)
    with pytest.raises(LakeForeignCommit, match="--roll-back"):
        read_head(lake)


def _again(rows: pa.Table) -> pa.Table:
    """Appended once more."""
    return rows


def _with_other_values(rows: pa.Table) -> pa.Table:
    names = rows.schema.names
    return rows.set_column(
        names.index("id"), rows.schema.field("id"), pa.array([77] * rows.num_rows, pa.int64())
    )


def _without_the_first(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


@pytest.mark.parametrize("kind", [LOG, KEYS], ids=["log", "keys"])
def test_rows_that_others_added_are_taken_out_again(server: ServerProcess, kind: dict[str, Any]) -> None:
    """Those of ``a`` where they lie, because only the lake has them; ``b`` comes anew from the servers."""
    with lake_table(server, DAYS, **kind) as (db, table, tierer):
        put(table, "a", 1, 2, 3)
        put(table, "b", 10, 11)
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        _changed(tierer.lake_table(table), _again)
        looked = db.lake_rebuild(table.name, roll_back=True, dry_run=True)
        assert looked.told == (
            "bucket 0 of partition a: 3 rows of somebody else deleted",
            "bucket 0 of partition b may have other rows than it should: the next round brings it anew",
        )
        with pytest.raises(LakeForeignCommit):
            read_head(tierer.lake_table(table))
        assert db.lake_rebuild(table.name, roll_back=True).told == looked.told
        assert ids(table.scan()) == [1, 2, 3, 10, 11]
        assert ids(table.scan(tier="lake")) == [1, 2, 3]
        put(table, "b", 12)
        head = tierer.round(table)
        assert ids(table.scan()) == ids(table.scan(tier="lake")) == [1, 2, 3, 10, 11, 12]
        assert head.totals.rows == 6
        assert read_head(tierer.lake_table(table)) == head
        assert not db.lake_rebuild(table.name, roll_back=True).changed


@pytest.mark.parametrize("kind", [LOG, KEYS], ids=["log", "keys"])
def test_rows_that_others_deleted_come_back_or_are_told_to_be_lost(
    server: ServerProcess, kind: dict[str, Any]
) -> None:
    with lake_table(server, DAYS, **kind) as (db, table, tierer):
        put(table, "a", 1, 2, 3)
        put(table, "b", 10, 11)
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        _changed(tierer.lake_table(table), _without_the_first)
        told = db.lake_rebuild(table.name, roll_back=True).told
        assert told[0] == "bucket 0 of partition a: 1 row lost, below offset 3"
        left = ids(table.scan(where="day = 'a'"))
        assert len(left) == 2
        assert ids(table.scan()) == [*left, 10, 11]
        tierer.round(table)
        assert ids(table.scan(tier="lake")) == [*left, 10, 11]


def test_where_nothing_of_ours_is_left_in_the_lake_the_clusters_record_tells(server: ServerProcess) -> None:
    with lake_table(server, DAYS, **LOG) as (db, table, tierer):
        put(table, "a", 1, 2, 3)
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        lake = tierer.lake_table(table)
        lake.commit(RemovePropertiesUpdate(removals=[HELD]), requirements=())
        rewrite_data_and_deletes(lake)
        expire_all_but_the_head(lake)
        for entry in lake.metadata.metadata_log:
            lake.storage.delete(entry.metadata_file)
        with pytest.raises(LakeForeignCommit, match="no snapshot of Strom's is left"):
            read_head(lake)
        (told,) = db.lake_rebuild(table.name, roll_back=True).told
        assert "may have other values than before" in told, (
            "all rows are there; what was done to them nobody knows"
        )
        assert ids(table.scan()) == [1, 2, 3]
        put(table, "b", 4)
        tierer.round(table)
        assert ids(table.scan(tier="lake")) == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", [LOG, KEYS], ids=["log", "keys"])
def test_rows_that_others_updated_come_anew_or_are_told_of(
    server: ServerProcess, kind: dict[str, Any]
) -> None:
    """Their offsets are what they were; that an overwrite was among what is expired, the metadata's log still says."""
    with lake_table(server, DAYS, **kind) as (db, table, tierer):
        put(table, "a", 1, 2)
        put(table, "b", 10, 11)
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        _changed(tierer.lake_table(table), _with_other_values)
        assert db.lake_rebuild(table.name, roll_back=True).told == (
            "bucket 0 of partition a: its rows are in files of somebody else, and may have other values than before",
            "bucket 0 of partition b may have other rows than it should: the next round brings it anew",
        )
        tierer.round(table)
        assert (
            ids(table.scan(where="day = 'b'")) == ids(table.scan(tier="lake", where="day = 'b'")) == [10, 11]
        )
