"""Rounds of tiering on a warm Spark, each into a warehouse of the question's choice: for questions about the lake.

A round here is the service's own code from planning to commit; only its report goes nowhere, so that the same table can
be tiered again and again from nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lake.small_tierer import LocalJobs

import strom
from benchmarks import on_spark
from benchmarks.harness import Bench
from strom.client.admin.lake_admin import Assigned
from strom.lake.iceberg.catalogs import open_catalog
from strom.lake.iceberg.table import LakeTable
from strom.lake.rounds.cluster import TieringCluster
from strom.lake.rounds.parts import Bounds
from strom.lake.rounds.round import Round, RoundContext, RoundProgress, RoundResult
from strom.model.lake.lake import LakeConfig
from strom.model.lake.lake_record import LakeReport
from strom.runtime.clock import SystemClock
from strom.spark.connect.options import ConnectOptions
from strom.spark.tiering.jobs import SETTINGS, SparkJobs
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)


class Unheard(TieringCluster):
    """Rounds of a question are nobody's business."""

    def report(
        self,
        table_id: int,
        report: LakeReport,
        *,
        service_id: str,
        round_number: int,
        goes_on: bool = False,
        ahead: bool = False,
    ) -> str | None:
        return None


@dataclass(frozen=True)
class Lake:
    """A server, a warm session, and rounds at will."""

    folder: Path
    spark: SparkSession
    server: ServerProcess
    db: strom.Database
    context: RoundContext

    def table(self, table: strom.Table, warehouse: str) -> LakeTable:
        """The lake table of a table in a warehouse of its own."""
        config = LakeConfig(warehouse=f"file://{self.folder / warehouse}")
        info = table.info
        return LakeTable.ensure(open_catalog(config), info.path, info.table_id, info.description)

    def round(self, table: strom.Table, warehouse: str) -> RoundResult:
        """One round of a table into a warehouse: all that is not there yet."""
        with self.opened(table, warehouse) as round_of:
            return round_of()

    @contextmanager
    def opened(self, table: strom.Table, warehouse: str) -> Iterator[Callable[[], RoundResult]]:
        """As many rounds as are wanted, with a catalog that stays open, as a service's does."""
        lake = self.table(table, warehouse)

        def run() -> RoundResult:
            number = next(_numbers)
            progress = RoundProgress(Assigned(table.table_id, number, table.info.path), f"bench-{number}")
            return Round(self.context, lake, table.info, progress, f"{number}-bench").run()

        try:
            yield run
        finally:
            lake.catalog.close()


@contextmanager
def without_spark(bench: Bench) -> Iterator[Lake]:
    """A server, and rounds whose tasks run in this process."""
    settings = {"durability": "os"}
    with (
        ServerProcess(bench.folder / "data", settings=settings) as server,
        strom.connect(server.address) as db,
        Unheard(server.address) as cluster,
    ):
        bounds = Bounds(tasks_wanted=1)
        context = RoundContext(cluster, LocalJobs(db), "bench", bounds, SystemClock())
        yield Lake(bench.folder, None, server, db, context)  # type: ignore[arg-type]


@contextmanager
def place(bench: Bench, bounds: Bounds | None = None) -> Iterator[Lake]:
    """A session and a server, both warm enough to be asked."""
    with on_spark.place(bench, **SETTINGS) as (spark, server, db):
        jobs = SparkJobs(spark, ConnectOptions(server.address))
        with Unheard(server.address) as cluster:
            chosen = bounds or Bounds(tasks_wanted=jobs.cores)
            context = RoundContext(cluster, jobs, "bench", chosen, SystemClock())
            yield Lake(bench.folder, spark, server, db, context)
