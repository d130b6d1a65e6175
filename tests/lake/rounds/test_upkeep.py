"""Rounds put the lake table in order when they are over; whatever comes of that, they have ended well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import strom
from api.place import events
from lake.small_tierer import LocalJobs
from spark.tiering.place import USERS, tiered
from spark.tiering.tiers import facts_of, iceberg, in_lake
from strom.client.admin.lake_admin import Heartbeat
from strom.errors import LakeUnavailable
from strom.lake.iceberg.catalogs import open_catalog
from strom.lake.iceberg.table import LakeTable
from strom.lake.rounds.cluster import TieringCluster
from strom.lake.rounds.metrics import TieringMetrics
from strom.lake.rounds.parts import Bounds
from strom.lake.rounds.round import Round, RoundContext, RoundProgress, RoundResult
from strom.lake.upkeep.maintenance import EVERY, Maintenance, Upkept
from strom.runtime.clock import SystemClock
from strom.spark.tiering.progress import told
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

SMALL = {
    "table.datalake.compaction.files": "4",
    "table.datalake.snapshots.keep": "5",
    "table.datalake.snapshots.keep-time": "0 s",
    "table.datalake.removal-delay": "1 s",
}


class Service:
    """Rounds of one table as one service runs them."""

    def __init__(
        self, server: ServerProcess, db: strom.Database, cluster: TieringCluster, table: strom.Table
    ) -> None:
        self._table = table
        self._context = RoundContext(cluster, LocalJobs(db), "here", Bounds(tasks_wanted=1), SystemClock())
        config = facts_of(server, table).config
        assert config is not None
        self.catalog = open_catalog(config)

    def round(self) -> RoundResult:
        """One."""
        info, name = self._table.info, self._context.service_id
        told = self._context.cluster.heartbeat(Heartbeat(name, wants=1, tables=[info.table_id], at_once=True))
        (assigned,) = told.assigned
        lake = LakeTable.ensure(
            self.catalog, info.path, info.table_id, info.description, created_ms=info.created_ms
        )
        progress = RoundProgress(assigned, f"here-{assigned.round}")
        return Round(self._context, lake, info, progress, f"{assigned.round}-here").run()


@contextmanager
def service(server: ServerProcess, table: strom.Table) -> Iterator[Service]:
    with strom.connect(server.address) as db, TieringCluster(server.address, retry_s=10) as cluster:
        found = Service(server, db, cluster, table)
        try:
            yield found
        finally:
            found.catalog.close()


def change(table: strom.Table, number: int) -> None:
    """Ten rows, of which five die in the next change."""
    table.upsert([{"id": number * 5 + one, "name": f"n{number}", "score": number} for one in range(10)])
    table.flush()


def test_rounds_keep_files_and_snapshots_few_and_readers_are_told(server: ServerProcess) -> None:
    with (
        tiered(server, USERS, primary_key="id", buckets=2, properties=SMALL) as table,
        service(server, table) as at_work,
    ):
        results = []
        for number in range(3 * EVERY):
            change(table, number)
            results.append(at_work.round())
            assert table.count() == 10 + 5 * number
        done = [one.upkeep for one in results if not one.upkeep.idle]
        assert 2 <= len(done) <= 6
        assert sum(one.files_before for one in done) > sum(one.files_after for one in done) > 0
        assert sum(one.rows_removed for one in done) > 0
        assert len(iceberg(server, table).metadata.snapshots) <= 5 + EVERY + 2
        assert in_lake(server, table)
        record = facts_of(server, table).record
        assert record is not None
        assert record.snapshot_id == iceberg(server, table).metadata.current_snapshot_id
        assert record.facts["upkeep_files_before"] > 0
        assert record.facts["delete_files"] < 2 * EVERY
        change(table, 100)
        at_work.round()
        again = facts_of(server, table).record
        assert again is not None
        assert again.facts["upkeep_ms"] == record.facts["upkeep_ms"], "a round without it leaves it as it was"


def test_maintenance_that_is_switched_off_leaves_every_file(server: ServerProcess) -> None:
    off = {"table.datalake.auto-compaction": "false", "table.datalake.auto-expire-snapshot": "false"}
    with tiered(server, buckets=1, properties=off) as table, service(server, table) as at_work:
        for number in range(EVERY + 1):
            table.append(events(number))
            table.flush()
            assert at_work.round().upkeep.idle
        assert len(iceberg(server, table).metadata.snapshots) == EVERY + 1
        assert in_lake(server, table)


def test_a_round_has_ended_well_even_if_maintenance_does_not(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Upkept:
        raise LakeUnavailable("the storage is away")

    with tiered(server, buckets=1) as table, service(server, table) as at_work:
        table.append(events(1, 2))
        table.flush()
        monkeypatch.setattr(Maintenance, "after_round", fails)
        result = at_work.round()
        assert (result.rows, result.upkeep_problem) == (2, "the storage is away")
        assert facts_of(server, table).rows == 2


def test_people_and_machines_hear_of_it(server: ServerProcess) -> None:
    with (
        tiered(server, USERS, primary_key="id", buckets=1, properties=SMALL) as table,
        service(server, table) as at_work,
    ):
        results = []
        for number in range(EVERY):
            change(table, number)
            results.append(at_work.round())
        metrics = TieringMetrics()
        metrics.ended("t", results[-1])
        assert 'strom_tiering_compacted_files_total{table="t"} 4' in metrics.page()
        assert 'strom_tiering_lake_files{table="t"} 1' in metrics.page()
        assert "4 files became 1" in told(results[-1])


def test_by_hand_everything_is_merged_and_the_rows_stay(server: ServerProcess) -> None:
    with tiered(server, USERS, primary_key="id", buckets=2) as table, service(server, table) as at_work:
        for number in range(EVERY - 1):
            change(table, number)
            at_work.round()
        with strom.connect(server.address) as db:
            done = db.lake_compact(table.name)
            assert (done.files_before, done.files_after) == (2 * (EVERY - 1), 2)
            assert db.lake_compact(table.name).idle
            assert db.lake_expire(table.name).snapshots_expired == 0
            few = {"table.datalake.snapshots.keep": 1, "table.datalake.snapshots.keep-time": "0 s"}
            db.table(table.name).alter(set=few)
            assert db.lake_expire(table.name).snapshots_expired == EVERY - 1
            assert db.table(table.name).count() == 5 * EVERY
        assert in_lake(server, table)
        record = facts_of(server, table).record
        assert record is not None
        assert (record.files, record.facts["delete_files"]) == (2, 0)
