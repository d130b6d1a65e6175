"""How copies are kept equal: the settings, once for all buckets."""

from __future__ import annotations

from dataclasses import dataclass

from strom.runtime.settings import Settings


@dataclass(frozen=True)
class ReplicaSettings:
    """What all copies of this server share."""

    pull_wait_ms: int = 500
    pull_bytes_max: int = 8 * 1024 * 1024
    lag_ms_max: int = 2000
    sync_every_ms: int = 1000
    copy_hold_ms_max: int = 3_600_000
    copy_bytes_per_s: int = 256 * 1024 * 1024

    @classmethod
    def of(cls, settings: Settings) -> ReplicaSettings:
        """From the server's settings."""
        return cls(
            pull_wait_ms=settings["replica.pull.wait"],
            pull_bytes_max=settings["replica.pull.max-bytes"],
            lag_ms_max=settings["replica.lag.max"],
            sync_every_ms=settings["log.sync.interval"],
            copy_hold_ms_max=settings["replica.copy.hold-max"],
            copy_bytes_per_s=settings["replica.copy.rate"],
        )
