"""What people and monitoring see of uploading: what is not in the store yet, since when, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from strom.model.bucket import BucketId
from strom.runtime.clock import Clock
from strom.runtime.metrics import Metrics


class CourseFacts(Protocol):
    """How far one bucket is."""

    bucket: BucketId
    end: int | None
    waits_since: float | None
    pending_bytes: int
    error: str


class UploadFacts:
    """Of all buckets that this server leads."""

    def __init__(self, metrics: Metrics, courses: Callable[[], Iterable[CourseFacts]], clock: Clock) -> None:
        self._courses = courses
        self._clock = clock
        self._bytes = metrics.counter("strom_remote_uploaded_bytes_total", "Bytes put into the object store")
        self._failures = metrics.counter(
            "strom_remote_upload_failures_total", "Attempts to upload a bucket that failed"
        )
        metrics.gauge("strom_remote_pending_bytes", "Log bytes that are not in the object store yet").follow(
            lambda: sum(one.pending_bytes for one in courses())
        )
        metrics.gauge(
            "strom_remote_behind_seconds", "How long the bucket that waits longest to be uploaded has waited"
        ).follow(self.behind_s)
        metrics.gauge("strom_remote_buckets_failing", "Buckets whose last upload failed").follow(
            lambda: sum(bool(one.error) for one in courses())
        )

    def uploaded(self, size: int) -> None:
        """A stretch is in the store."""
        self._bytes.inc(size)

    def failed(self) -> None:
        """An attempt failed."""
        self._failures.inc()

    def behind_s(self) -> float:
        """How long the one that waits longest has waited."""
        now = self._clock.monotonic()
        since = [one.waits_since for one in self._courses() if one.waits_since is not None]
        return now - min(since) if since else 0.0

    def summary(self) -> dict[str, Any]:
        """For the server's summary."""
        courses = list(self._courses())
        failing = [one for one in courses if one.error]
        return {
            "pending_bytes": sum(one.pending_bytes for one in courses),
            "behind_s": round(self.behind_s(), 1),
            "failing": len(failing),
            "error": failing[0].error if failing else "",
        }
