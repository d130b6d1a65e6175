"""A tail gives every row once, as it comes, with where and when."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import threading
import time

import pyarrow as pa
import pytest

import strom
from api.place import events, ids_of, table_on
from strom.api.tail import Bell
from strom.errors import InvalidRequest
from strom.testing.process import ServerProcess
from waiting import until_blocking


def test_rows_appended_after_the_tail_was_made_are_seen(either: ServerProcess) -> None:
    with table_on(either) as table:
        table.append(events(1))
        table.flush()
        with table.tail() as tail:
            table.append(events(2, 3))
            batch = next(tail)
            assert ids_of(batch.data) == [2, 3]
            assert batch.offsets.tolist() == [1, 2]
            assert (batch.base_offset, batch.next_offset, batch.num_rows) == (1, 3, 2)
            assert abs(batch.timestamp - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)
            assert batch.partition is None
            assert batch.bucket.bucket == 0
            assert "2 rows from offset 1" in repr(batch)


def test_a_tail_from_the_beginning_gives_what_was_there_and_then_what_comes(either: ServerProcess) -> None:
    with table_on(either, buckets=3) as table:
        for number in range(100):
            table.append(events(number))
        table.flush()
        tail = table.tail("earliest")
        seen: list[int] = []
        while len(seen) < 100:
            seen += ids_of(next(tail).data)
        table.append(events(*range(100, 150)))
        while len(seen) < 150:
            seen += ids_of(next(tail).data)
        tail.close()
        assert sorted(seen) == list(range(150))
        assert list(tail) == []


def test_a_tail_ends_when_nothing_came_for_a_while(server: ServerProcess) -> None:
    with table_on(server) as table:
        table.append(events(1, 2))
        table.flush()
        began = time.monotonic()
        assert [ids_of(batch.data) for batch in table.tail("earliest", idle=0.1)] == [[1, 2]]
        assert list(table.tail(timeout=0.05)) == []
        assert 0.15 <= time.monotonic() - began < 5


def test_positions_let_a_tail_go_on_where_another_stopped(server: ServerProcess) -> None:
    with table_on(server, buckets=2, bucket_key="id") as table:
        table.append(events(*range(50)))
        table.flush()
        with table.tail("earliest", idle=1) as first:
            seen = ids_of(next(first).data)
            positions = first.positions
        table.append(events(*range(50, 60)))
        table.flush()
        for batch in table.tail(positions, idle=0.3):
            seen += ids_of(batch.data)
        assert sorted(seen) == list(range(60))


def test_a_tail_can_be_filtered_and_projected(either: ServerProcess) -> None:
    with table_on(either) as table, table.tail(where="price >= 5", columns=["name"]) as tail:
        table.append(events(*range(20)))
        batch = next(tail)
        assert batch.data.schema.names == ["name"]
        assert batch.data.column("name").to_pylist() == [f"n{number}" for number in range(10, 20)]
        assert batch.offsets.tolist() == list(range(10, 20))


def test_new_partitions_are_found_and_read_from_their_beginning(either: ServerProcess) -> None:
    schema = {"id": "BIGINT", "day": "STRING"}
    with table_on(either, schema, partition_by="day") as table:
        table.append({"id": 1, "day": "a"})
        table.flush()
        seen = []
        tail = table.tail("earliest", idle=5, discovery_s=0.05)
        for batch in tail:
            seen.append((batch.partition, ids_of(batch.data)))
            if len(seen) == 1:
                table.append({"id": [2, 3], "day": ["b", "b"]})
            elif len(seen) == 2:
                table.drop_partition({"day": "a"})
                table.append({"id": 4, "day": "c"})
            else:
                break
        tail.close()
        assert seen == [("a", [1]), ("b", [2, 3]), ("c", [4])]


def test_the_first_rows_of_a_new_partition_are_news_to_a_tail_from_the_latest_row_on(
    either: ServerProcess,
) -> None:
    schema = {"id": "BIGINT", "day": "STRING"}
    with table_on(either, schema, partition_by="day") as table:
        table.append({"id": 1, "day": "a"})
        table.flush()
        with table.tail("latest", idle=30, discovery_s=1.0) as tail:
            # There before the tail looks for partitions again.
            table.append({"id": [2, 3], "day": ["b", "b"]})
            table.flush()
            batch = next(tail)
            assert (batch.partition, ids_of(batch.data), batch.base_offset) == ("b", [2, 3], 0)


def test_a_tail_follows_rows_written_by_another_thread_in_order(server: ServerProcess) -> None:
    with table_on(server) as table, strom.connect(server.address) as other:
        count = 2000

        def write() -> None:
            with other.table(table.name).writer() as writer:
                for number in range(count):
                    writer.append(pa.RecordBatch.from_pydict({"id": [number]}))

        tail = table.tail()
        thread = threading.Thread(target=write)
        thread.start()
        seen: list[int] = []
        while len(seen) < count:
            seen += ids_of(next(tail).data)
        thread.join()
        tail.close()
        assert seen == list(range(count))


def test_a_tail_outlives_a_restart_of_the_server(tmp_path: object) -> None:
    with (
        ServerProcess(f"{tmp_path}/data") as own,
        table_on(own) as table,
        table.tail("earliest") as tail,
    ):
        table.append(events(1))
        assert ids_of(next(tail).data) == [1]
        own.restart()
        table.append(events(2))
        assert ids_of(next(tail).data) == [2]


def test_a_tail_that_was_left_behind_stops_asking(cluster: ServerProcess) -> None:
    with strom.connect(cluster.address) as db:
        schema = pa.schema([("id", pa.int64())])
        table = db.create_table("left_behind", schema, buckets=3, if_exists="ignore")
        asking = f"tail {table.info.path} at "

        def askers() -> list[str]:
            tasks = asyncio.all_tasks(db.session.background.loop)
            return [name for task in tasks if (name := task.get_name()).startswith(asking)]

        tail = table.tail()
        assert len(askers()) > 1
        del tail
        gc.collect()
        until_blocking(lambda: not askers())


def test_an_offset_that_is_not_there_is_an_error(server: ServerProcess) -> None:
    with table_on(server) as table, pytest.raises(InvalidRequest):
        table.tail({5: 0})


def test_a_reader_that_does_not_read_is_not_flooded(server: ServerProcess) -> None:
    with table_on(server) as table:
        data = pa.table({"id": range(20_000)})
        with table.writer(compression="none") as writer:
            for _ in range(40):
                writer.append(data)
        with table.tail("earliest", idle=2) as tail:
            rows = sum(batch.num_rows for batch in tail)
        assert rows == 800_000


def test_what_comes_in_the_very_moment_of_the_timeout_is_not_left_behind() -> None:
    looks = iter([False, True])
    assert Bell().wait(lambda: next(looks), 0.0)
    assert not Bell().wait(lambda: False, 0.0)
