"""Union reads and rounds after other engines' maintenance: every row once, also those that only the lake has."""

from __future__ import annotations

from typing import Any

import pytest

from lake.foreign_upkeep import (
    Step,
    commit_as_others,
    expire_all_but_the_head,
    forget_all_but_the_head,
    remove_orphans,
    rewrite_data_files,
    rewrite_deletes,
    rewrite_manifests,
    rows_of,
    their_file,
)
from lake.read.test_union_edges import let_retention_drop
from lake.union_place import lake_table
from strom.errors import LakeDisabled, LakeForeignCommit, LakeQuarantined
from strom.lake.iceberg.held_files import held_files
from strom.lake.iceberg.lake_head import read_head
from strom.lake.read.warehouses import BELIEVED_S
from strom.testing.process import ServerProcess

DAYS = {"day": "STRING", "id": "BIGINT"}
LOG: dict[str, Any] = {"partition_by": "day", "buckets": 1}
KEYS: dict[str, Any] = {"partition_by": "day", "buckets": 1, "primary_key": ["day", "id"]}
ORDERS: list[tuple[Step, ...]] = [
    (rewrite_data_files, expire_all_but_the_head),
    (rewrite_manifests, forget_all_but_the_head, remove_orphans),
    (rewrite_data_files, rewrite_deletes, expire_all_but_the_head, rewrite_data_files, remove_orphans),
]


def ids(scan: Any) -> list[int]:
    """The ids of a scan or query, sorted."""
    return sorted(scan.to_arrow()["id"].to_pylist())


def put(table: Any, day: str, *numbers: int) -> None:
    rows = {"day": [day] * len(numbers), "id": list(numbers)}
    (table.upsert if table.primary_key else table.append)(rows)
    table.flush()


@pytest.mark.parametrize("kind", [LOG, KEYS], ids=["log", "keys"])
@pytest.mark.parametrize("order", ORDERS, ids=["files", "manifests", "all"])
def test_reads_and_rounds_go_on(server: ServerProcess, kind: dict[str, Any], order: tuple[Step, ...]) -> None:
    """Partition ``a`` is in the lake alone, ``b`` has dead rows, and rows that no round has brought yet."""
    with lake_table(server, DAYS, file_rows=2, **kind) as (db, table, tierer):
        put(table, "a", 1, 2, 3)
        put(table, "b", 10, 11, 12)
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        if table.primary_key:
            put(table, "b", 11)
            table.delete({"day": ["b"], "id": [12]})
        tierer.round(table)
        put(table, "b", 13)
        expected = [1, 2, 3, 10, 11, 13] if table.primary_key else [1, 2, 3, 10, 11, 12, 13]
        assert ids(table.scan()) == expected, "and the snapshot's files are known to this connection"
        for step in order:
            step(tierer.lake_table(table))
        assert ids(table.scan()) == expected
        assert table.scan(where="day = 'a'").count() == 3
        assert ids(table.scan(tier="lake")) == [one for one in expected if one != 13]
        assert sorted(db.sql(f"SELECT id FROM {table.name}").to_arrow()["id"].to_pylist()) == expected
        tierer.round(table)
        put(table, "b", 14)
        assert ids(table.scan()) == [*expected, 14]
        assert ids(table.scan(tier="lake")) == expected
        assert db.lake(table.name).facts.rows == len(expected)
        counts = db.table(f"{table.name}$snapshots").scan(columns=["rows"]).to_arrow()["rows"]
        assert counts.to_pylist()[-2:] == [len(expected) - 1, len(expected)], "foreign and ours"


def test_a_query_after_an_expiry_by_others_finds_the_files_of_now(server: ServerProcess) -> None:
    """Its connection knows the files of the snapshot that is gone; a moment later it asks whether it is still there."""
    with lake_table(server, DAYS, **LOG) as (db, table, tierer):
        put(table, "a", 1, 2, 3)
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        clock = db.session.face.session.warehouses._clock = _Later()
        question = f"SELECT id FROM {table.name}"
        assert ids(db.sql(question)) == [1, 2, 3]
        rewrite_data_files(tierer.lake_table(table))
        expire_all_but_the_head(tierer.lake_table(table))
        clock.now += BELIEVED_S
        assert ids(db.sql(question)) == [1, 2, 3]


class _Later:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)


@pytest.mark.parametrize("kind", [LOG, KEYS], ids=["log", "keys"])
def test_what_others_changed_is_not_read_and_what_the_servers_have_is(
    server: ServerProcess, kind: dict[str, Any]
) -> None:
    with lake_table(server, DAYS, **kind) as (_, table, tierer):
        put(table, "a", 1, 2, 3)
        put(table, "b", 10)
        tierer.round(table)
        lake = tierer.lake_table(table)
        held = held_files(lake)
        commit_as_others(lake, added=[their_file(lake, rows_of(lake, held, held.data[0]), held.data[0])])
        rewrite_data_files(lake)
        expire_all_but_the_head(lake)
        assert ids(table.scan()) == [1, 2, 3, 10], "the servers have all of it"
        with pytest.raises(LakeQuarantined, match="changed by another engine"):
            table.scan(tier="lake").to_arrow()
        with pytest.raises(LakeForeignCommit):
            read_head(lake)


def test_an_empty_table_of_the_lake_has_no_rows_there(server: ServerProcess) -> None:
    """Before its first round, and after one that found nothing."""
    with lake_table(server, DAYS) as (db, table, tierer):
        for _ in range(2):
            assert ids(table.scan(tier="lake")) == []
            for system in ("lake", "snapshots"):
                assert db.table(f"{table.name}${system}").scan().to_arrow().num_rows == 0
            tierer.round(table)
        table.alter(set={"table.datalake.enabled": "false"})
        with pytest.raises(LakeDisabled, match="is not in the lake"):
            table.scan(tier="lake").to_arrow()
