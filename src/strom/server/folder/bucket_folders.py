"""In which data folder a bucket lies: where it is already, where the cluster expects it, or else where most room is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from strom.model.bucket import BucketId
from strom.runtime.files import Files
from strom.server.folder.folder import bucket_path

SIMILAR_ROOM = 0.9
"""Folders with at least this share of the most room are equally good; new buckets take turns there."""


class BucketFolders:
    """The data folders of one tablet server, each on a disk of its own. Any thread may ask."""

    def __init__(
        self,
        files: Files,
        roots: Sequence[str],
        expected: Callable[[BucketId], str | None] = lambda bucket: None,
    ) -> None:
        """``expected``: the data folder in which the cluster expects a new bucket."""
        assert roots
        self._expected = expected
        self._files = files
        self.roots = tuple(roots)
        self._known: dict[BucketId, str] = {}
        self._placed = dict.fromkeys(self.roots, 0)
        self._lock = threading.Lock()

    def path_of(self, bucket: BucketId) -> str:
        """The folder of a bucket; it need not exist yet."""
        return bucket_path(self.root_of(bucket), bucket)

    def root_of(self, bucket: BucketId) -> str:
        """The data folder that a bucket lies in, or will."""
        if len(self.roots) == 1:
            return self.roots[0]
        with self._lock:
            root = self._known.get(bucket)
            if root is None:
                root = self._known[bucket] = self._found(bucket) or self._expected(bucket) or self._chosen()
            return root

    def forget(self, bucket: BucketId) -> None:
        """The bucket was removed from here; if it comes again, it may lie elsewhere."""
        with self._lock:
            self._known.pop(bucket, None)

    def _found(self, bucket: BucketId) -> str | None:
        return next((root for root in self.roots if self._files.exists(bucket_path(root, bucket))), None)

    def _chosen(self) -> str:
        room = {root: self._files.free_bytes(root) for root in self.roots}
        most = max(room.values())
        good = [root for root in self.roots if room[root] >= SIMILAR_ROOM * most]
        chosen = min(good, key=lambda root: self._placed[root])
        self._placed[chosen] += 1
        return chosen
