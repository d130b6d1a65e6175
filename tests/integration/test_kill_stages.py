"""kill -9 between the steps of a staged write: every version is published whole, and once."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import strom
from strom.api.staging import Staging, free, publish
from strom.client.write.decision import Sink
from strom.client.write.staging import StageOrder
from strom.errors import StageNotFound
from strom.testing.process import ServerProcess

LOG = {"id": "BIGINT", "version": "BIGINT"}
PATIENCE = 30


def tables_on(db: strom.Database, durability: str) -> tuple[strom.Table, strom.Table]:
    properties = {"table.durability": durability}
    return (
        db.create_table("events", LOG, buckets=3, properties=properties),
        db.create_table("state", LOG, primary_key="id", buckets=2, properties=properties),
    )


def rows_of(version: int, count: int = 40) -> list[dict[str, int]]:
    return [{"id": version * count + number, "version": version} for number in range(count)]


def found(table: strom.Table) -> list[tuple[int, int]]:
    batch = table.scan(columns=["id", "version"]).to_arrow()
    return sorted(zip(batch["id"].to_pylist(), batch["version"].to_pylist(), strict=True))


def expected(versions: int) -> list[tuple[int, int]]:
    return [(row["id"], row["version"]) for version in range(versions) for row in rows_of(version)]


def staged(db: strom.Database, table: strom.Table, order: StageOrder, version: int) -> Staging:
    staging = Staging(db, table.info, order)
    if table.primary_key:
        staging.upsert(rows_of(version))
    else:
        staging.append(rows_of(version))
    return staging


@pytest.mark.slow
@pytest.mark.parametrize(("tablets", "durability"), [(2, "group")])
def test_a_kill_between_the_steps_loses_and_doubles_nothing(
    tmp_path: Path, tablets: int, durability: str
) -> None:
    sink = Sink("steps", "query")
    with ServerProcess(tmp_path / "data", tablets=tablets) as server, strom.connect(server.address) as db:
        tables = tables_on(db, durability)
        ids = [table.table_id for table in tables]
        orders = [StageOrder(bytes([number]) * 16, "steps", number, 600_000) for number in range(4)]

        def restart() -> None:
            server.kill()
            server.start()

        # Killed before the seal: what was staged is gone, the task says so and stages again.
        unsealed = staged(db, tables[0], orders[0], 0)
        restart()
        with suppress(StageNotFound):
            free(db, unsealed.seal())
        # Killed after the seal: everything is there.
        facts = [fact for table in tables for fact in staged(db, table, _fresh(orders[0]), 0).seal()]
        restart()
        assert all(found(table) == [] for table in tables)
        publish(db, sink, 0, ids, facts)
        assert all(found(table) == expected(1) for table in tables)
        # Killed with the answer to the decision in hand, before everything is applied.
        facts = [fact for table in tables for fact in staged(db, table, orders[1], 1).seal()]
        publish(db, sink, 1, ids, facts, wait=False)
        restart()
        assert all(found(table) == expected(2) for table in tables)
        # The same decision once more, because its answer was lost: told as the first time.
        assert publish(db, sink, 1, ids, facts).repeated == ()
        # The same version once more, with stages of its own: from a driver that does not know.
        other = StageOrder(b"\xfe" * 16, "steps", 1, 600_000)
        again = [fact for table in tables for fact in staged(db, table, other, 1).seal()]
        assert set(publish(db, sink, 1, ids, again).repeated) == set(ids)
        free(db, again)
        assert all(found(table) == expected(2) for table in tables)
        # Killed while it is decided and applied.
        facts = [fact for table in tables for fact in staged(db, table, orders[2], 2).seal()]
        killer = threading.Timer(0.004, restart)
        killer.start()
        _until_known(db, sink, 2, ids, facts)
        killer.join()
        _until_known(db, sink, 2, ids, facts)
        assert all(found(table) == expected(3) for table in tables)
        restart()
        assert all(found(table) == expected(3) for table in tables)
        staged_bytes = [bucket.stage_bytes for table in tables for bucket in table.describe().buckets]
        assert sum(staged_bytes) == 0, "published and still staged"


def _fresh(order: StageOrder) -> StageOrder:
    return StageOrder(b"\xff" * 16, order.sink, order.epoch, order.lease_ms)


def _until_known(db: strom.Database, sink: Sink, version: int, ids: list[int], facts: list[object]) -> None:
    for attempt in range(PATIENCE):
        try:
            publish(db, sink, version, ids, facts)  # type: ignore[arg-type]
        except strom.errors.Retry:
            if attempt == PATIENCE - 1:
                raise
        else:
            return


@pytest.mark.slow
@pytest.mark.parametrize(("tablets", "durability"), [(1, "os")])
def test_versions_written_through_kills_are_published_once(
    tmp_path: Path, tablets: int, durability: str
) -> None:
    chance = random.Random(tablets)
    versions = 12
    done = threading.Event()
    with ServerProcess(tmp_path / "data", tablets=tablets) as server, strom.connect(server.address) as db:
        tables = tables_on(db, durability)

        def kill_now_and_again() -> None:
            for _ in range(3):
                if done.wait(chance.uniform(0.05, 0.5)):
                    return
                server.kill()
                server.start()

        killer = threading.Thread(target=kill_now_and_again)
        killer.start()
        try:
            for version in range(versions):
                _write(db, tables, version)
        finally:
            done.set()
            killer.join()
        for version in (0, versions - 1):
            with db.transaction("load", version=version) as again:
                again.append(tables[0], rows_of(version))
            assert again.repeated
        assert all(found(table) == expected(versions) for table in tables)


def _write(db: strom.Database, tables: tuple[strom.Table, strom.Table], version: int) -> None:
    for attempt in range(PATIENCE):
        try:
            with db.transaction("load", version=version) as tx:
                tx.append(tables[0], rows_of(version))
                tx.upsert(tables[1], rows_of(version))
        except (strom.errors.Retry, StageNotFound):
            if attempt == PATIENCE - 1:
                raise
        else:
            return
