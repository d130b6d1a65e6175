"""Whether the disk below a log still works: after one failed write or sync the log is offline until a restart."""

from __future__ import annotations

from strom.errors import Retry, StorageOffline


class Health:
    """The state of one log's disk, shared by all parts of the log that write."""

    __slots__ = ("_folder", "offline")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.offline: StorageOffline | None = None
        """Why nothing works any more; None while everything does."""

    def check(self) -> None:
        """Raise what took the log offline, if anything did."""
        if self.offline is not None:
            raise self.offline

    def fail(self, error: StorageOffline) -> None:
        """Take the log offline; the first reason stays."""
        if self.offline is None:
            self.offline = error

    def failed(self, what: str, error: OSError | Retry) -> StorageOffline:
        """Take the log offline because the disk failed to do ``what``; the error to raise."""
        offline = StorageOffline(
            f"the disk failed to {what} in {self._folder}: {error}; restart the server once the disk is well",
            folder=self._folder,
        )
        self.fail(offline)
        return offline

    def unreadable(self, error: OSError) -> StorageOffline:
        """The error for a read that the disk refused. The log stays online: other parts may be readable."""
        return StorageOffline(f"the disk failed to read in {self._folder}: {error}", folder=self._folder)
