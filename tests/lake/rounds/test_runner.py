"""The runner looks at the table before a round, and at whether the round was given up before it commits."""

from __future__ import annotations

import pytest

from lake.small_tierer import LocalJobs
from lake.union_place import COLUMNS, LAKE, lake_table, rows
from strom.client.admin.lake_admin import Assigned
from strom.errors import TableNotFound
from strom.lake.rounds.cluster import TieringCluster
from strom.lake.rounds.jobs import Cancelled
from strom.lake.rounds.lake_tables import LakeTables
from strom.lake.rounds.parts import Bounds
from strom.lake.rounds.round import RoundContext, RoundProgress
from strom.lake.rounds.runner import RoundRunner
from strom.lake.rounds.work import PartResult, RoundWork
from strom.runtime.clock import SystemClock
from strom.runtime.random import SystemRandomness
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


class GivenUp(LocalJobs):
    """Somebody gives the round up while its last task runs."""

    written = 0

    def run(self, work: RoundWork, *, group: str) -> list[PartResult]:
        found = super().run(work, group=group)
        self.written = len(found)
        return found

    def check(self, group: str) -> None:
        raise Cancelled(group)


def runner_of(cluster: TieringCluster, jobs: LocalJobs) -> RoundRunner:
    context = RoundContext(cluster, jobs, "here", Bounds(tasks_wanted=1), SystemClock())
    return RoundRunner(context, LakeTables(cluster), SystemRandomness())


def test_a_round_that_was_given_up_while_it_wrote_commits_nothing(server: ServerProcess) -> None:
    with lake_table(server, buckets=1) as (db, table, _), TieringCluster(server.address) as cluster:
        table.append(rows(1, 2))
        table.flush()
        jobs = GivenUp(db)
        runner = runner_of(cluster, jobs)
        try:
            with pytest.raises(Cancelled):
                runner.run(RoundProgress(Assigned(table.table_id, 1, table.info.path), "here-1"))
        finally:
            runner.close()
        assert jobs.written
        assert db.lake(table.name).facts.snapshot_id is None


def test_a_table_made_again_under_its_name_does_not_get_the_round_of_the_old_one(
    server: ServerProcess,
) -> None:
    with lake_table(server, buckets=1) as (db, old, _), TieringCluster(server.address) as cluster:
        progress = RoundProgress(Assigned(old.table_id, 1, old.info.path), "here-1")
        db.drop_table(old.name)
        new = db.create_table(old.name, COLUMNS, buckets=1, properties=LAKE)
        new.append(rows(1, 2))
        new.flush()
        runner = runner_of(cluster, LocalJobs(db))
        try:
            with pytest.raises(TableNotFound, match="dropped and recreated"):
                runner.run(progress)
        finally:
            runner.close()
        assert db.lake(new.name).facts.snapshot_id is None
