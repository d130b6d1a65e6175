"""Rows that nobody can read: a reader is told where they are, an operator gives them up, and everybody goes on."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import strom
from integration.wire import Wire
from record.batches import encoded, resealed
from strom.cli.main import app
from strom.errors import ChecksumMismatch, Corrupt, MalformedBatch, OffsetOutOfRange
from strom.model.filters.predicate import col
from strom.record import batch as batches
from strom.record.batch import read_columns, read_header
from strom.server.process.local import LocalServer

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
BATCHES, ROWS = 6, 100
LOST = range(200, 300)


def rows(start: int, count: int = ROWS) -> pa.RecordBatch:
    ids = range(start, start + count)
    return pa.record_batch([list(ids), [f"name {i}" for i in ids]], schema=SCHEMA)


def fill(folder: Path) -> None:
    """Six batches of a hundred rows."""
    with LocalServer(folder) as server, strom.connect(server.address) as database:
        table = database.create_table("t", SCHEMA, properties={"table.log.arrow.compression.type": "NONE"})
        for number in range(BATCHES):
            table.append(rows(number * ROWS))
            table.flush()


def flip_a_byte(folder: Path) -> None:
    """In the third batch, on the disk of a server that is down."""
    (segment,) = folder.glob("buckets/*/*/*/*.log")
    content = bytearray(segment.read_bytes())
    start = content.index(b"name 200")
    content[start] ^= 1
    segment.write_bytes(content)


def store_what_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a server did that looked at no values: the third batch has offsets that fall, under a right checksum."""

    async def produce(address: str) -> None:
        async with Wire(address) as wire:
            table = await wire.create("t", SCHEMA)
            for number in range(BATCHES):
                batch = encoded(rows(number * ROWS))
                await wire.produce(table, bytes(_falling(batch) if number == 2 else batch))

    with monkeypatch.context() as patch:
        patch.setattr(batches, "check_content", lambda *_, **__: True)
        with LocalServer(folder) as server:
            asyncio.run(produce(server.address))


def _falling(batch: bytearray) -> bytearray:
    header = read_header(batch)
    position, _ = read_columns(batch, header).buffers[3]
    batch[position + 40 : position + 44] = (7000).to_bytes(4, "little")
    return resealed(batch)


Damaging = Callable[[Path, pytest.MonkeyPatch], type[Corrupt]]


def flipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> type[Corrupt]:
    fill(folder)
    flip_a_byte(folder)
    return ChecksumMismatch


def unreadable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> type[Corrupt]:
    store_what_cannot_be_read(folder, monkeypatch)
    return MalformedBatch


@pytest.mark.parametrize("damaging", [flipped, unreadable])
def test_readers_go_on_behind_what_an_operator_gives_up(
    damaging: Damaging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = damaging(tmp_path, monkeypatch)
    left = [i for i in range(BATCHES * ROWS) if i not in LOST]
    with LocalServer(tmp_path) as server, strom.connect(server.address) as database:
        table = database.table("t")
        reads = {
            "scan": lambda: table.scan().to_arrow().column("id").to_pylist(),
            "column": lambda: table.scan(columns=["name"]).to_arrow().column(0).to_pylist(),
            "filter": lambda: table.scan(where=col("name") != "").to_arrow().column("id").to_pylist(),
            "tail": lambda: _tail(table, left[-1]),
        }
        for name, read in reads.items():
            with pytest.raises(error, match="strom log damage mark") as caught:
                read()
            words = str(caught.value)
            assert "fluss.t, bucket 0: offsets 200 to 299" in words, name
        command = re.search(r"strom (log damage mark .*)", words)
        assert command is not None
        run = CliRunner().invoke(app, ["--server", server.address, *command[1].split()])
        assert run.exit_code == 0, run.output
        assert "200" in run.output
        with caplog.at_level(logging.WARNING, "strom.client.read.damage"):
            assert reads["scan"]() == left
        assert [one.getMessage() for one in caplog.records if one.name == "strom.client.read.damage"] == [
            "fluss.t, bucket 0: 100 rows at offsets 200 to 299 are marked as damaged and left out"
        ]
    with LocalServer(tmp_path) as server, strom.connect(server.address) as database:
        table = database.table("t")
        assert table.scan().to_arrow().column("id").to_pylist() == left
        assert table.scan(columns=["name"]).to_arrow().num_rows == len(left)
        assert table.scan(where=col("name") != "").to_arrow().num_rows == len(left)
        assert table.scan(limit=3, where=col("id") >= 250).to_arrow().column("id").to_pylist() == [
            300,
            301,
            302,
        ]
        assert _tail(table, left[-1]) == left
        (mark,) = table.damage()
        assert (mark.bucket, mark.start, mark.end) == (0, 200, 300)
        status = table.describe()
        assert (status.rows, status.buckets[0].damaged_rows) == (len(left), 100)
        doctor = CliRunner().invoke(app, ["--server", server.address, "doctor"])
        assert "fluss.t bucket 0: 100 rows marked as damaged" in doctor.output
        table.append(rows(BATCHES * ROWS))
        table.flush()
        assert table.scan().to_arrow().num_rows == len(left) + ROWS
        assert table.unmark_damaged(0, 0, 1000) == []
        with pytest.raises(error):
            table.scan().to_arrow()


def test_counts_and_limits_leave_out_what_is_marked(tmp_path: Path) -> None:
    fill(tmp_path)
    flip_a_byte(tmp_path)
    left = [i for i in range(BATCHES * ROWS) if i not in LOST]
    with LocalServer(tmp_path) as server, strom.connect(server.address) as database:
        table = database.table("t")
        assert table.scan().count() == BATCHES * ROWS
        table.mark_damaged(0, LOST.start, LOST.stop)
        assert table.count() == table.scan().count() == len(left)
        assert table.scan(start=250, end=350).count() == 50
        assert database.sql("SELECT count(*) AS n FROM t").to_arrow()["n"].to_pylist() == [len(left)]
        for limit in (0, 150, 250, 1_000):
            scan = table.scan(limit=limit)
            assert scan.to_arrow()["id"].to_pylist() == left[:limit], limit
            assert pa.Table.from_batches(scan.to_batches(), scan.schema)["id"].to_pylist() == left[:limit]
            assert scan.count() == min(limit, len(left))
        assert table.read_plan(table.scan().plan(), limit=250).to_arrow()["id"].to_pylist() == left[:250]
        assert table.scan(start=250, limit=80).to_arrow()["id"].to_pylist() == left[200:280]


def _tail(table: strom.Table, last: int) -> list[int]:
    found: list[int] = []
    with table.tail("earliest") as tail:
        for batch in tail:
            found += batch.data.column("id").to_pylist()
            if found[-1] >= last:
                break
    return found


def test_a_mark_takes_whole_batches_and_only_offsets_that_are_there(tmp_path: Path) -> None:
    fill(tmp_path)
    with LocalServer(tmp_path) as server, strom.connect(server.address) as database:
        table = database.table("t")
        (mark,) = table.mark_damaged(0, 150, 201)
        assert (mark.start, mark.end) == (100, 300)
        (mark,) = table.mark_damaged(0, 300, 301)
        assert (mark.start, mark.end) == (100, 400)
        assert table.scan().to_arrow().num_rows == 300
        first = table.changelog(limit=150).to_arrow()["id"].to_pylist()
        assert first == [*range(100), *range(400, 450)], "rows are counted, not offsets"
        with pytest.raises(OffsetOutOfRange):
            table.mark_damaged(0, 590, 601)
        with pytest.raises(strom.errors.InvalidRequest, match="no bucket 7"):
            table.mark_damaged(7, 0, 1)


def test_a_partition_is_named_as_people_do_or_as_the_error_does(tmp_path: Path) -> None:
    with LocalServer(tmp_path) as server, strom.connect(server.address) as database:
        table = database.create_table("p", {"id": "BIGINT", "day": "STRING"}, partition_by="day", buckets=2)
        for _ in range(2):
            table.append({"id": list(range(10)), "day": ["a", "b"] * 5})
            table.flush()
        (there,) = [one for one in table.describe().buckets if one.partition == "a" and one.end_offset]
        numbers = {one.name: one.partition_id for one in table.partitions()}
        (mark,) = table.mark_damaged(there.bucket, 0, 1, partition="a")
        assert (mark.partition, mark.bucket, mark.start, mark.end) == ("a", there.bucket, 0, 5)
        assert table.damage() == [mark]
        assert table.unmark_damaged(there.bucket, 0, 1, partition=str(numbers["a"])) == []
        assert table.scan().to_arrow().num_rows == 20
        with pytest.raises(strom.errors.InvalidRequest, match="has partitions: say which"):
            table.mark_damaged(0, 0, 1)
        with pytest.raises(strom.errors.InvalidRequest, match="no bucket 0 in 'c'"):
            table.mark_damaged(0, 0, 1, partition="c")


def test_a_peer_goes_on_behind_a_gap(tmp_path: Path) -> None:
    """FetchLog carries the next batch there is; a batch without records in the place of the gap only at the end."""
    fill(tmp_path)
    with LocalServer(tmp_path) as server, strom.connect(server.address) as database:
        database.table("t").mark_damaged(0, 200, 300)
        database.table("t").mark_damaged(0, 500, 600)

        async def read() -> list[tuple[int, int, int]]:
            async with Wire(server.address) as wire:
                found = await wire.read_all(database.table("t").table_id)
                return [(header.base_offset, header.next_offset, header.record_count) for header, _ in found]

        found = asyncio.run(read())
    assert [one[0] for one in found] == [0, 100, 300, 400, 500]
    assert found[-1] == (500, 600, 0)


def test_a_primary_key_table_keeps_its_rows_whatever_of_its_changelog_is_given_up(tmp_path: Path) -> None:
    rows = [{"id": number, "v": number} for number in range(30)]
    with LocalServer(tmp_path, {}) as server, strom.connect(server.address) as db:
        table = db.create_table("k", {"id": "BIGINT", "v": "BIGINT"}, primary_key="id", buckets=1)
        for start in (0, 10, 20):
            table.upsert(rows[start : start + 10])
            table.flush()
        table.mark_damaged(0, 12, 14)
        assert table.changelog("earliest").to_arrow().num_rows == 20
    with LocalServer(tmp_path, {}) as server, strom.connect(server.address) as db:
        table = db.table("k")
        assert table.count() == 30
        table.upsert([{"id": 30, "v": 30}])
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(31))
