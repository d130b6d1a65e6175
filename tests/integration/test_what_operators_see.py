"""What a server tells those who run it: its log, its health and doctor, while the disk is full and after a kill."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import strom
from cli.command import strom as run
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


def _health(server: ServerProcess) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://{server.http_address}/health", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_full_disk_is_told_by_log_health_and_doctor(tmp_path: Path) -> None:
    settings = {"data-disk.free-bytes-min": "1000tb", "logging.format": "json", "http.port": 0}
    with ServerProcess(tmp_path / "data", settings=settings) as server:
        status, found = _health(server)
        assert status == 503
        assert "disk full" in str(found["problems"])
        told = run("doctor", server=server.address)
        assert told.code == 1
        assert "disk full" in told.out + told.err
        assert "writes are refused" in told.out + told.err
        lines = [json.loads(line) for line in server.output().splitlines() if line.startswith("{")]
    full = [line for line in lines if " is full" in line["message"]]
    assert [line["level"] for line in full] == ["error"]
    assert str(tmp_path / "data") in full[0]["message"]
    assert any("started version" in line["message"] for line in lines)


def test_the_log_tells_what_happened_in_one_line_each(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", settings={"logging.slow-call": "0s"}) as server:
        with strom.connect(server.address) as db:
            db.create_database("shop")
            table = db.create_table("shop.t", {"id": "BIGINT", "day": "STRING"}, partition_by="day")
            table.append([{"id": 1, "day": "1"}])
            table.flush()
            table.drop_partition({"day": "1"})
            db.create_table("kept", {"id": "BIGINT"}).append([{"id": n} for n in range(100)])
            db.flush()
            db.drop_table("shop.t")
            db.drop_database("shop")
        server.kill()
        server.start()
        with strom.connect(server.address) as db:
            assert db.table("kept").scan().count() == 100
        server.stop()
        lines = server.output().splitlines()
    for expected in (
        "INFO created database shop",
        "INFO created table shop.t",
        "INFO dropped partition day=1 of shop.t",
        "INFO dropped table shop.t",
        "INFO dropped database shop",
        "at the last stop there was nothing yet",
        "at the last stop it was killed",
        "INFO recovered fluss.kept bucket",
        "INFO stopped, every log closed",
    ):
        assert len([line for line in lines if expected in line]) == 1, (expected, lines)
    assert not [line for line in lines if " took " in line]


def test_a_slow_call_is_told(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", settings={"logging.slow-call": "1ms"}) as server:
        with strom.connect(server.address) as db:
            for number in range(30):
                db.create_table(f"t{number}", {"id": "BIGINT"})
        assert "WARNING CreateTable took " in server.output()
