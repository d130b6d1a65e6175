"""Broken rules, planted in the real tablet: the oracle of ``key_histories`` has to notice each of them.

python -m kv.key_faults [NAME]     the first seed that shows each   (in tests/)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from kv import key_histories
from kv.key_histories import Colliding
from strom.kv import instant
from strom.kv.gather.column_source import ColumnSource
from strom.kv.index.secondary_index import SecondaryIndex
from strom.kv.index.series import Series
from strom.kv.lookup import many_rows as reading
from strom.kv.snapshot.snapshot import SnapshotJob
from strom.kv.snapshot.stored_shards import ShardFileWriter
from strom.tablet import key_jobs
from strom.tablet.key_jobs import Reclaim, TakeSnapshot
from strom.tablet.key_leases import Leases
from strom.tablet.key_tablet import KeyTablet
from strom.tablet.key_upkeep import Upkeep

STEPS = 80


def _after(kind: Any, name: str, then: Callable[..., None]) -> Any:
    """Do something more after a method."""
    before = getattr(kind, name)

    def both(self: Any, *args: Any, **named: Any) -> Any:
        result = before(self, *args, **named)
        then(self)
        return result

    return patch.object(kind, name, both)


def _instead(kind: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Any:
    return patch.object(kind, name, make(getattr(kind, name)))


def _live_now_only(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda store, start, end, _horizon: original(store, start, end, store.published)


def _images_only(original: Callable[..., None]) -> Callable[..., None]:
    def append(self: Series, base: int, count: int, offsets: Any, previous: Any) -> None:
        original(self, base, count, offsets, np.where(previous & 1, previous, -1))

    return append


def _named(**changed: Callable[[Any], Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def make(original: Callable[..., None]) -> Callable[..., None]:
        def made(self: Any, files: Any, folder: Any, store: Any, previous: Any, **named: Any) -> None:
            named |= {name: of(store) for name, of in changed.items()}
            original(self, files, folder, store, previous, **named)

        return made

    return make


def _unsynced(original: Callable[..., None]) -> Callable[..., None]:
    return lambda self, tablet, snapshot, _point: original(self, tablet, snapshot, None)


def _expire_carried(original: Callable[..., Any]) -> Callable[..., Any]:
    def expire(self: KeyTablet, **named: Any) -> Any:
        return self.log.expire(**named, keep_from=self.store.rows.carried)

    return expire


def _expire_leased(original: Callable[..., Any]) -> Callable[..., Any]:
    def expire(self: KeyTablet, **named: Any) -> Any:
        with patch.object(Leases, "lowest", lambda *_: None):
            return original(self, **named)

    return expire


def _sweep_all(original: Callable[..., None]) -> Callable[..., None]:
    def sweep(self: Upkeep) -> None:
        manifest, self._tablet.manifest = self._tablet.manifest, None
        original(self)
        self._tablet.manifest = manifest

    return sweep


def _reclaim_all(tablet: Any, start: int, end: int) -> Reclaim:
    job = Reclaim(tablet, start, end)
    job._range = start, end, tablet.store.published
    return job


def _live_now(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda block, replaced: original(block, replaced[:0])


def _set_horizon(tablet: KeyTablet) -> KeyTablet:
    tablet.horizon = tablet.store.series.start
    return tablet


def _open_without_horizon(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda world: _set_horizon(original(world))


def _one_hash(self: Colliding, rows: ColumnSource) -> Any:
    return self._inner.hash(rows) & np.uint64(1)


FAULTS: dict[str, Callable[[], list[Any]]] = {
    "carry-past-H": list,
    "merge-drops-newer-than-R": lambda: [_instead(key_jobs, "needed_from", _live_now_only)],
    "live-bits-now": lambda: [_instead(instant, "_live", _live_now)],
    "unsynced-files": lambda: [patch.object(ShardFileWriter, "close", lambda self: None)],
    "truncate-forgets-secondary": lambda: [patch.object(SecondaryIndex, "restore", lambda *_: None)],
    "series-images-only": lambda: [_instead(Series, "append", _images_only)],
    "secondary-newest-only": lambda: [
        patch.object(reading, "_candidates", lambda _, index, hashes: index.links.rows_many(hashes))
    ],
    "manifest-at-end": lambda: [
        _instead(SnapshotJob, "__init__", _named(offset=lambda store: store.published))
    ],
    "manifest-without-R": lambda: [_instead(key_histories.World, "open", _open_without_horizon)],
    "trim-before-manifest": lambda: [
        _after(Upkeep, "raise_horizon", lambda u: u._tablet.store.series.trim(u._tablet.horizon))
    ],
    "retention-before-manifest": lambda: [_instead(KeyTablet, "expire", _expire_carried)],
    "retention-ignores-leases": lambda: [_instead(KeyTablet, "expire", _expire_leased)],
    "files-swept-before-manifest": lambda: [_instead(Upkeep, "sweep", _sweep_all)],
    "recycle-below-H": lambda: [patch.object(key_histories, "Reclaim", _reclaim_all)],
    "at-least-without-epoch": lambda: [patch.object(KeyTablet, "_check_epoch", lambda *_: None)],
    "log-unsynced-at-manifest": lambda: [_instead(TakeSnapshot, "__init__", _unsynced)],
    "hash-is-key": lambda: [patch.object(Colliding, "bijective", True)],
}


@contextmanager
def planted(fault: str) -> Iterator[frozenset[str]]:
    """The rule is broken within this block."""
    with ExitStack() as stack:
        for broken in FAULTS[fault]():
            stack.enter_context(broken)
        yield frozenset({fault})


def failure(seed: int, fault: str) -> tuple[str, list[str]] | None:
    """What a history with a broken rule comes to."""
    with planted(fault) as faults:
        return key_histories.failure(seed, STEPS, faults)


if __name__ == "__main__":
    for name in sys.argv[1:] or FAULTS:
        caught = next(((s, f) for s in range(400) if (f := failure(s, name))), None)
        print(
            f"{name:28}",
            "NOT CAUGHT" if caught is None else f"seed {caught[0]:3}: {caught[1][0][:90]}",
            flush=True,
        )
