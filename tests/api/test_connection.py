"""Connecting, losing the server, forking, ending: nothing hangs and nothing is lost in silence."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import strom
from api.place import EVENTS, events, ids_of, new_name, table_on
from strom.errors import (
    AuthenticationFailed,
    ConnectionClosed,
    Disconnected,
    FolderInUse,
    InvalidSetting,
    StorageFull,
    StromError,
    TableNotFound,
)
from strom.testing.process import ServerProcess
from waiting import pause_blocking


def script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of its own."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *arguments], capture_output=True, text=True, timeout=60
    )


def test_a_server_that_is_not_there_is_told_at_once_with_what_to_do() -> None:
    began = time.monotonic()
    with pytest.raises(Disconnected, match=r"localhost:1 .*strom up"):
        strom.connect("localhost:1")
    assert time.monotonic() - began < 2


def test_an_address_that_is_none_is_refused() -> None:
    for wrong in ("", "host:", "host:x", ":1", "host:70000"):
        with pytest.raises(InvalidSetting, match="address"):
            strom.connect(wrong)


def test_one_of_several_addresses_is_enough(server: ServerProcess) -> None:
    with strom.connect(f"localhost:1, {server.address}") as db:
        assert "fluss" in db.databases()


def test_users_log_in_and_passwords_are_never_shown(server: ServerProcess) -> None:
    address = server.addresses["SASL"]
    with strom.connect(address, user="alice", password="alice-secret") as db:
        table = db.create_table(new_name(), EVENTS)
        table.append(events(1))
        assert table.count() == 1
        for shown in (
            repr(db),
            str(db),
            db._repr_html_(),
            repr(vars(db)),
            repr(db._session),
            repr(vars(db._session)),
        ):
            assert "alice-secret" not in shown
        db.drop_table(table.name)
    for password in ("wrong", None):
        with pytest.raises(AuthenticationFailed):
            strom.connect(address, user="alice", password=password)
    with pytest.raises(StromError):
        strom.connect(address)


def test_a_closed_connection_says_so(server: ServerProcess) -> None:
    db = strom.connect(server.address)
    table = db.create_table(new_name(), EVENTS)
    db.drop_table(table.name)
    db.close()
    db.close()
    for call in (db.tables, lambda: table.append(events(1)), table.count, table.tail, table.refresh):
        with pytest.raises(ConnectionClosed, match="connect again"):
            call()
    assert "closed" in repr(db)


def test_a_folder_is_a_server_of_its_own(tmp_path: Path) -> None:
    with strom.open(tmp_path / "data", durability="os") as db:
        db.create_table("events", EVENTS).append(events(1, 2))
        with pytest.raises(FolderInUse):
            strom.open(tmp_path / "data")
    with strom.open(tmp_path / "data") as db:
        assert ids_of(db.table("events").scan().to_arrow()) == [1, 2]
    with pytest.raises(InvalidSetting):
        strom.open(tmp_path / "other", no_such_setting=1)


def test_a_failed_write_is_raised_by_flush_by_close_and_by_a_scan(server: ServerProcess) -> None:
    with strom.connect(server.address) as db, strom.connect(server.address) as other:
        table = db.create_table(new_name(), EVENTS)
        writer = table.writer()
        table.append(events(1))
        writer.append(events(2))
        table.flush()
        writer.flush()
        other.drop_table(table.name)
        for _ in range(2):
            table.append(events(3, 4))
            with pytest.raises(TableNotFound, match="2 rows of table"):
                table.flush()
        table.append(events(5))
        with pytest.raises(TableNotFound, match="1 row of table"):
            table.scan().to_arrow()
        writer.append(events(6))
        with pytest.raises(TableNotFound, match="1 row of table"):
            writer.close()
        writer.close()


def test_an_error_in_the_block_is_not_hidden_by_one_while_closing(server: ServerProcess) -> None:
    with strom.connect(server.address) as db, strom.connect(server.address) as other:
        table = db.create_table(new_name(), EVENTS)

        def work() -> None:
            with table.writer() as writer:
                other.drop_table(table.name)
                writer.append(events(1))
                raise KeyError("mine")

        with pytest.raises(KeyError) as caught:
            work()
        assert "closing the writer failed" in caught.value.__notes__[0]


def test_writes_and_scans_outlive_a_restart_of_the_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as own, strom.connect(own.address) as db:
        table = db.create_table("t", EVENTS, buckets=2)
        done = threading.Event()

        def write() -> None:
            with table.writer(batch_bytes=64 * 1024) as writer:
                for number in range(3000):
                    writer.append(pa.RecordBatch.from_pydict({"id": [number]}))
            done.set()

        thread = threading.Thread(target=write)
        thread.start()
        for kill in (True, False, True):
            pause_blocking(0.1)  # amid the writes
            if kill:
                own.kill()
                own.start()
            else:
                own.restart()
            assert table.count() >= 0
        thread.join(60)
        assert done.is_set()
        found = table.scan().to_arrow()
        assert sorted(ids_of(found)) == list(range(3000)), "each row once"


def test_a_process_made_by_fork_uses_a_connection_of_its_own(server: ServerProcess) -> None:
    code = """
        import os, sys, strom
        db = strom.connect(sys.argv[1])
        table = db.create_table(sys.argv[2], {"id": "BIGINT"})
        table.append([{"id": 1}])
        table.flush()
        table.append([{"id": 2}])
        child = os.fork()
        if child == 0:
            table.append([{"id": 3}])
            assert sorted(table.scan().to_arrow()["id"].to_pylist())[-1] == 3
            db.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
        db.drop_table(table.name)
    """
    done = script(code, server.address, new_name("fork"))
    assert done.returncode == 0, done.stderr


def test_a_program_that_ends_sends_what_it_did_not_flush(server: ServerProcess) -> None:
    name = new_name("exit")
    code = """
        import sys, strom
        db = strom.connect(sys.argv[1])
        table = db.create_table(sys.argv[2], {"id": "BIGINT"})
        writer = table.writer()
        for number in range(1000):
            table.append([{"id": number}])
            writer.append([{"id": 1000 + number}])
        if len(sys.argv) > 3:
            del db, table, writer
    """
    for more in ((), ("drop the references",)):
        done = script(code, server.address, name, *more)
        assert (done.returncode, done.stderr) == (0, "")
        with strom.connect(server.address) as db:
            assert sorted(ids_of(db.table(name).scan().to_arrow())) == list(range(2000))
            db.drop_table(name)


def test_a_program_that_ends_says_loudly_what_it_could_not_send(tmp_path: Path) -> None:
    code = """
        import os, signal, strom, sys
        db = strom.connect(sys.argv[1])
        table = db.create_table("t", {"id": "BIGINT"})
        writer = table.writer(delivery_timeout_ms=300)
        writer.append([{"id": 1}])
        writer.flush()
        os.kill(int(sys.argv[2]), signal.SIGKILL)
        writer.append([{"id": 2}])
    """
    with ServerProcess(tmp_path / "data") as own:
        done = script(code, own.address, str(own.pids[0]))
        assert "could not be closed cleanly" in done.stderr
        assert "1 row of table fluss.t not acknowledged" in done.stderr
        own.kill()


def test_importing_strom_is_light() -> None:
    code = """
        import sys, time
        began = time.process_time()
        import strom
        took = time.process_time() - began
        heavy = {"pyarrow", "numpy", "pandas", "polars", "duckdb", "numba", "asyncio", "uvloop"} & sys.modules.keys()
        assert not heavy, heavy
        assert took < 0.05, took
        strom.connect, strom.Table, strom.col, strom.types, strom.aio, strom.errors, strom.TailBatch, strom.open
        assert {"pandas", "polars", "duckdb", "numba"}.isdisjoint(sys.modules), sys.modules.keys()
        assert "strom.server" not in sys.modules
        assert set(strom.__all__) <= set(dir(strom))
        try:
            strom.nothing
        except AttributeError:
            print("fine")
    """
    done = script(code)
    assert done.stdout == "fine\n", done.stderr


def test_a_wait_can_be_interrupted(server: ServerProcess) -> None:
    code = """
        import sys, strom, threading, os, signal
        db = strom.connect(sys.argv[1])
        table = db.create_table(sys.argv[2], {"id": "BIGINT"})
        tail = table.tail()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            for batch in tail:
                print("never")
        except KeyboardInterrupt:
            table.append([{"id": 1}])
            print(next(tail).data.num_rows)
        db.drop_table(table.name)
        db.close()
    """
    done = script(code, server.address, new_name("interrupt"))
    assert done.stdout == "1\n", done.stderr


def test_several_threads_share_one_table(server: ServerProcess) -> None:
    with table_on(server) as table:

        def write(start: int) -> None:
            for number in range(start, start + 200):
                table.append(events(number))
            table.flush()

        threads = [threading.Thread(target=write, args=(start,)) for start in range(0, 1000, 200)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = ids_of(table.scan().to_arrow())
        assert sorted(found) == list(range(1000))
        for start in range(0, 1000, 200):
            own = [number for number in found if start <= number < start + 200]
            assert own == sorted(own), "each thread's rows keep their order"


def test_traffic_is_counted(server: ServerProcess) -> None:
    with table_on(server) as table, strom.connect(server.address) as db:
        before = db.statistics()
        db.table(table.name).count()
        after = db.statistics()
        assert after.requests > before.requests
        assert after.bytes_received > before.bytes_received


def test_what_closing_could_not_do_is_told_and_hides_no_error_of_the_program(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connected() -> strom.Database:
        db = strom.connect(server.address)
        close = db.session.close

        def fails() -> None:
            close()
            raise StorageFull("rows were lost")

        monkeypatch.setattr(db.session, "close", fails)
        return db

    with pytest.raises(StorageFull, match="rows were lost"), connected():
        pass
    with pytest.raises(ValueError, match="of the program") as told, connected():
        raise ValueError("of the program")
    assert told.value.__notes__ == ["and closing the connection failed: rows were lost"]
