"""pyfluss on a primary-key table: this version says no, at once, instead of leaving it waiting."""

from __future__ import annotations

import asyncio

import fluss
import pyarrow as pa
import pytest

from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


def test_an_upsert_and_a_lookup_are_refused_at_once(server: ServerProcess) -> None:
    async def run() -> None:
        async with await fluss.FlussConnection.create(
            fluss.Config({"bootstrap.servers": server.address})
        ) as peer:
            path = fluss.TablePath("fluss", "refused_keys")
            schema = fluss.Schema(pa.schema([("id", pa.int32()), ("name", pa.string())]), primary_keys=["id"])
            await peer.get_admin().create_table(path, fluss.TableDescriptor(schema), True)
            table = await peer.get_table(path)
            handle = table.new_upsert().create_writer().upsert({"id": 1, "name": "ann"})
            with pytest.raises(fluss.FlussError, match="primary-key"):
                await handle.wait()
            with pytest.raises(fluss.FlussError, match="primary-key"):
                await table.new_lookup().create_lookuper().lookup({"id": 1})

    asyncio.run(asyncio.wait_for(run(), 30))
