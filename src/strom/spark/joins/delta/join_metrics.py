"""Metrics of a delta join for Prometheus: batches, keys, rows, seconds and lag."""

from __future__ import annotations

import logging
from collections.abc import Callable

from strom.errors import StromError
from strom.runtime.metrics import Metrics, Sample
from strom.spark.joins.delta.batch_progress import BatchProgress

log = logging.getLogger("strom.spark")

BATCH_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250)


class JoinMetrics:
    """The metrics of one join since its query started."""

    def __init__(self, table: str) -> None:
        self._metrics = Metrics()
        self._table = table

    def follow(self, lag: Callable[[], int]) -> None:
        """Set the function that computes the lag. While it fails, the page has no such line."""
        gauge = self._metrics.gauge(
            "strom_join_lag_rows", "Changes of the inputs that are not in the result now.", table=self._table
        )

        def asked() -> float | None:
            try:
                return float(lag())
            except StromError as error:
                log.info("the lag of %s is unknown: %s", self._table, error)
                return None

        gauge.follow(asked)

    def ended(self, batch: BatchProgress) -> None:
        """A batch was published."""
        counter, table = self._metrics.counter, self._table
        counter(
            "strom_join_changes_total", "Images of the inputs' changelogs that were read.", table=table
        ).inc(batch.changes)
        counter("strom_join_keys_total", "Join keys that were recomputed.", table=table).inc(batch.keys)
        counter("strom_join_rows_written_total", "Rows written into the result.", table=table).inc(
            batch.written
        )
        counter("strom_join_rows_deleted_total", "Rows deleted from the result.", table=table).inc(
            batch.deleted
        )
        seconds = self._metrics.histogram(
            "strom_join_batch_seconds", "Seconds of a batch.", bounds=BATCH_SECONDS, table=self._table
        )
        seconds.observe(batch.seconds)
        self._metrics.gauge("strom_join_batch", "The number of the last batch.", table=self._table).set(
            float(batch.batch)
        )

    def samples(self) -> list[Sample]:
        """The current samples."""
        return self._metrics.samples()
