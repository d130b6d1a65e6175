"""A bucket goes away while something else happens: nothing is left behind, and nothing of others is taken."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import strom
from integration.wire import Wire, encoded
from strom.errors import StorageOffline, UnknownBucket
from strom.log.sync import PendingCheckpoint
from strom.model.bucket import BucketId
from strom.protocol import api_keys as api
from strom.protocol.messages import tables
from strom.runtime.clock import SystemClock
from strom.runtime.files import LocalFiles
from strom.server.calls.writes import INLINE_BYTES_MAX
from strom.server.process.local import LocalServer
from strom.server.tablets.tablet_slot import TabletSlot
from strom.server.tablets.tablets import _redefined
from strom.tablet.log_tablet import LogTablet
from strom.tablet.tablet import Accepted
from waiting import until_blocking

SCHEMA = pa.schema([("a", pa.int64())])


class SlowCheckpoints:
    """Checkpoints that wait until they are told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.written = 0
        write = PendingCheckpoint.write

        def waiting(pending: PendingCheckpoint) -> None:
            self.begun.set()
            assert self.go_on.wait(20)
            write(pending)
            self.written += 1

        monkeypatch.setattr(PendingCheckpoint, "write", waiting)


@pytest.fixture
def checkpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowCheckpoints]:
    slow = SlowCheckpoints(monkeypatch)
    yield slow
    slow.go_on.set()


def fill(table: strom.Table) -> None:
    """More than a checkpoint's worth of rows."""
    table.append(pa.table({"a": np.random.default_rng(1).integers(0, 1 << 60, 40_000)}))
    table.flush()


def test_a_table_dropped_beside_its_checkpoint_leaves_no_files(
    tmp_path: Path, checkpoints: SlowCheckpoints
) -> None:
    data = tmp_path / "data"
    with LocalServer(data, {"log.checkpoint.bytes": "64kb"}) as server, strom.connect(server.address) as db:
        fill(db.create_table("t", SCHEMA))
        assert checkpoints.begun.wait(20)
        db.drop_table("t")
        checkpoints.go_on.set()
        until_blocking(lambda: not list((data / "buckets").iterdir()))
        assert not list((data / "buckets").iterdir())


def test_a_stop_beside_a_checkpoint_is_clean(tmp_path: Path, checkpoints: SlowCheckpoints) -> None:
    with LocalServer(tmp_path / "data", {"log.checkpoint.bytes": "64kb"}) as server:
        with strom.connect(server.address) as db:
            fill(db.create_table("t", SCHEMA))
            assert checkpoints.begun.wait(20)
        threading.Timer(0.2, checkpoints.go_on.set).start()
    assert checkpoints.written
    assert not (tmp_path / "data" / "running.json").exists(), "a clean stop removes it"


def test_an_append_beside_the_drop_of_its_table_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody syncs a dropped bucket any more, so nobody must wait for that."""
    begun, go_on = threading.Event(), threading.Event()
    append = LogTablet.append

    def slow(tablet: LogTablet, records: memoryview, **named: Any) -> Accepted:
        accepted = append(tablet, records, **named)
        if len(records) > INLINE_BYTES_MAX:
            begun.set()
            assert go_on.wait(20)
        return accepted

    monkeypatch.setattr(LogTablet, "append", slow)
    large = encoded(pa.record_batch([np.arange(INLINE_BYTES_MAX // 8 + 1)], schema=SCHEMA))

    async def main(address: str) -> None:
        async with Wire(address) as writer, Wire(address) as other:
            table = await writer.create("t", SCHEMA)
            appending = asyncio.ensure_future(writer.produce(table, large))
            await asyncio.to_thread(begun.wait, 20)
            path = tables.WireTablePath(database_name="fluss", table_name="t")
            await other.call(
                api.DROP_TABLE, tables.DropTableRequest(table_path=path, ignore_if_not_exists=False)
            )
            go_on.set()
            with pytest.raises(UnknownBucket):
                await asyncio.wait_for(appending, 5)

    with LocalServer(tmp_path / "data") as server:
        asyncio.run(main(server.address))


def test_a_dropped_partition_does_not_take_a_new_one_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's folder looks empty for a moment: when the old partition is gone and the new one not yet there."""
    empty, go_on = threading.Event(), threading.Event()
    look = LocalFiles.list

    def slow(files: LocalFiles, folder: str) -> list[str]:
        found = look(files, folder)
        if folder.endswith("/buckets/1") and not found:
            empty.set()
            go_on.wait(20)
        return found

    schema = pa.schema([("a", pa.int64()), ("p", pa.string())])
    with LocalServer(tmp_path / "data") as server, strom.connect(server.address) as db:
        table = db.create_table("t", schema, partition_by=["p"])
        table.append([{"a": 1, "p": "old"}])
        table.flush()
        monkeypatch.setattr(LocalFiles, "list", slow)
        table.drop_partition({"p": "old"})
        empty.wait(1.0)
        table.append([{"a": 2, "p": "new"}])
        table.flush()
        go_on.set()
        until_blocking(lambda: len(list((tmp_path / "data" / "buckets" / "1").iterdir())) == 1)
    with LocalServer(tmp_path / "data") as server, strom.connect(server.address) as db:
        assert db.table("t").scan().to_arrow()["a"].to_pylist() == [2]


def test_the_folder_of_a_bucket_nobody_touched_since_the_start_goes_with_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalServer(str(tmp_path)) as server, strom.connect(server.address) as db:
        table = db.create_table("t", SCHEMA)
        table.append({"a": [1]})
        table.flush()
    (folder,) = (tmp_path / "buckets").iterdir()
    monkeypatch.setattr("strom.server.tablets.tablets.OPEN_MAX", 0)  # nothing is opened in the background
    with LocalServer(str(tmp_path)) as server, strom.connect(server.address) as db:
        db.drop_table("t")
        until_blocking(lambda: not folder.exists())
        assert not folder.exists()


def test_a_change_of_a_table_that_is_dropped_meanwhile_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        slot = TabletSlot(BucketId(1, None, 0), None, None, SystemClock())  # type: ignore[arg-type]
        for error in (UnknownBucket("bucket 1/-/0 was dropped"), StorageOffline("the disk is gone")):
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_exception(error)
            _redefined(slot, done)

    asyncio.run(main())
    assert ["disk is gone" in record.getMessage() for record in caplog.records] == [True]
