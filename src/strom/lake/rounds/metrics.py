"""The metrics of a tiering service, as a Prometheus page in a file or over HTTP.

Per table: how far the lake is behind when the page is read (rows and seconds, as in ``strom lake status``), rounds,
failures, seconds, rows, deletes, files, bytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path

from strom.client.admin.lake_status import LakeStatus
from strom.errors import LagUnknown, StromError
from strom.lake.rounds.round import RoundResult
from strom.model.table import TablePath
from strom.rpc.http_server import HttpAnswer, HttpThread
from strom.runtime.metrics import METRICS_TYPE, Metrics, render

ROUND_SECONDS = (0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000)
logger = logging.getLogger(__name__)

STATES = ("active", "failing", "quarantined")


class TieringMetrics:
    """The metrics of one service. ``tables``: those it works on; ``status``: how far the lake of one is behind."""

    def __init__(
        self,
        tables: Callable[[], Iterable[TablePath]] = lambda: (),
        status: Callable[[TablePath], LakeStatus] | None = None,
    ) -> None:
        self._tables = tables
        self._status = status or _nobody_knows
        self._metrics = Metrics()
        self.rounds_running = self._metrics.gauge("strom_tiering_rounds_running", "Rounds under way.")

    def page(self) -> str:
        """All of them as Prometheus text."""
        self._look()
        return render(self._metrics.samples())

    def _look(self) -> None:
        """Measure how far the lake is behind now; a table whose lag is unknown has no such lines."""
        for path in self._tables():
            rows: int | None = None
            lag_ms: int | None = None
            try:
                now = self._status(path)
                rows, lag_ms = now.lag_rows, now.lag_ms
            except StromError as error:
                logger.info("it is unknown how far the lake is behind %s: %s", path, error)
            gauge, table = self._metrics.gauge, str(path)
            gauge("strom_tiering_lag_rows", "Rows that are not in the lake now.", table=table).follow(
                _value(rows)
            )
            gauge(
                "strom_tiering_lag_seconds", "What was written longer ago is in the lake.", table=table
            ).follow(_value(None if lag_ms is None else lag_ms / 1000))

    def ended(self, table: str, result: RoundResult) -> None:
        """Count a round that succeeded."""
        counter = self._metrics.counter
        counter("strom_tiering_rounds_total", "Rounds that ended well.", table=table).inc()
        counter("strom_tiering_rows_total", "Rows written into the lake.", table=table).inc(result.rows)
        counter("strom_tiering_deletes_total", "Rows of the lake that died.", table=table).inc(result.deletes)
        counter("strom_tiering_files_total", "Data files written.", table=table).inc(result.files)
        counter("strom_tiering_bytes_total", "Bytes of data files.", table=table).inc(result.size_bytes)
        seconds = self._metrics.histogram(
            "strom_tiering_round_seconds", "Seconds of a round.", bounds=ROUND_SECONDS, table=table
        )
        seconds.observe(result.took.get("round", 0.0))
        self._kept_up(table, result)
        self._state(table, "active")

    def _kept_up(self, table: str, result: RoundResult) -> None:
        """Count what upkeep did after the round, and the files that are left."""
        done, counter, gauge = result.upkeep, self._metrics.counter, self._metrics.gauge
        counter("strom_tiering_compacted_files_total", "Lake files merged away.", table=table).inc(
            done.files_before
        )
        counter("strom_tiering_compacted_rows_total", "Dead rows dropped from lake files.", table=table).inc(
            done.rows_removed
        )
        counter("strom_tiering_expired_snapshots_total", "Lake snapshots forgotten.", table=table).inc(
            done.snapshots_expired
        )
        counter("strom_tiering_removed_files_total", "Files removed from the lake.", table=table).inc(
            done.files_removed
        )
        totals = (done.head or result.head).totals
        gauge("strom_tiering_lake_files", "Data files of the lake table.", table=table).set(totals.files)
        gauge("strom_tiering_lake_delete_files", "Files of deletes of the lake table.", table=table).set(
            totals.delete_files
        )

    def failed(self, table: str, *, quarantined: bool) -> None:
        """Count a round that failed."""
        self._metrics.counter("strom_tiering_failures_total", "Rounds that failed.", table=table).inc()
        self._state(table, "quarantined" if quarantined else "failing")

    def _state(self, table: str, state: str) -> None:
        for one in STATES:
            self._metrics.gauge(
                "strom_tiering_state", "1 for the state a table is in.", table=table, state=one
            ).set(float(one == state))


def _nobody_knows(path: TablePath) -> LakeStatus:
    raise LagUnknown(f"this service cannot tell how far the lake is behind {path}")


def _value(number: float | None) -> Callable[[], float | None]:
    return lambda: number


def write_page(metrics: TieringMetrics, path: Path) -> None:
    """Write the page to a file, atomically: a collector of text files may read it at any time."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(metrics.page())
    scratch.replace(path)


class MetricsServer:
    """Answers ``GET /metrics`` until it is closed."""

    def __init__(self, metrics: TieringMetrics, host: str, port: int) -> None:
        async def respond(path: str) -> HttpAnswer:
            if path.partition("?")[0] not in ("/", "/metrics"):
                return HttpAnswer("look at /metrics\n", status=HTTPStatus.NOT_FOUND)
            return HttpAnswer(await asyncio.to_thread(metrics.page), METRICS_TYPE)

        self._http = HttpThread(respond, host, port)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._http.port

    def close(self) -> None:
        """Stop listening."""
        self._http.close()
