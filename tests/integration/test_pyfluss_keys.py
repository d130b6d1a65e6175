"""pyfluss on primary-key tables: upsert, delete, partial update, lookups, limit scan, changelog."""

from __future__ import annotations

import asyncio
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fluss
import pyarrow as pa
import pytest

from integration.peer import connected, error_code, fresh_path, poll_rows, run
from strom.errors import MalformedBatch, SchemaMismatch, StromError
from strom.server.process.local import LocalServer
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("age", pa.int64())])


async def make(
    connection: fluss.FlussConnection, schema: pa.Schema, keys: list[str], word: str = "keys", **more: Any
) -> tuple[fluss.TablePath, fluss.FlussTable]:
    path = fresh_path(word)
    descriptor = fluss.TableDescriptor(fluss.Schema(schema, primary_keys=keys), **more)
    await connection.get_admin().create_table(path, descriptor)
    return path, await connection.get_table(path)


async def upsert(table: fluss.FlussTable, *rows: dict[str, Any], columns: list[str] | None = None) -> None:
    making = table.new_upsert()
    if columns is not None:
        making = making.partial_update_by_name(columns)
    writer = making.create_writer()
    handles = [writer.upsert(row) for row in rows]
    await writer.flush()
    for handle in handles:
        await handle.wait()


async def get(table: fluss.FlussTable, **key: Any) -> dict[str, Any] | None:
    found: dict[str, Any] | None = await table.new_lookup().create_lookuper().lookup(key)
    return found


def test_rows_are_written_changed_deleted_and_found(server: ServerProcess) -> None:
    async def test() -> None:
        async with connected(server.address) as peer:
            _, table = await make(peer, SCHEMA, ["id"], bucket_count=3)
            await upsert(table, *({"id": i, "name": f"n{i}", "age": i} for i in range(50)))
            await upsert(table, {"id": 7, "name": "seven", "age": None})
            writer = table.new_upsert().create_writer()
            await writer.delete({"id": 8}).wait()
            assert await get(table, id=7) == {"id": 7, "name": "seven", "age": None}
            assert await get(table, id=9) == {"id": 9, "name": "n9", "age": 9}
            assert await get(table, id=8) is None
            assert await get(table, id=1000) is None

    run(test)


def test_part_of_a_row_is_written_and_the_rest_stays(server: ServerProcess) -> None:
    async def test() -> None:
        async with connected(server.address) as peer:
            _, table = await make(peer, SCHEMA, ["id"])
            await upsert(table, {"id": 1, "name": "ann", "age": 30})
            await upsert(table, {"id": 1, "age": 31}, {"id": 2, "age": 5}, columns=["id", "age"])
            assert await get(table, id=1) == {"id": 1, "name": "ann", "age": 31}
            assert await get(table, id=2) == {"id": 2, "name": None, "age": 5}

    run(test)


def test_the_changelog_tells_every_change(server: ServerProcess) -> None:
    async def test() -> None:
        async with connected(server.address) as peer:
            _, table = await make(peer, SCHEMA, ["id"])
            await upsert(table, {"id": 1, "name": "a", "age": 1})
            await upsert(table, {"id": 1, "name": "b", "age": 2})
            await table.new_upsert().create_writer().delete({"id": 1}).wait()
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe(bucket_id=0, start_offset=0)
            records = await poll_rows(scanner, 4)
            seen = [(str(one.change_type.short_string()), one.offset, one.row["name"]) for one in records]
            assert seen == [("+I", 0, "a"), ("-U", 1, "a"), ("+U", 2, "b"), ("-D", 3, "b")]

    run(test)


def test_the_changelog_without_befores(server: ServerProcess) -> None:
    async def test() -> None:
        async with connected(server.address) as peer:
            _, table = await make(peer, SCHEMA, ["id"], properties={"table.changelog.image": "WAL"})
            await upsert(table, {"id": 1, "name": "a", "age": 1})
            await upsert(table, {"id": 1, "name": "b", "age": 2})
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe(bucket_id=0, start_offset=0)
            records = await poll_rows(scanner, 2)
            assert [one.row["name"] for one in records] == ["a", "b"]
            assert all(one.change_type.short_string() in ("+I", "+U") for one in records)

    run(test)


def test_rows_are_found_by_the_bucket_key(server: ServerProcess) -> None:
    async def test() -> None:
        async with connected(server.address) as peer:
            schema = pa.schema([("user", pa.int32()), ("item", pa.string()), ("count", pa.int64())])
            _, table = await make(peer, schema, ["user", "item"], bucket_count=3, bucket_keys=["user"])
            await upsert(
                table, *({"user": user, "item": item, "count": 1} for user in range(5) for item in "xyz")
            )
            lookuper = table.new_lookup().lookup_by(["user"]).create_lookuper()
            found = await lookuper.lookup({"user": 3})
            assert sorted(row["item"] for row in found) == ["x", "y", "z"]
            assert list(await lookuper.lookup({"user": 77})) == []

    run(test)


def test_a_limited_scan_shows_live_rows(server: ServerProcess) -> None:
    async def test() -> None:
        async with connected(server.address) as peer:
            path, table = await make(peer, SCHEMA, ["id"])
            await upsert(table, *({"id": i, "name": f"n{i}", "age": i} for i in range(20)))
            await upsert(table, *({"id": i, "name": "new", "age": i} for i in range(10)))
            info = await peer.get_admin().get_table_info(path)
            bucket = fluss.TableBucket(info.table_id, 0)
            scanner = table.new_scan().limit(100).create_bucket_batch_scanner(bucket)
            everything = await scanner.to_arrow()
            assert sorted(everything["id"].to_pylist()) == list(range(20))
            assert everything["name"].to_pylist().count("new") == 10
            few = await table.new_scan().limit(7).create_bucket_batch_scanner(bucket).to_arrow()
            assert few.num_rows == 7

    run(test)


def test_values_of_every_type_come_back(server: ServerProcess) -> None:
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("flag", pa.bool_()),
            ("tiny", pa.int8()),
            ("small", pa.int16()),
            ("big", pa.int64()),
            ("real", pa.float32()),
            ("money", pa.decimal128(20, 2)),
            ("raw", pa.binary()),
            ("day", pa.date32()),
            ("clock", pa.time32("ms")),
            ("moment", pa.timestamp("us")),
            ("tags", pa.list_(pa.string())),
        ]
    )
    row = {
        "id": "größe",
        "flag": True,
        "tiny": -5,
        "small": -300,
        "big": -(2**62),
        "real": 1.5,
        "money": Decimal("-123456789012345678.25"),
        "raw": b"\0\xff",
        "day": date(1969, 12, 31),
        "clock": time(23, 59, 59, 999000),
        "moment": datetime(2024, 2, 29, 1, 2, 3, 456789),
        "tags": ["a", None, "long enough to spill"],
    }

    async def test() -> None:
        async with connected(server.address) as peer:
            _, table = await make(peer, schema, ["id"])
            await upsert(table, row, {"id": "empty"})
            found = await get(table, id="größe")
            assert found == row
            empty = await get(table, id="empty")
            assert empty == dict.fromkeys(schema.names) | {"id": "empty"}

    run(test)


def test_a_table_that_refuses_deletes_says_so(server: ServerProcess) -> None:
    async def test() -> None:
        async with connected(server.address) as peer:
            _, table = await make(peer, SCHEMA, ["id"], properties={"table.delete.behavior": "disable"})
            await upsert(table, {"id": 1, "name": "a", "age": 1})
            with pytest.raises(fluss.FlussError) as caught:
                await table.new_upsert().create_writer().delete({"id": 1}).wait()
            assert error_code(caught) == 57
            assert await get(table, id=1) is not None

    run(test)


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ({"table.merge-engine": "first_row"}, {"id": 1, "name": "first", "age": 5}),
        (
            {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "age"},
            {"id": 1, "name": "newest", "age": 9},
        ),
    ],
)
def test_engines_decide_which_row_stays(
    server: ServerProcess, engine: dict[str, str], expected: dict[str, Any]
) -> None:
    async def test() -> None:
        async with connected(server.address) as peer:
            _, table = await make(peer, SCHEMA, ["id"], properties=engine)
            for name, age in (("first", 5), ("newest", 9), ("late", 7)):
                await upsert(table, {"id": 1, "name": name, "age": age})
            assert await get(table, id=1) == expected

    run(test)


@pytest.mark.parametrize("kind", [SchemaMismatch, MalformedBatch])
def test_rows_that_will_never_do_are_not_sent_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[StromError]
) -> None:
    """The peer repeats a batch without end after some codes (3, 14): rows that are wrong must not get one of them."""
    asked = 0

    def refuse(*_: object) -> None:
        nonlocal asked
        asked += 1
        raise kind("these rows will never do")

    monkeypatch.setattr("strom.tablet.key_tablet.decode_kv", refuse)

    async def test() -> None:
        async with connected(local.address) as peer:
            _, table = await make(peer, SCHEMA, ["id"])
            with pytest.raises(fluss.FlussError, match="never do"):
                await asyncio.wait_for(upsert(table, {"id": 1, "name": "ann", "age": 1}), 20)

    with LocalServer(tmp_path / "data") as local:
        run(test)
    assert asked == 1


def test_partitions_keep_their_rows_apart(server: ServerProcess) -> None:
    async def test() -> None:
        async with connected(server.address) as peer:
            schema = pa.schema([("day", pa.string()), ("id", pa.int32()), ("name", pa.string())])
            path = fresh_path("parts")
            descriptor = fluss.TableDescriptor(
                fluss.Schema(schema, primary_keys=["day", "id"]), partition_keys=["day"]
            )
            admin = peer.get_admin()
            await admin.create_table(path, descriptor)
            for day in ("mon", "tue"):
                await admin.create_partition(path, {"day": day})
            table = await peer.get_table(path)
            await upsert(table, *({"day": day, "id": 1, "name": day} for day in ("mon", "tue")))
            assert await get(table, day="mon", id=1) == {"day": "mon", "id": 1, "name": "mon"}
            assert await get(table, day="tue", id=1) == {"day": "tue", "id": 1, "name": "tue"}
            assert await get(table, day="wed", id=1) is None

    run(test)
