"""Rows of a decided version that are lost hold up their bucket, until somebody says that they may be skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import strom
from api.place import new_name, table_on
from cli import command
from strom.api.staging import publish
from strom.client.admin.admin import SinkStatus
from strom.client.cluster.options import ClientOptions
from strom.client.write.decision import Sink
from strom.client.write.staging import StageFact
from strom.errors import SinkNotFound
from strom.testing.process import ServerProcess
from waiting import until_blocking

ROWS = {"id": "BIGINT", "name": "STRING"}
SETTINGS = {"durability": "group"}


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": "x" * 50} for number in numbers]


def ids(table: strom.Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


def damage(server: ServerProcess, table: strom.Table, stage: bytes, bucket: int) -> Path:
    """Change a byte of a stage's rows."""
    path = server.folder / f"buckets/{table.table_id}/-/{bucket}/stages/{stage.hex()}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return path


def problem_of(db: strom.Database, name: str) -> SinkStatus:
    """The sink, once a bucket has said what is wrong."""

    def known() -> SinkStatus:
        (found,) = [sink for sink in db.sinks() if sink.name == name]
        return found

    until_blocking(lambda: known().problem and known().pending == 1)
    return known()


class Held:
    """A named transaction of two buckets that was decided; the rows of one are damaged before it is published."""

    def __init__(self, server: ServerProcess, db: strom.Database, table: strom.Table, name: str) -> None:
        self.tx = db.transaction(name, 0)
        self.tx.append(table, rows(*range(100)))
        facts: list[StageFact] = list(db.session.run(self.tx._core.prepare()))
        (self.fact,) = facts
        assert self.fact.buckets == (0, 1)
        self.path = damage(server, table, self.fact.stage_id, 1)
        publish(db, Sink(name, name), 0, [table.table_id], facts, wait=False)


@pytest.fixture
def durable(tmp_path: Path) -> Any:
    with ServerProcess(tmp_path / "data", settings=SETTINGS) as running:
        yield running


def test_what_is_lost_can_be_skipped_and_its_sink_goes_on(durable: ServerProcess) -> None:
    patience = ClientOptions(retry_timeout_ms=100)
    with (
        table_on(durable, ROWS, buckets=2, bucket_key="id") as table,
        strom.connect(durable.address, options=patience) as db,
    ):
        name = new_name("stream")
        held = Held(durable, db, table, name)
        assert problem_of(db, name).pending == 1
        listed = command.strom("sink", "list", "-o", "json", server=durable.address)
        assert f"of sink '{name}' cannot be published" in listed.out
        (lost,) = db.skip_lost(name)
        assert (lost.table_id, lost.bucket, lost.stage) == (table.table_id, 1, held.fact.stage_id.hex())
        assert "checksum" in lost.reason
        there = ids(table)
        assert 0 < len(there) < 100
        assert set(there) <= set(range(100))
        assert not held.path.exists()
        assert Path(f"{held.path}.skipped").exists()
        with db.transaction(name, 1) as tx:
            tx.append(table, rows(*range(200, 240)))
        assert ids(table) == sorted([*there, *range(200, 240)])
        assert [(sink.version, sink.problem) for sink in db.sinks()] == [(1, None)]
        assert db.skip_lost(name) == []


def test_a_sink_is_dropped_with_force(durable: ServerProcess) -> None:
    with table_on(durable, ROWS, buckets=2, bucket_key="id") as table, strom.connect(durable.address) as db:
        name = new_name("stream")
        held = Held(durable, db, table, name)
        durable.kill()
        durable.start()
        ran = command.strom("sink", "drop", name, "--force", server=durable.address)
        assert ran.code == 0, ran.err
        assert f"LEFT OUT: the rows of stage {held.fact.stage_id.hex()}" in ran.err
        assert db.sinks() == []
        with db.transaction("another", 0) as tx:
            tx.append(table, rows(*range(200, 240)))
        assert set(range(200, 240)) <= set(ids(table))
        with pytest.raises(SinkNotFound):
            db.skip_lost(name)
        with pytest.raises(SinkNotFound):
            db.drop_sink(name, force=True)
