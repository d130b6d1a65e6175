"""A real server whose logs go into an object store and from its disk: a folder, and S3. Everybody reads all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fluss
import pyarrow as pa
import pytest

import strom
from cli.command import strom as command
from integration.peer import connected, poll_table, run
from lake.s3_place import BUCKET, KEY, SECRET, S3Server
from strom import col
from strom.testing.process import ServerProcess
from waiting import until_blocking

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])
SETTINGS = {
    "remote.upload.max-age": "100 ms",
    "remote.upload.size": "64kb",
    "log.segment.file-size": "4kb",
    "log.retention.check-interval": "200 ms",
}
PROPERTIES = {
    "table.log.local-ttl": "1 ms",
    "table.log.arrow.compression.type": "NONE",
    "table.statistics.columns": "id",
}
ROWS = 3000


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The settings of a store."""
    if request.param == "folder":
        return {"remote.data.dir": str(tmp_path / "history")}
    s3: S3Server = request.getfixturevalue("s3")
    return {
        "remote.data.dir": f"s3://{BUCKET}/{tmp_path.name}",
        "remote.s3.endpoint": s3.endpoint,
        "remote.s3.access-key-id": KEY,
        "remote.s3.secret-access-key": SECRET,
    }


@pytest.fixture
def uploading(place: dict[str, str], tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", settings=SETTINGS | place) as running:
        yield running


def _fill(db: strom.Database, server: ServerProcess) -> strom.Table:
    """A table whose first rows left the disk."""
    table = db.create_table("events", SCHEMA, properties=PROPERTIES)
    for start in range(0, ROWS, 100):
        table.append([{"id": one, "word": f"word {one}"} for one in range(start, start + 100)])
        table.flush()
    logs = server.folder / "buckets"

    def few_are_here() -> bool:
        [bucket] = table.describe().buckets
        assert bucket.start_offset == 0
        return bucket.segments == 2 and min(int(one.stem) for one in logs.rglob("*.log")) > 1000

    until_blocking(few_are_here)
    return table


def test_everybody_reads_rows_that_left_the_disk(uploading: ServerProcess, place: dict[str, str]) -> None:
    with strom.connect(uploading.address) as db:
        table = _fill(db, uploading)
        _check_reads(db, table)
        _check_peer(uploading.address)
    uploading.kill()
    uploading.start()
    with strom.connect(uploading.address) as db:
        _check_reads(db, db.table("events"))
    flags = [flag for name, value in place.items() for flag in ("--set", f"{name}={value}")]
    told = command("remote", "status", "-o", "json", *flags)
    assert '"table": "fluss.events"' in told.out, told
    checked = command("remote", "verify", *flags)
    assert checked.code == 0, checked
    assert "0 problems" in checked.err


def _check_reads(db: strom.Database, table: strom.Table) -> None:
    assert table.scan(columns=["id"]).to_arrow().column("id").to_pylist() == list(range(ROWS))
    assert table.scan(where=col("id") < 10).to_arrow().column("word").to_pylist() == [
        f"word {one}" for one in range(10)
    ]
    [counted] = db.sql("select count(*) as n, min(id) as low from events").to_arrow().to_pylist()
    assert counted == {"n": ROWS, "low": 0}
    found: list[Any] = []
    with table.tail("earliest", columns=["id"], idle=5.0) as tail:
        for batch in tail:
            found += batch.data.column("id").to_pylist()
            if len(found) == ROWS:
                break
    assert found == list(range(ROWS))


def _check_peer(address: str) -> None:
    async def read() -> None:
        async with connected(address) as connection:
            table = await connection.get_table(fluss.TablePath("fluss", "events"))
            for scan in (table.new_scan(), table.new_scan().project_by_name(["id"])):
                scanner = await scan.create_record_batch_log_scanner()
                scanner.subscribe(0, fluss.EARLIEST_OFFSET)
                found = await poll_table(scanner, ROWS)
                assert found.column("id").to_pylist() == list(range(ROWS))

    run(read)


def test_a_flipped_byte_is_found_by_verify_and_told_to_readers(
    uploading: ServerProcess, place: dict[str, str], tmp_path: Path
) -> None:
    if not place["remote.data.dir"].startswith("/"):
        pytest.skip("the bytes of a folder are at hand")
    with strom.connect(uploading.address) as db:
        _fill(db, uploading)
    uploading.stop()
    objects = sorted((tmp_path / "history").rglob("s/*"), key=lambda one: int(one.name.split("-")[1]))
    content = bytearray(objects[0].read_bytes())
    content[-1] ^= 1
    objects[0].write_bytes(content)
    checked = command("remote", "verify", "--set", f"remote.data.dir={place['remote.data.dir']}")
    assert checked.code == 1
    assert "fluss.events bucket 0" in checked.out
    uploading.start()
    with strom.connect(uploading.address) as db, pytest.raises(strom.errors.ChecksumMismatch):
        db.table("events").scan().to_arrow()
