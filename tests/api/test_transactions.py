"""Transactions: rows of many buckets and tables appear at once, and once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import strom
from api.place import new_name, table_on
from strom.aio import transaction as deciding
from strom.api.staging import Staging, free, publish
from strom.client.write import staging
from strom.client.write.decision import Sink
from strom.client.write.staging import StageOrder
from strom.errors import (
    ConnectionClosed,
    InvalidRequest,
    LimitExceeded,
    NotPrimaryKeyTable,
    SchemaMismatch,
    SinkNotFound,
    StromError,
    TableDropped,
    TableNotFound,
)
from strom.model.bucket import BucketId
from strom.testing.process import ServerProcess

LOG = {"id": "BIGINT", "name": "STRING"}


def log_on(server: ServerProcess, **options: Any) -> Any:
    return table_on(server, LOG, **{"buckets": 3, **options})


def users_on(server: ServerProcess) -> Any:
    return table_on(server, LOG, primary_key="id", buckets=2)


def rows(*numbers: int, name: str = "x") -> list[dict[str, Any]]:
    return [{"id": number, "name": name} for number in numbers]


def ids(table: strom.Table) -> list[int]:
    return sorted(table.scan(columns=["id"]).to_arrow().column("id").to_pylist())


def test_a_table_whose_aggregates_may_refuse_a_change_later_takes_no_part(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        columns = {"id": "BIGINT", "total": "DECIMAL(5, 2)", "many": "BIGINT"}
        sums = {"fields.total.agg": "sum", "fields.many.agg": "sum"}
        strict = db.create_table(
            new_name(), columns, primary_key="id", merge_engine="aggregation", properties=sums
        )
        with pytest.raises(InvalidRequest, match=r"'total'.*upsert"), db.transaction() as tx:
            tx.upsert(strict, [{"id": 1, "total": "900.00", "many": 1}])
        assert strict.count() == 0
        del columns["total"], sums["fields.total.agg"]
        free = db.create_table(
            new_name(), columns, primary_key="id", merge_engine="aggregation", properties=sums
        )
        for _ in range(2):
            with db.transaction() as tx:
                tx.upsert(free, [{"id": 1, "many": 2}])
        assert free.lookup(1) == {"id": 1, "many": 4}


@pytest.mark.parametrize("keyed", [False, True])
def test_rows_staged_before_and_after_a_column_was_added_appear_together(
    server: ServerProcess, keyed: bool
) -> None:
    with users_on(server) if keyed else log_on(server) as table, strom.connect(server.address) as db:
        with db.transaction() as tx:
            write = tx.upsert if keyed else tx.append
            write(table, rows(1, 2))
            with strom.connect(server.address) as other:
                other.table(table.name).add_column("more", "INT")
            write(table, rows(3, 4))
        table.refresh()
        assert ids(table) == [1, 2, 3, 4]
        found = table.scan().to_arrow()
        assert found.column("name").to_pylist() == ["x"] * 4
        assert found.column("more").null_count == 4


def test_rows_of_two_tables_appear_at_once(server: ServerProcess) -> None:
    with log_on(server) as log, users_on(server) as users, strom.connect(server.address) as db:
        users.upsert(rows(1, 2))
        users.flush()
        with db.transaction() as tx:
            tx.append(log, rows(*range(50)))
            tx.upsert(users.name, rows(2, 3, name="new"))
            tx.delete(users, [1])
            assert (ids(log), ids(users)) == ([], [1, 2])
        assert ids(log) == list(range(50))
        assert sorted(map(tuple, (row.values() for row in users.scan().to_arrow().to_pylist()))) == [
            (2, "new"),
            (3, "new"),
        ]
        assert tx.committed is not None
        assert not tx.repeated


def test_a_version_is_published_once_and_says_so(server: ServerProcess) -> None:
    with log_on(server) as log, strom.connect(server.address) as db:
        name = new_name("import")
        told = []
        for version, number in ((0, 1), (0, 2), (1, 3), (0, 4), (1, 5)):
            with db.transaction(name, version) as tx:
                tx.append(log, rows(number))
            told.append(tx.repeated)
        assert told == [False, True, False, True, True]
        assert ids(log) == [1, 3]


def test_of_a_version_that_is_published_nothing_is_written_again(server: ServerProcess) -> None:
    """It is known before the commit: the rows need not be sent, and whoever makes them may stop."""
    with log_on(server) as log, strom.connect(server.address) as db:
        name = new_name("known")
        with db.transaction(name, 4) as tx:
            tx.append(log, rows(1))
            assert not tx.repeated
        with db.transaction(name, 4) as tx:
            tx.append(log, rows(2))
            assert tx.repeated
        with db.transaction(name, 5) as tx:
            tx.append(log, rows(3))
            assert not tx.repeated
        assert ids(log) == [1, 3]


def test_a_version_that_only_some_tables_had_is_not_repeated(server: ServerProcess) -> None:
    with log_on(server) as one, log_on(server) as other, strom.connect(server.address) as db:
        name = new_name("some")
        with db.transaction(name, 3) as tx:
            tx.append(one, rows(1))
        assert not tx.repeated
        with db.transaction(name, 3) as tx:
            tx.append(one, rows(1))
            assert tx.repeated, "of what it was given so far"
            tx.append(other, rows(2))
            assert not tx.repeated
        assert not tx.repeated
        assert tx.committed is not None
        assert tx.committed.repeated == (one.table_id,)
        assert (ids(one), ids(other)) == ([1], [2])


def test_two_programs_with_one_version_publish_one_of_them_whole(server: ServerProcess) -> None:
    with log_on(server) as log, users_on(server) as users:
        name = new_name("race")
        start = threading.Barrier(4)
        outcomes = []

        def program(number: int) -> None:
            with strom.connect(server.address) as db:
                tx = db.transaction(name, 0)
                tx.append(log, rows(*range(number * 100, number * 100 + 20)))
                tx.upsert(users.name, rows(number))
                start.wait()
                tx.commit()
                outcomes.append((number, tx.repeated))

        threads = [threading.Thread(target=program, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (winner,) = [number for number, repeated in outcomes if not repeated]
        assert ids(log) == list(range(winner * 100, winner * 100 + 20))
        assert ids(users) == [winner]


def test_an_error_inside_publishes_nothing(server: ServerProcess) -> None:
    with log_on(server) as log, strom.connect(server.address) as db:

        def fail(*batches: object) -> None:
            with db.transaction() as tx:
                for batch in batches:
                    tx.append(log, batch)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail(rows(1), rows(2))
        with pytest.raises(SchemaMismatch):
            fail(rows(1), [{"id": "one"}])
        assert ids(log) == []
        tx = db.transaction()
        tx.append(log, rows(1))
        tx.abort()
        with pytest.raises(ConnectionClosed):
            tx.append(log, rows(2))
        assert ids(log) == []


def test_a_table_is_overwritten_with_its_new_rows_at_once(server: ServerProcess) -> None:
    with log_on(server) as log, users_on(server) as users, strom.connect(server.address) as db:
        with db.transaction() as tx:
            tx.append(log, rows(*range(30)))
            tx.upsert(users.name, rows(*range(30)))
        with db.transaction() as tx:
            for table in (log, users):
                tx.overwrite(table)
            tx.append(log, rows(7))
            tx.upsert(users.name, rows(7, 8))
        assert (ids(log), ids(users)) == ([7], [7, 8])
        assert (log.scan().count(), users.scan().count()) == (1, 2)


def test_partitions_are_made_and_overwritten(server: ServerProcess) -> None:
    with table_on(server, LOG, partition_by="name", buckets=2) as log, strom.connect(server.address) as db:
        with db.transaction() as tx:
            tx.append(log, rows(1, 2, name="a") + rows(3, name="b"))
        with db.transaction() as tx:
            tx.overwrite(log, {"name": "a"})
            tx.append(log, rows(4, name="a") + rows(5, name="c"))
        assert ids(log) == [3, 4, 5]


def test_a_table_that_is_dropped_before_the_commit_refuses_it(server: ServerProcess) -> None:
    with log_on(server) as log, log_on(server) as other, strom.connect(server.address) as db:
        tx = db.transaction()
        tx.append(log, rows(1))
        tx.append(other, rows(2))
        db.drop_table(other.name)
        with pytest.raises((TableDropped, TableNotFound)):
            tx.commit()
        assert ids(log) == []


def test_of_two_attempts_at_one_version_the_rows_of_the_later_are_freed(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[int] = []
    drop_stages = staging.drop_stages

    async def telling(cluster: Any, stages: dict[BucketId, list[bytes]]) -> None:
        freed.extend(bucket.table_id for bucket in stages)
        await drop_stages(cluster, stages)

    monkeypatch.setattr(staging, "drop_stages", telling)
    with log_on(server) as log, strom.connect(server.address) as db:
        name = new_name("twice")
        first, second = db.transaction(name, 1), db.transaction(name, 1)
        first.append(log, rows(1))
        second.append(log, rows(2))
        first.commit()
        assert not first.repeated
        assert freed == []
        second.commit()
        assert second.repeated
        assert set(freed) == {log.table_id}
        assert ids(log) == [1]


def test_a_refused_commit_lets_the_servers_free_its_rows(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is no, for sure: nobody needs them, and they would fill the room of stages until their lease ends."""
    freed: list[int] = []
    drop_stages = staging.drop_stages

    async def telling(cluster: Any, stages: dict[BucketId, list[bytes]]) -> None:
        freed.extend(bucket.table_id for bucket in stages)
        await drop_stages(cluster, stages)

    async def refusing(*_: Any, **__: Any) -> None:
        raise TableDropped("the table was dropped: nothing was published")

    monkeypatch.setattr(staging, "drop_stages", telling)
    monkeypatch.setattr(deciding, "decide", refusing)
    with log_on(server) as log, strom.connect(server.address) as db:
        tx = db.transaction()
        tx.append(log, rows(1))
        with pytest.raises(TableDropped):
            tx.commit()
        assert set(freed) == {log.table_id}


def test_what_a_transaction_cannot_be_is_refused(server: ServerProcess) -> None:
    with log_on(server) as log, users_on(server) as users, strom.connect(server.address) as db:
        with pytest.raises(InvalidRequest, match="both an id and a version"):
            db.transaction("name")
        with pytest.raises(InvalidRequest, match="0 or more"):
            db.transaction("name", -1)
        with pytest.raises(NotPrimaryKeyTable), db.transaction() as tx:
            tx.upsert(log.name, rows(1))
        with pytest.raises(NotPrimaryKeyTable), db.transaction() as tx:
            tx.append(users, rows(1))
        with pytest.raises(TableNotFound), db.transaction() as tx:
            tx.append("nowhere", rows(1))
        assert ids(log) == []


def test_an_empty_transaction_is_nothing(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        with db.transaction() as tx:
            pass
        assert tx.committed is not None
        assert tx.committed.number == 0


def test_sinks_are_listed_and_dropped(server: ServerProcess) -> None:
    with log_on(server) as log, strom.connect(server.address) as db:
        name = new_name("listed")
        with db.transaction(name, 3) as tx:
            tx.append(log, rows(1))
        (known,) = [sink for sink in db.sinks() if sink.name == name]
        assert (known.version, known.pending, known.tables) == (3, 0, {log.table_id: 3})
        db.drop_sink(name)
        assert name not in [sink.name for sink in db.sinks()]
        with pytest.raises(SinkNotFound):
            db.drop_sink(name)


def test_a_scan_sees_all_of_a_transaction_or_nothing(server: ServerProcess) -> None:
    with log_on(server) as log, users_on(server) as users, strom.connect(server.address) as db:
        stop = threading.Event()

        def publish() -> None:
            with strom.connect(server.address) as other:
                for number in range(15):
                    with other.transaction() as tx:
                        tx.append(log, rows(*[number] * 40))
                        tx.upsert(users.name, rows(*range(40), name=str(number)))
            stop.set()

        thread = threading.Thread(target=publish)
        thread.start()
        seen = []
        mine = db.table(log.name), db.table(users.name)
        while not stop.is_set():
            counts = mine[0].scan().to_arrow().column("id").value_counts().to_pylist()
            names = set(mine[1].scan().to_arrow().column("name").to_pylist())
            seen.append(({one["counts"] for one in counts} <= {40}, len(names) <= 1))
        thread.join()
        assert set(seen) == {(True, True)}
        assert ids(log) == sorted(list(range(15)) * 40)


def test_the_async_face_does_the_same(server: ServerProcess) -> None:
    async def work(name: str) -> tuple[list[bool], int]:
        async with await strom.aio.connect(server.address) as db:
            told = []
            for _ in range(2):
                async with db.transaction(name, 1) as tx:
                    await tx.append(table, rows(1, 2))
                    await tx.overwrite(table)
                told.append(tx.repeated)
            return told, await (await db.table(table)).scan().count()

    with log_on(server) as log:
        table = log.name
        assert asyncio.run(work(new_name("async"))) == ([False, True], 2)


def test_a_stage_that_is_decided_cannot_be_given_up(server: ServerProcess) -> None:
    with log_on(server) as log, strom.connect(server.address) as db:
        name = new_name("given up")
        tx = db.transaction(name, 0)
        tx.append(log, rows(1, 2, 3))
        core = tx._core
        facts = list(db.session.run(core.prepare()))
        free(db, [fact._replace(stage_id=bytes(16)) for fact in facts])  # unknown ones are no error
        publish(db, Sink(name, name), 0, [log.table_id], facts, wait=False)
        free(db, facts)
        publish(db, Sink(name, name), 1, [log.table_id], [])
        assert ids(log) == [1, 2, 3]
        with pytest.raises(LimitExceeded, match="coalesce"):
            publish(db, Sink(name, name), 2, [log.table_id], facts * 12_001)


def test_what_could_not_be_staged_ends_its_attempt(server: ServerProcess) -> None:
    with log_on(server) as log, strom.connect(server.address) as db:
        staging = Staging(db, db.table(log.name)._known.info, StageOrder(b"f" * 16, "failing", 0, 60_000))
        staging.append(rows(1))
        writer = staging._writer
        db.session.run(writer.flush())
        with db.transaction() as tx:
            tx.overwrite(log)
        db.drop_table(log.name)
        staging.append(rows(2))
        with pytest.raises(StromError):
            db.session.run(writer.flush())
        with pytest.raises(ConnectionClosed, match="begin another"):
            staging.append(rows(3))
        with pytest.raises(ConnectionClosed, match="begin another"):
            staging.seal()
