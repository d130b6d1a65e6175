"""RocksDB through rocksdict, as it comes: bytes to bytes, multi-get and write batches where they are quicker."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rocksdict import Options, Rdict, WriteBatch

from benchmarks.key_rows import Encoded

BUSY = ("rocksdb.compaction-pending", "rocksdb.num-running-compactions", "rocksdb.num-running-flushes")


class Rocks:
    """One database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open()

    def put(self, rows: Encoded) -> None:
        """Puts and nothing more."""
        batch = WriteBatch(raw_mode=True)
        put = batch.put
        for key, value in zip(*rows, strict=True):
            put(key, value)
        self.db.write(batch)

    def get_put(self, rows: Encoded) -> None:
        """What an upsert with a changelog needs at least: the old rows, then the new ones."""
        self.db.get(rows.keys)
        self.put(rows)

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        """All of them at once."""
        return self.db.get(keys)  # type: ignore[no-any-return]

    def settle(self) -> None:
        """Wait until what was written lies where it stays: flushed, and compacted as far as RocksDB wants it."""
        self.db.flush()
        while any(self.db.property_int_value(name) for name in BUSY):
            time.sleep(0.05)

    def disk_bytes(self) -> int:
        """Bytes of the files."""
        return sum(os.path.getsize(self.folder / name) for name in os.listdir(self.folder))

    def open(self) -> None:
        """Open it, again after a close: its block cache is empty then."""
        self.db = Rdict(str(self.folder), Options(raw_mode=True))

    def close(self) -> None:
        """Close it."""
        self.db.close()

    def __enter__(self) -> Rocks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
