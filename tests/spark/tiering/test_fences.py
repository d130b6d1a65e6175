"""Rounds that meet: whatever lands first, each row is in the lake once, and a table that is wrong stands alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import strom
from api.place import events
from spark.tiering.place import USERS, tiered
from spark.tiering.tiers import by_pyiceberg, facts_of, iceberg, in_lake, tier
from strom.client.admin.lake_admin import Assigned
from strom.errors import LakeCommitUnknown
from strom.lake.iceberg.catalogs import LakeCatalog, open_catalog
from strom.lake.iceberg.commit import commit_round
from strom.lake.iceberg.lake_head import read_head
from strom.lake.iceberg.table import LakeTable
from strom.lake.rounds.cluster import TieringCluster
from strom.lake.rounds.parts import Bounds
from strom.lake.rounds.round import Round, RoundContext, RoundProgress, RoundResult
from strom.lake.rounds.work import PartResult, RoundWork
from strom.runtime.clock import SystemClock
from strom.spark.connect.options import ConnectOptions
from strom.spark.tiering.jobs import SparkJobs
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def users(*ids: int, score: int = 0) -> list[dict[str, object]]:
    return [{"id": number, "name": f"n{number}", "score": score} for number in ids]


class Meeting(SparkJobs):
    """Does something after the files of a round were written, and before they are committed."""

    def __init__(self, spark: SparkSession, server: ServerProcess, then: Callable[[], object]) -> None:
        super().__init__(spark, ConnectOptions(server.address, retry_s=10))
        self._then = then
        self.jobs = 0

    def run(self, work: RoundWork, *, group: str) -> list[PartResult]:
        found = super().run(work, group=group)
        self.jobs += 1
        if self.jobs == 1:
            self._then()
        return found


class Rounds:
    """Rounds of one table that no coordinator gave out."""

    def __init__(self, server: ServerProcess, table: strom.Table) -> None:
        self._address = server.address
        self._table = table
        config = facts_of(server, table).config
        assert config is not None
        self.catalog: LakeCatalog = open_catalog(config)

    def lake(self) -> LakeTable:
        info = self._table.info
        return LakeTable.ensure(self.catalog, info.path, info.table_id, info.description)

    def run(self, jobs: SparkJobs, number: int) -> RoundResult:
        info = self._table.info
        with TieringCluster(self._address, retry_s=10) as cluster:
            context = RoundContext(cluster, jobs, f"s{number}", Bounds(), SystemClock())
            progress = RoundProgress(Assigned(info.table_id, 10**9 + number, info.path), f"fence-{number}")
            return Round(context, self.lake(), info, progress, f"{number}-fence").run()


def test_two_rounds_of_one_table_at_once_bring_each_row_once(
    server: ServerProcess, spark: SparkSession
) -> None:
    with tiered(server, USERS, primary_key="id", buckets=2) as table:
        table.upsert(users(*range(200)))
        table.flush()
        rounds = Rounds(server, table)
        both = threading.Barrier(2, timeout=60)
        results: list[RoundResult] = []

        def one(number: int) -> None:
            results.append(rounds.run(Meeting(spark, server, both.wait), number))

        threads = [threading.Thread(target=one, args=(number,)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(result.rows for result in results) == [0, 200]
        assert in_lake(server, table)
        rounds.catalog.close()


def test_a_commit_that_moves_no_bucket_does_not_cost_a_round_its_files(
    server: ServerProcess, spark: SparkSession
) -> None:
    with tiered(server, USERS, primary_key="id", buckets=2) as table:
        table.upsert(users(*range(200)))
        table.flush()
        tier(server, spark, table)
        table.upsert(users(*range(100), score=1))
        table.delete([150])
        table.flush()
        rounds = Rounds(server, table)

        def another_commit() -> None:
            lake = rounds.lake()
            head = read_head(lake)
            commit_round(lake, head, round_id="other", offsets=head.offsets, partitions=head.partitions)

        jobs = Meeting(spark, server, another_commit)
        result = rounds.run(jobs, 1)
        assert (result.rows, result.deletes, jobs.jobs) == (100, 101, 1)
        assert in_lake(server, table)
        rounds.catalog.close()


def test_a_commit_whose_answer_was_lost_is_found_in_the_lake(
    server: ServerProcess, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tiered(server, buckets=1) as table:
        table.append(events(*range(10)))
        table.flush()
        rounds = Rounds(server, table)
        real = commit_round
        answers = iter([True])

        def lost(*arguments: Any, **named: Any) -> Any:
            found = real(*arguments, **named)
            if next(answers, False):
                raise LakeCommitUnknown("no answer")
            return found

        monkeypatch.setattr("strom.lake.rounds.committer.commit_round", lost)
        jobs = Meeting(spark, server, lambda: None)
        assert rounds.run(jobs, 1).rows == 10
        assert jobs.jobs == 1
        assert len(iceberg(server, table).metadata.snapshots) == 1
        assert in_lake(server, table)
        rounds.catalog.close()


def test_a_foreign_append_quarantines_its_table_and_the_others_go_on(
    server: ServerProcess, spark: SparkSession
) -> None:
    with tiered(server, buckets=1) as wrong, tiered(server, buckets=1) as right:
        for table in (wrong, right):
            table.append(events(1, 2, 3))
            table.flush()
        tier(server, spark, wrong, right)
        found = iceberg(server, wrong)
        found.append(found.scan().to_arrow())
        for table in (wrong, right):
            table.append(events(4))
            table.flush()
        ends = {str(end.assigned.path): end for end in tier(server, spark, wrong, right)}
        assert ends[wrong.name].quarantined
        assert ends[right.name].result is not None
        facts = facts_of(server, wrong)
        assert facts.state == "quarantined"
        assert "another engine" in (facts.reason or "")
        assert in_lake(server, right)
        assert by_pyiceberg(server, wrong).num_rows == 6
        assert tier(server, spark, wrong) == []
