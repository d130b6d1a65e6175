"""Starts a tiering service: the Spark session, the connections, the signals that end it, the page of metrics."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from strom.lake.rounds.cluster import TieringCluster
from strom.lake.rounds.lake_tables import LakeTables
from strom.lake.rounds.metrics import MetricsServer, TieringMetrics, write_page
from strom.lake.rounds.round import RoundContext
from strom.lake.rounds.runner import RoundRunner
from strom.lake.rounds.service import RoundListener, TieringOptions, TieringService, table_ids
from strom.runtime.clock import SystemClock
from strom.runtime.java.java_home import SUBMITTED
from strom.runtime.random import SystemRandomness
from strom.spark.connect.options import ConnectOptions
from strom.spark.tiering.jobs import SETTINGS, SparkJobs
from strom.spark.tiering.progress import Bars, Lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER = "local[*,4]"
"""All cores of this machine; a task may fail three times before its round does."""
METRICS_EVERY_S = 5.0
CONTROL_RETRY_S = 5
"""A heartbeat waits no longer than this, so that the service notices ``stop``."""


@dataclass(frozen=True)
class Where:
    """Where a service runs."""

    server: ConnectOptions
    master: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark."""
    metrics_file: Path | None = None
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"


def run(where: Where, options: TieringOptions) -> int:
    """Serve until SIGTERM, Ctrl-C or, with ``once``, until everything is done; the number of failed rounds."""
    with ExitStack() as stack:
        control = stack.enter_context(cluster_of(where.server, retry_s=CONTROL_RETRY_S))
        table_ids(control, options.tables)  # report a wrong name before Spark starts
        cluster = stack.enter_context(cluster_of(where.server))
        spark = stack.enter_context(_session(where))
        console = Console(stderr=True)
        listener = stack.enter_context(Bars(console)) if sys.stderr.isatty() else Lines(console)
        service = service_of(where.server, cluster, spark, options, listener, control)
        stack.enter_context(_published(service.metrics, where))
        stack.enter_context(_stopped_by_signals(service))
        service.run()
        return len(service.failures)


def cluster_of(server: ConnectOptions, *, retry_s: int | None = None) -> TieringCluster:
    """A connection for the rounds of a service."""
    retry_s = server.retry_s if retry_s is None else retry_s
    return TieringCluster(server.address, user=server.user, password=server.password, retry_s=retry_s)


def service_of(
    server: ConnectOptions,
    cluster: TieringCluster,
    spark: SparkSession,
    options: TieringOptions,
    listener: RoundListener | None = None,
    control: TieringCluster | None = None,
) -> TieringService:
    """A service on a session that the caller owns; ``control``: another connection, for heartbeats."""
    clock, randomness = SystemClock(), SystemRandomness()
    service_id = f"tier-{randomness.token(6).hex()}"
    jobs = SparkJobs(spark, server)
    bounds = replace(options.bounds, tasks_wanted=options.bounds.tasks_wanted or jobs.cores)
    context = RoundContext(cluster, jobs, service_id, bounds, clock)
    rounds = RoundRunner(context, LakeTables(cluster), randomness)
    return TieringService(service_id, control or cluster, rounds, options, listener=listener)


@contextmanager
def _session(where: Where) -> Iterator[SparkSession]:
    import strom.spark

    master = where.master or (None if SUBMITTED in os.environ else LOCAL_MASTER)
    config = {**SETTINGS, "spark.ui.enabled": "false", **where.spark}
    spark = strom.spark.session(master=master, name="strom-tiering", config=config)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _published(metrics: TieringMetrics, where: Where) -> Iterator[None]:
    """The page over HTTP and as a file, while the service runs and once more at its end."""
    server = None
    if where.metrics_port is not None:
        server = MetricsServer(metrics, where.metrics_host, where.metrics_port)
    over = threading.Event()
    writer = None
    if where.metrics_file is not None:
        writer = threading.Thread(
            target=_write, args=(metrics, where.metrics_file, over), name="strom-metrics-file", daemon=True
        )
        writer.start()
    try:
        yield
    finally:
        over.set()
        if writer is not None:
            writer.join()
        if server is not None:
            server.close()


def _write(metrics: TieringMetrics, path: Path, over: threading.Event) -> None:
    while True:
        last = over.wait(METRICS_EVERY_S)
        write_page(metrics, path)
        if last:
            return


@contextmanager
def _stopped_by_signals(service: TieringService) -> Iterator[None]:
    """The first signal ends the service gracefully, a second one at once."""
    before: dict[int, Any] = {}

    def handle(number: int, _: object) -> None:
        signal.signal(number, before[number])
        service.stop()

    for one in (signal.SIGINT, signal.SIGTERM):
        before[one] = signal.getsignal(one)
        signal.signal(one, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
