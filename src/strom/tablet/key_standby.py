"""The store of a follower: it takes in each pulled batch of the changelog, so that it is ready to lead at any moment.

A batch says itself what it does to the store, so the store is what a replay of the log would make it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strom.kv.store import KeyStore
from strom.log.copies.following import PulledBatch
from strom.tablet.key_replay import logged_batch, publish_logged
from strom.tablet.tablet import Tablet


class Standby:
    """Some pulled batches on their way into a store."""

    def __init__(
        self,
        tablet: Tablet,
        store: KeyStore,
        on_written: Callable[[int], None],
        batches: Sequence[PulledBatch],
    ) -> None:
        """Decodes all of them: what cannot be read is refused before anything is in the log."""
        self._tablet = tablet
        self._store = store
        self._on_written = on_written
        self._batches = [logged_batch(store.definition, one.header, one.view) for one in batches]

    def publish(self, number: int) -> None:
        """Take in one of them; it is in the log."""
        batch, tablet = self._batches[number], self._tablet
        try:
            publish_logged(self._store, batch)
        except Exception as error:
            # The log has it, the index may have half of it. Reopened, the tablet replays the log.
            raise tablet.broken(f"pulled changes could not be published: {error!r}") from error
        self._store.forget_undo(tablet.high_watermark)
        self._on_written(batch.header.size)
