"""A server's life: start, stop, restart, and what it refuses to start on."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from pathlib import Path

import fluss
import pyarrow as pa
import pytest

import strom
from integration.peer import connected, make_table, poll_rows, run, write
from strom.server.folder.checked_json import encode_checked
from strom.testing.process import ServerFailed, ServerProcess, alive
from waiting import until_blocking

SCHEMA = pa.schema([("id", pa.int32())])


def rows(start: int, count: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(start, start + count), pa.int32())], schema=SCHEMA)


def gone(pids: list[int], within_s: float = 10.0) -> bool:
    until_blocking(lambda: not any(alive(pid) for pid in pids), within_s)
    return True


async def read_ids(address: str, path: fluss.TablePath, buckets: int, count: int) -> list[int]:
    async with connected(address) as connection:
        table = await connection.get_table(path)
        scanner = await table.new_scan().create_log_scanner()
        scanner.subscribe_buckets(dict.fromkeys(range(buckets), fluss.EARLIEST_OFFSET))
        return sorted(record.row["id"] for record in await poll_rows(scanner, count))


@pytest.mark.parametrize(("tablets", "number"), [(1, signal.SIGINT), (2, signal.SIGTERM)])
def test_a_server_stops_cleanly_and_goes_on_where_it_was(tmp_path: Path, tablets: int, number: int) -> None:
    with ServerProcess(tmp_path / "data", tablets=tablets) as server:
        paths: list[fluss.TablePath] = []

        async def fill() -> None:
            async with connected(server.address) as connection:
                path, table = await make_table(connection, SCHEMA, bucket_count=4)
                paths.append(path)
                await write(table, *(rows(i * 10, 10) for i in range(10)))

        run(fill)
        pids, address = server.pids, server.address
        assert server.stop(number) == 0
        assert gone(pids)
        assert not (tmp_path / "data" / "running.json").exists()
        server.start()
        assert server.address == address

        async def look() -> None:
            assert await read_ids(server.address, paths[0], 4, 100) == list(range(100))
            async with connected(server.address) as connection:
                await write(await connection.get_table(paths[0]), rows(100, 10))
            assert await read_ids(server.address, paths[0], 4, 110) == list(range(110))

        run(look)
        assert "Traceback" not in server.output()


def test_the_number_of_tablet_servers_may_change_between_starts(tmp_path: Path) -> None:
    paths: list[fluss.TablePath] = []
    server = ServerProcess(tmp_path / "data", tablets=3)
    for tablets in (3, 1):
        server.tablets = tablets
        with server:

            async def step(tablets: int = tablets, first: bool = not paths) -> None:
                async with connected(server.address) as connection:
                    if first:
                        path, table = await make_table(connection, SCHEMA, bucket_count=6)
                        paths.append(path)
                    else:
                        table = await connection.get_table(paths[0])
                    await write(table, *(rows(i, 1) for i in range(60)))
                    nodes = await connection.get_admin().get_server_nodes()
                    assert sum(node.server_type == "TabletServer" for node in nodes) == tablets
                rounds = 1 if first else 2
                found = await read_ids(server.address, paths[0], 6, 60 * rounds)
                assert found == sorted(list(range(60)) * rounds)

            run(step)


def test_a_killed_server_takes_its_tablet_servers_along_and_starts_again(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tablets=2) as server:
        pids = server.pids
        server.kill()
        server.start()
        assert gone(pids)


def test_a_killed_tablet_server_is_started_again_and_loses_nothing(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tablets=2) as server:

        async def test() -> None:
            async with connected(server.address) as connection:
                path, table = await make_table(connection, SCHEMA, bucket_count=4)
                await write(table, *(rows(i * 10, 10) for i in range(10)))
                os.kill(server.pids[1], signal.SIGKILL)
                await write(table, *(rows(100 + i * 10, 10) for i in range(10)))
            assert await read_ids(server.address, path, 4, 200) == list(range(200))

        run(test)
        assert "starting it again" in server.output()


def test_a_second_server_on_the_folder_is_refused(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as first:
        second = ServerProcess(tmp_path / "data")
        with pytest.raises(ServerFailed, match=rf"process {first.pid}, {first.address}.*--data"):
            second.start()
        second.close()


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = ServerProcess(tmp_path / "data", settings={"bind.listeners": f"CLIENT://127.0.0.1:{port}"})
        with pytest.raises(ServerFailed, match=rf"127.0.0.1:{port}; choose another port"):
            server.start()
        server.close()
        web = ServerProcess(tmp_path / "data", settings={"http.port": port})
        with pytest.raises(ServerFailed, match="choose another port"):
            web.start()
        web.close()


def test_a_folder_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "strom.json").write_bytes(encode_checked({"format": 99, "cluster_id": "x"}))
    server = ServerProcess(folder)
    with pytest.raises(ServerFailed, match=r"has format 99.*newer version"):
        server.start()
    server.close()


def test_an_open_door_is_refused(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", settings={"bind.listeners": "CLIENT://0.0.0.0:0"})
    with pytest.raises(ServerFailed, match="without a password"):
        server.start()
    server.close()


def test_a_server_whose_owner_is_gone_stops(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", tablets=2) as server:
        assert server._process is not None
        assert server._process.stdin is not None
        server._process.stdin.close()
        assert gone(server.pids)
        assert not (tmp_path / "data" / "running.json").exists()


def test_health_metrics_and_status_are_served(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA, word="shown", bucket_count=3)
            await write(table, rows(0, 10))

    run(test)

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://{either.http_address}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    assert json.loads(get("/health")) == {"status": "healthy", "problems": []}
    assert 'strom_table_rows_in_total{table="fluss.shown_' in get("/metrics")
    status = json.loads(get("/status.json"))
    assert len(status["servers"]) == either.tablets
    assert sum(table["rows"] for table in status["tables"] if table["name"].startswith("fluss.shown_")) >= 10
    assert "fluss.shown_" in get("/")


def test_a_server_that_is_stopped_while_it_loads_kernels_stops(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        with strom.connect(server.address) as db:
            db.create_table("k", {"id": "BIGINT"}, primary_key="id").upsert([{"id": 1}])
            db.flush()
        server.stop()
        for _ in range(
            3
        ):  # its buckets wait for the kernels from the start on; none may keep it from stopping
            server.start()
            assert server.stop() == 0
