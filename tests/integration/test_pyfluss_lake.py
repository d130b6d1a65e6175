"""pyfluss on tables that are in the lake: it is told that they are, never in which format, and works as before."""

from __future__ import annotations

import asyncio
from typing import Any

import fluss
import pyarrow as pa
import pytest

import strom.aio
from integration.peer import connected, make_table, poll_rows, run, write
from integration.test_pyfluss_keys import get, make, upsert
from strom import connect
from strom.client.admin.lake_admin import LakeAdmin
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeReport
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

KEYED = pa.schema([("region", pa.string()), ("id", pa.int64()), ("name", pa.string())])
TIERED = {"table.datalake.enabled": "true"}


def tell(server: ServerProcess, name: str, offset: int) -> None:
    """As if a round had copied the table's first bucket up to an offset."""

    async def main() -> None:
        db = await strom.aio.connect(server.address)
        table = await db.table(name)
        report = LakeReport(7, {LakeKey(None, 0): Tiered(offset, 0)})
        admin = LakeAdmin(db.session.cluster)
        assert await admin.report(table.info.table_id, report, service_id="s", rebuild=True) is None
        await db.close()

    asyncio.run(main())


@pytest.mark.parametrize("keys", [["id"], ["region", "id"]])
def test_upserts_and_lookups_find_the_same_rows_from_both_clients(
    either: ServerProcess, keys: list[str]
) -> None:
    """A client that knew the lake's format would encode keys, and choose buckets, by that format's rules."""
    named: list[str] = []

    async def test() -> None:
        async with connected(either.address) as peer:
            path, table = await make(peer, KEYED, keys, "lake_keys", bucket_count=3, properties=TIERED)
            named.append(path.table_name)
            await upsert(table, *({"region": f"r{i % 3}", "id": i, "name": f"n{i}"} for i in range(50)))
            info = await peer.get_admin().get_table_info(path)
            assert "table.datalake.format" not in info.get_properties()
            assert info.get_properties()["table.datalake.enabled"] == "true"

    run(test)
    with connect(either.address) as db:
        table = db.table(named[0])
        ours = [{"region": f"r{i % 3}", "id": i, "name": f"ours{i}"} for i in range(0, 50, 2)]
        table.upsert(ours)
        db.flush()
        assert table.count() == 50, "each key lies in one bucket, whoever wrote it"

    async def again() -> None:
        async with connected(either.address) as peer:
            table = await peer.get_table(fluss.TablePath("fluss", named[0]))
            for number in (0, 1, 2, 49):
                key: dict[str, Any] = {"region": f"r{number % 3}", "id": number}
                found = await get(table, **{name: key[name] for name in keys})
                expected = f"ours{number}" if number % 2 == 0 else f"n{number}"
                assert found == {**key, "name": expected}

    run(again)


def test_a_log_table_in_the_lake_is_appended_to_and_read_from_its_beginning(either: ServerProcess) -> None:
    named: list[str] = []

    async def test() -> None:
        async with connected(either.address) as peer:
            path, table = await make_table(peer, KEYED, "lake_log", bucket_count=1, properties=TIERED)
            named.append(path.table_name)
            rows = pa.record_batch([["a"] * 5, list(range(5)), ["x"] * 5], schema=KEYED)
            await write(table, rows)

    async def after_a_round() -> None:
        async with connected(either.address) as peer:
            path = fluss.TablePath("fluss", named[0])
            table = await peer.get_table(path)
            snapshot = await peer.get_admin().get_latest_lake_snapshot(path)
            assert snapshot.snapshot_id == 7
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe(0, 0)
            assert [one.offset for one in await poll_rows(scanner, 5)] == list(range(5))

    run(test)
    tell(either, named[0], 3)
    run(after_a_round)
