"""Which rows leave the remote log: too old, too many, or overwritten (C9). Pure: facts in, an offset out."""

from __future__ import annotations

from typing import NamedTuple

from strom.remote.remote_manifest import RemoteManifest


class RemoteRetention(NamedTuple):
    """What a table says of its old rows."""

    ttl_ms: int | None
    bytes_max: int | None
    """Of all that the bucket has, here and there."""
    keep_from: int | None
    """The lake lacks what follows."""
    emptied_at: int = 0
    """Rows below were overwritten as a whole."""


def expired_below(
    manifest: RemoteManifest, retention: RemoteRetention, *, now_ms: int, rest_bytes: int
) -> int:
    """Segments that end at or below may go. ``rest_bytes``: what the bucket has that is not in the manifest."""
    below = 0
    total = rest_bytes + sum(one.size for one in manifest.segments)
    for segment in manifest.segments:
        old = retention.ttl_ms is not None and segment.last_timestamp_ms + retention.ttl_ms < now_ms
        too_much = retention.bytes_max is not None and total - segment.size >= retention.bytes_max
        kept = retention.keep_from is not None and segment.end_offset > retention.keep_from
        if kept or not (old or too_much):
            break
        total -= segment.size
        below = segment.end_offset
    return max(below, min(retention.emptied_at, manifest.end_offset))


def removal_due(manifest: RemoteManifest, *, now_ms: int, grace_ms: int) -> bool:
    """Whether something that left the manifest has been out of it for long enough."""
    return any(now_ms - one.retired_ms >= grace_ms for one in manifest.retired)
