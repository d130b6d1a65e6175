"""The same with await."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from api.place import EVENTS, events, ids_of, new_name
from strom import aio
from strom.client.write import delivery
from strom.errors import ConnectionClosed, Disconnected, SchemaMismatch, StromError
from strom.runtime import loops
from strom.testing.process import ServerProcess


def run(main: Coroutine[Any, Any, None], *, plain: bool = False) -> None:
    with asyncio.Runner(loop_factory=asyncio.new_event_loop if plain else loops.new_event_loop) as runner:
        runner.run(main)


@pytest.mark.parametrize("plain", [True, False], ids=["asyncio", "uvloop"])
def test_append_scan_and_tail(either: ServerProcess, plain: bool) -> None:
    async def main() -> None:
        async with await aio.connect(either.address) as db:
            table = await db.create_table(new_name(), EVENTS, buckets=2)
            await table.append(events(*range(100)))
            assert sorted(ids_of(await table.scan().to_arrow())) == list(range(100))
            found = [batch async for batch in table.scan(where="id < 10", columns=["id"]).to_batches()]
            assert sorted(ids_of(pa.Table.from_batches(found))) == list(range(10))
            assert await table.count() == 100
            assert await table.scan(where="id >= 90").count() == 10
            assert (await table.scan(limit=3).to_pandas()).shape == (3, 3)
            assert (await table.scan(limit=3).to_polars()).shape == (3, 3)
            assert len((await table.scan(limit=3).to_duckdb()).fetchall()) == 3
            tail = await table.tail().ready()
            await table.append(events(100))
            assert ids_of((await anext(tail)).data) == [100]
            await tail.aclose()
            assert [batch async for batch in table.tail(idle=0.1)] == []
            status = await table.describe()
            assert status.rows == 101
            await db.drop_table(table.name)

    run(main(), plain=plain)


def test_a_writer_waits_for_its_rows_when_it_is_closed(server: ServerProcess) -> None:
    async def main() -> None:
        async with await aio.connect(server.address) as db:
            table = await db.create_table(new_name(), EVENTS)
            async with table.writer(compression="lz4", batch_bytes=4096) as writer:
                for start in range(0, 10_000, 1000):
                    await writer.append(events(*range(start, start + 1000)))
            assert await table.count() == 10_000
            with pytest.raises(ConnectionClosed):
                await writer.append(events(1))
            with pytest.raises(SchemaMismatch):
                await table.append([{"nix": 1}])
            await db.drop_table(table.name)

    run(main())


def test_many_tasks_use_one_connection(server: ServerProcess) -> None:
    async def main() -> None:
        async with await aio.connect(server.address) as db:
            table = await db.create_table(new_name(), EVENTS)

            async def one(number: int) -> int:
                await table.append(events(number))
                await table.flush()
                return await table.scan(where=f"id = {number}").count()

            assert await asyncio.gather(*(one(number) for number in range(50))) == [1] * 50
            await db.drop_table(table.name)

    run(main())


def test_a_tail_can_be_cancelled_and_go_on(server: ServerProcess) -> None:
    async def main() -> None:
        async with await aio.connect(server.address) as db:
            table = await db.create_table(new_name(), EVENTS)
            async with table.tail() as tail:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await anext(tail)
                await table.append(events(1))
                assert ids_of((await anext(tail)).data) == [1]
            await db.drop_table(table.name)

    run(main())


def test_a_folder_is_a_server_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "data") as db:
            table = await db.create_table("t", EVENTS)
            await table.append(events(1))
            assert await table.count() == 1

    run(main())


def test_nobody_there_and_closed_are_told(server: ServerProcess) -> None:
    async def main() -> None:
        with pytest.raises(Disconnected, match="strom up"):
            await aio.connect("127.0.0.1:1")
        db = await aio.connect(server.address)
        table = await db.create_table(new_name(), EVENTS)
        await db.drop_table(table.name)
        await db.close()
        with pytest.raises(ConnectionClosed):
            await db.tables()
        with pytest.raises(StromError):
            await table.count()

    run(main())


def test_primary_key_tables_with_await(either: ServerProcess) -> None:
    async def main() -> None:
        async with await aio.connect(either.address) as db:
            users = await db.create_table(
                new_name(), EVENTS, primary_key="id", buckets=2, indexes={"by_name": "name"}
            )
            await users.upsert(events(*range(20)))
            await users.upsert({"id": [3], "price": [99.0]}, columns=["id", "price"])
            await users.delete([4, 5])
            assert await users.lookup(3) == {"id": 3, "name": "n3", "price": 99.0}
            assert await users.lookup({"id": 4}, columns=["name"]) is None
            assert ids_of(await users.lookup_many([7, 4, 6])) == [7, None, 6]
            assert ids_of(await users.lookup_index("by_name", "n9")) == [9]
            assert await users.count() == 18
            assert sorted(ids_of(await users.scan(where="price < 3").to_arrow())) == [0, 1, 2]
            assert (await users.scan(where="id = 3").to_arrow()).num_rows == 1
            kinds = (await users.changelog(columns=["id"]).to_arrow()).column("_change_type").to_pylist()
            assert sorted(kinds) == ["+I"] * 20 + ["+U", "-D", "-D", "-U"]
            await users.create_index("by_price", ["price"])
            assert (await users.indexes())["by_price"].state == "ready"
            await users.drop_index("by_price")
            assert (await users.lookup(3, at_least=users.last_written)) is not None
            async with users.writer() as writer:
                await writer.upsert(events(50))
                await writer.delete(50)
                await writer.flush()
                assert await users.lookup(50, at_least=writer.written) is None
            status = await users.describe()
            assert status.keys is not None
            assert (status.rows, status.keys.live_rows) == (18, 18)
            await db.drop_table(users.name)

    run(main())


def test_every_lookup_sees_what_this_connection_wrote(server: ServerProcess) -> None:
    """Rows may still be on their way: whoever wrote them finds them, by whatever they are asked for."""

    async def main() -> None:
        async with await aio.connect(server.address) as db:
            columns = {"city": "STRING", "id": "BIGINT", "name": "STRING"}
            key = {"primary_key": ["city", "id"], "bucket_key": "city", "buckets": 2}
            table = await db.create_table(new_name(), columns, **key)
            await table.create_index("by_name", "name")
            asked = {
                "key": lambda row: table.lookup_many([{"city": row["city"], "id": row["id"]}]),
                "prefix": lambda row: table.lookup_prefix({"city": row["city"]}),
                "index": lambda row: table.lookup_index("by_name", row["name"]),
            }
            for number, (way, ask) in enumerate(asked.items()):
                row = {"city": way, "id": number, "name": f"of {way}"}
                await table.upsert([row])
                assert (await ask(row)).to_pylist() == [row], way

    run(main())


def test_a_server_of_this_process_stops_with_its_database(tmp_path: Path) -> None:
    async def main() -> None:
        for count in range(2):
            db = await aio.open(tmp_path / "data")
            address = db.address
            assert len(await db.tables()) == count
            await db.create_table(f"t{count}", {"id": "BIGINT"})
            await db.close()
            await db.close()
            with pytest.raises(Disconnected):
                await aio.connect(address)

    run(main())


def test_rows_given_while_a_connection_closes_are_refused(server: ServerProcess) -> None:
    async def main() -> None:
        async with await aio.connect(server.address) as there:
            kept = await there.create_table(new_name(), EVENTS)
            async with await aio.connect(server.address) as db:
                table = await db.table(kept.name)
                await table.append(events(*range(1000)))
                closing = asyncio.create_task(db.close())
                accepted = 1000
                try:
                    while True:
                        await table.append(events(accepted))
                        accepted += 1
                        await asyncio.sleep(0)
                except ConnectionClosed:
                    await closing
            assert await kept.count() == accepted

    run(main())


def test_a_writer_that_is_opened_twice_at_once_loses_no_row(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = delivery.new_writer_id, 0

    async def main() -> None:
        async with await aio.connect(server.address) as db:
            table = await db.create_table(new_name(), EVENTS)
            writer = table.writer()

            async def answered(*where: Any) -> int:
                nonlocal asked
                asked += 1
                late = asked == 2
                found = await ask(*where)
                while late and not writer.has_outstanding():  # noqa: ASYNC110 - overtaken by the first rows
                    await asyncio.sleep(0)
                return found

            monkeypatch.setattr(delivery, "new_writer_id", answered)
            await asyncio.gather(writer.append(events(*range(100))), writer.open())
            await writer.close()
            assert asked == 2
            assert await table.count() == 100

    run(main())


def test_a_handle_follows_its_name_to_a_recreated_table(server: ServerProcess) -> None:
    async def main() -> None:
        async with await aio.connect(server.address) as db, await aio.connect(server.address) as other:
            table = await db.create_table(new_name(), EVENTS)
            await table.append(events(1))
            await table.flush()
            await other.drop_table(table.name)
            made = await other.create_table(table.name, EVENTS)
            assert (await table.refresh()).table_id == made.table_id
            await table.append(events(2, 3))
            await table.flush()
            assert await made.count() == 2

    run(main())
