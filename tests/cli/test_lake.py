"""``strom lake``: what is in the lake, and how far it is behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import strom.aio
from cli.command import Ran
from cli.command import strom as run
from strom.client.admin.lake_admin import Heartbeat, LakeAdmin
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeReport
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


def _rows(ran: Ran) -> list[dict[str, Any]]:
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def test_the_lag_of_a_table_in_rows_and_seconds(either: ServerProcess) -> None:
    name = f"cli_lake_{either.address.rpartition(':')[2]}"

    async def prepare() -> None:
        db = await strom.aio.connect(either.address)
        tiered = {"table.datalake.enabled": "true"}
        table = await db.create_table(name, {"id": "BIGINT"}, buckets=1, properties=tiered)
        await table.append([{"id": number} for number in range(10)])
        await db.flush()
        assert (await db.lake(name)).lag_ms is None, "no round yet"
        admin = LakeAdmin(db.session.cluster)
        (one,) = (await admin.heartbeat(Heartbeat("s", wants=1, tables=[table.info.table_id]))).assigned
        held = LakeReport(7, {LakeKey(None, 0): Tiered(4, 0)}, rows=4, files=1, size_bytes=99)
        assert await admin.report(table.info.table_id, held, service_id="s", round=one.round) is None
        status = await db.lake(name)
        assert (status.lag_rows, status.state) == (6, "active")
        assert status.lag_ms is not None
        assert [bucket.lake_offset for bucket in status.buckets] == [4]
        assert "6 rows" in repr(status)
        await db.close()

    asyncio.run(prepare())
    (row,) = _rows(run("lake", "status", name, "-o", "json", server=either.address))
    assert (row["lag rows"], row["rows"], row["files"], row["state"]) == (6, 4, 1, "active")
    assert row["lag s"] >= 0
    (bucket,) = _rows(run("lake", "status", name, "--buckets", "-o", "json", server=either.address))
    assert (bucket["in the lake up to"], bucket["written up to"], bucket["lag rows"]) == (4, 10, 6)
    listed = _rows(run("lake", "list", "-o", "json", server=either.address))
    assert [one["snapshot"] for one in listed if one["table"].endswith(name)] == [7]
    shown = run("lake", "status", server=either.address).out
    assert name in shown
    assert max(map(len, shown.splitlines())) <= 80
    whole = run("lake", "status", name, server=either.address).out
    assert ["files", "1"] in [line.split() for line in whole.splitlines()]
    assert max(map(len, whole.splitlines())) <= 80
    assert run("table", "drop", name, server=either.address).code == 0


def test_a_lake_without_tables_says_what_to_do_within_80_columns(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        ran = run("lake", "status", server=server.address)
    assert ran.code == 0
    assert "table.datalake.enabled" in ran.err
    assert max(map(len, ran.err.splitlines())) <= 80
