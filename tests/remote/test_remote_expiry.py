"""Which rows leave the remote log: whole segments, the oldest first, never past what somebody still needs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strom.remote.remote_expiry import RemoteRetention, expired_below, removal_due
from strom.remote.remote_manifest import NOTHING, RemoteManifest, RemoteSegment, RetiredSegment

FOREVER = RemoteRetention(None, None, None)


def manifest(*lasts: int) -> RemoteManifest:
    """Segments of ten offsets and a hundred bytes each, whose newest batches have these times."""
    segments = tuple(
        RemoteSegment(f"1-{10 * n}-{10 * n + 10}-r", 10 * n, 10 * n + 10, 100, 50, 0, last - 5, last)
        for n, last in enumerate(lasts)
    )
    return replace(NOTHING, epoch=1, by="me", end_offset=10 * len(lasts), segments=segments)


@pytest.mark.parametrize(
    ("retention", "below"),
    [
        (FOREVER, 0),
        (RemoteRetention(100, None, None), 20),
        (RemoteRetention(100, None, 19), 10),
        (RemoteRetention(100, None, 0), 0),
        (RemoteRetention(1, None, None), 40),
        (RemoteRetention(None, 250, None), 20),
        (RemoteRetention(None, 250, 10), 10),
        (RemoteRetention(None, 10_000, None), 0),
        (RemoteRetention(None, None, None, emptied_at=25), 25),
        (RemoteRetention(None, None, None, emptied_at=99), 40),
        (RemoteRetention(None, None, 0, emptied_at=25), 25),
    ],
)
def test_what_may_go(retention: RemoteRetention, below: int) -> None:
    now = manifest(1_000, 1_100, 1_200, 1_300)
    assert (
        expired_below(now, retention, now_ms=1_201 if retention.ttl_ms == 100 else 2_000, rest_bytes=50)
        == below
    )


def test_an_old_segment_behind_a_young_one_stays() -> None:
    assert (
        expired_below(manifest(2_000, 100), RemoteRetention(50, None, None), now_ms=2_010, rest_bytes=0) == 0
    )


def test_objects_wait_for_their_grace() -> None:
    now = replace(manifest(1), retired=(RetiredSegment("a", 100), RetiredSegment("b", 200)))
    assert not removal_due(now, now_ms=149, grace_ms=50)
    assert removal_due(now, now_ms=150, grace_ms=50)
    assert not removal_due(manifest(1), now_ms=10**9, grace_ms=0)
