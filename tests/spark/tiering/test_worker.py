"""The tasks of a round, run by a real Spark: what they write is what was planned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strom
from api.place import events
from spark.tiering.place import USERS, tiered
from strom.errors import LakeUnavailable, TableNotFound
from strom.lake.files.storage import Storage
from strom.lake.rounds.jobs import Cancelled
from strom.lake.rounds.parts import Bounds, Ending, RoundParts, plan_parts
from strom.lake.rounds.work import PartResult, RoundWork, TableOfRound
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeConfig, Tiered
from strom.spark.connect.options import ConnectOptions
from strom.spark.tiering.jobs import SparkJobs
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = Bounds(task_bytes=64 * 400, task_bytes_min=64)


def jobs_of(spark: SparkSession, server: ServerProcess) -> SparkJobs:
    return SparkJobs(spark, ConnectOptions(server.address, retry_s=2))


def work_of(table: strom.Table, plan: RoundParts, folder: Path, **other: object) -> RoundWork:
    config = LakeConfig(warehouse=f"file://{folder}")
    facts = {
        "path": table.info.path,
        "table_id": table.table_id,
        "schema": table.info.schema,
        "kind": plan.kind,
        "partition_keys": table.partition_by,
        "storage": Storage(config),
        "location": f"file://{folder}/t",
        "round_id": "1-ab",
        "tasks": plan.tasks,
    }
    return RoundWork(**{**facts, **other})  # type: ignore[arg-type]


def plan_of(table: strom.Table, lake: dict[BucketId, Tiered] | None = None) -> RoundParts:
    kind = "keys" if table.primary_key else "log"
    ends = {one.bucket: one for one in table.extent().ranges}
    epochs = (
        {one.bucket: one.epoch for one in table.scan(tier="hot").plan().instants} if kind == "keys" else {}
    )
    endings = {
        bucket: Ending(one.partition, one.start, one.end, epochs.get(bucket) or 0)
        for bucket, one in ends.items()
    }
    return plan_parts(kind, lake or {}, endings, {}, SMALL, whole=False)  # type: ignore[arg-type]


def rows_of(found: list[PartResult]) -> pa.Table:
    files = [one.file for one in found if one.file is not None]
    return pa.concat_tables(pq.read_table(one.path.removeprefix("file://")) for one in files)


def test_tasks_write_every_row_of_a_log_with_its_offset_and_time(
    server: ServerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    with tiered(server, buckets=3) as table:
        table.append(events(*range(3000)))
        table.flush()
        plan = plan_of(table)
        assert len(plan.tasks) > 3
        found = jobs_of(spark, server).run(work_of(table, plan, tmp_path), group="g1")
        rows = rows_of(found)
        assert sorted(rows.column("id").to_pylist()) == list(range(3000))
        assert rows.column("__timestamp").null_count == 0
        whole = table.read_stamped(table.scan(tier="hot").plan()).to_arrow()
        want = set(zip(whole.column("id").to_pylist(), whole.column("__offset").to_pylist(), strict=True))
        assert (
            set(zip(rows.column("id").to_pylist(), rows.column("__offset").to_pylist(), strict=True)) == want
        )
        assert sum(one.file.rows for one in found if one.file is not None) == 3000


def test_tasks_bring_live_images_and_what_died(
    server: ServerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    with tiered(server, USERS, primary_key="id", buckets=2) as table:
        table.upsert([{"id": n, "name": "a", "score": 0} for n in range(1000)])
        table.flush()
        first = plan_of(table)
        jobs = jobs_of(spark, server)
        cold = rows_of(jobs.run(work_of(table, first, tmp_path), group="g2"))
        table.upsert([{"id": n, "name": "b", "score": 1} for n in range(500, 1500)])
        table.delete(list(range(100)))
        table.flush()
        at = {one.bucket: Tiered(one.at, one.epoch) for task in first.tasks for one in task}  # type: ignore[arg-type]
        found = jobs.run(work_of(table, plan_of(table, at), tmp_path, round_id="2-ab"), group="g3")
        dead = {
            (one.part.bucket.bucket, int(offset))
            for one in found
            if one.dead is not None
            for offset in one.dead
        }
        kept = [row for row in cold.to_pylist() if (row["__bucket"], row["__offset"]) not in dead]
        union = {row["id"]: row["score"] for row in [*kept, *rows_of(found).to_pylist()]}
        assert len(kept) + rows_of(found).num_rows == len(union) == 1400
        assert union == {row["id"]: row["score"] for row in table.scan().to_arrow().to_pylist()}


def test_a_task_that_failed_once_writes_other_files_and_only_its_last_are_told(
    server: ServerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    with tiered(server, buckets=1) as table:
        table.append(events(*range(100)))
        table.flush()
        work = work_of(table, plan_of(table), tmp_path)
        mark = tmp_path / "failed"
        failing = FailingOnce(**vars(work), mark=str(mark))
        (found,) = jobs_of(spark, server).run(failing, group="g4")
        assert mark.exists()
        assert found.file is not None
        written = {path.name for path in (tmp_path / "t" / "data").iterdir() if path.suffix == ".parquet"}
        assert len(written) == 2
        assert Path(found.file.path).name in written
        assert pq.read_table(found.file.path.removeprefix("file://")).num_rows == 100


@dataclass(frozen=True)
class FailingOnce(RoundWork):
    """Writes everything, and then fails the first time."""

    mark: str

    def run(self, table: TableOfRound, number: int, attempt: int = 0) -> list[PartResult]:
        found = super().run(table, number, attempt)
        try:
            Path(self.mark).touch(exist_ok=False)
        except FileExistsError:
            return found
        raise OSError("this task fails once")


def test_an_error_that_comes_again_is_told_as_it_is_and_not_retried(
    server: ServerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    with tiered(server, USERS, primary_key="id", buckets=1) as table:
        table.upsert([{"id": 1, "name": "a", "score": 0}])
        table.flush()
        plan = plan_of(table)
        gone = work_of(table, plan, tmp_path, table_id=999_999)
        with pytest.raises(TableNotFound):
            jobs_of(spark, server).run(gone, group="g5")


def test_a_server_that_cannot_be_reached_fails_the_job_with_a_sentence(
    server: ServerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    with tiered(server, buckets=1) as table:
        table.append(events(1))
        table.flush()
        nobody = SparkJobs(spark, ConnectOptions("127.0.0.1:1", retry_s=0))
        work = work_of(table, plan_of(table), tmp_path)
        with pytest.raises(LakeUnavailable, match=r"no server answers at 127\.0\.0\.1:1"):
            nobody.run(work, group="g6")


def test_a_cancelled_round_does_not_begin(server: ServerProcess, spark: SparkSession, tmp_path: Path) -> None:
    with tiered(server, buckets=1) as table:
        table.append(events(1))
        table.flush()
        jobs = jobs_of(spark, server)
        jobs.cancel("g7")
        with pytest.raises(Cancelled):
            jobs.run(work_of(table, plan_of(table), tmp_path), group="g7")
        assert not (tmp_path / "t").exists()
