"""The upkeep of primary-key buckets beside their use: indexes, columns, merges, drops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration.key_wire import KeyTable
from integration.wire import Wire
from server.calls.test_key_calls import people, row, serve
from strom.errors import IndexNotFound, UnknownBucket
from strom.model.data_type import String
from strom.protocol import api_keys as api
from strom.protocol.messages import own, tables
from strom.server.background import key_jobs
from waiting import until


async def alter(wire: Wire, name: str, **changes: object) -> None:
    path = tables.WireTablePath(database_name="fluss", table_name=name)
    await wire.call(
        api.ALTER_TABLE, own.AlterTableRequest(table_path=path, changes_json=json.dumps(changes).encode())
    )


def test_an_index_can_be_made_and_dropped_while_the_table_is_used(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire)
        await table.upsert([row(number, f"group {number % 10}") for number in range(5000)])
        with pytest.raises(IndexNotFound):
            await table.lookup([{"name": "group 3"}], index="by_name")
        await alter(wire, "people", set={"table.index.by_name": "name"})
        await table.upsert([row(3, "other"), row(10_003, "group 3")])

        async def ready() -> bool:
            return [one.state for one in (await table.facts()).indexes] == ["ready"]

        await until(ready, 10.0)
        found = await table.lookup([{"name": "group 3"}], index="by_name", columns=["id"])
        assert sorted(one["id"] for _, one in found) == [*range(13, 5000, 10), 10_003]
        await alter(wire, "people", unset=["table.index.by_name"])
        with pytest.raises(IndexNotFound):
            await table.lookup([{"name": "group 3"}], index="by_name")

    serve(tmp_path, test)


def test_a_column_that_came_later_is_null_in_older_rows(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire)
        await table.upsert([row(1), row(2)])
        await alter(wire, "people", add_columns=[{"name": "city", "data_type": {"type": "STRING"}}])
        newer = KeyTable(wire, table.table_id, table.schema.add_column("city", String()))
        assert await newer.get(id=1) == {**row(1), "city": None}
        await newer.upsert([{**row(2), "city": "Wien"}, {**row(3), "city": "Graz"}])
        # A writer that does not know the column yet writes whole rows without it.
        await table.upsert([row(3, "changed")])
        assert [one for _, one in await newer.lookup([{"id": 2}, {"id": 3}])] == [
            {**row(2), "city": "Wien"},
            {**row(3, "changed"), "city": None},
        ]
        assert await table.get(id=2) == row(2)
        assert {one["id"] for one in (await table.scan()).values()} == {1, 2, 3}

    serve(tmp_path, test)


def test_a_dropped_table_is_gone_also_in_the_middle_of_its_upkeep(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire)
        for number in range(10):
            await table.upsert([row(key, f"v{number}") for key in range(500)])
        path = tables.WireTablePath(database_name="fluss", table_name="people")
        await wire.call(api.DROP_TABLE, tables.DropTableRequest(table_path=path, ignore_if_not_exists=False))
        with pytest.raises(UnknownBucket):
            await table.get(id=1)
        with pytest.raises(UnknownBucket):
            await table.upsert([row(1)])
        folder = tmp_path / "data" if (tmp_path / "data").exists() else tmp_path

        async def gone() -> bool:
            return not list(folder.rglob("kv"))

        await until(gone)
        again = await people(wire)
        assert again.table_id != table.table_id
        assert await again.get(id=1) is None

    serve(tmp_path, test, {"kv.segment.file-size": "16kb", "kv.snapshot.bytes": "16kb"})


def test_files_with_many_dead_rows_are_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By time alone: the rows are dead, and nobody writes any more."""
    monkeypatch.setattr(key_jobs, "ASK_AGAIN_S", 0.1)

    async def test(wire: Wire) -> None:
        table = await people(wire)
        for number in range(60):
            await table.upsert([row(key, f"v{number}" * 10) for key in range(100)])

        async def slim() -> bool:
            facts = await table.facts()
            assert facts.live_rows == 100
            return bool(facts.base_files) and facts.stored_rows is not None and facts.stored_rows < 200

        await until(slim)
        found = await table.lookup([{"id": key} for key in range(100)])
        assert {one["name"] for _, one in found} == {"v59" * 10}

    serve(
        tmp_path,
        test,
        {
            "kv.segment.file-size": "16kb",
            "kv.snapshot.bytes": "16kb",
            "kv.merge.files": 2,
            "kv.scan.lease": "500 ms",
        },
    )
