"""Index shards and pieces of the series as bytes of immutable files. Format: docs/formats/manifest.md."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strom.errors import StoreCorrupt
from strom.kv.arrays import Int64s
from strom.kv.index.index import ShardEntries
from strom.kv.snapshot.manifest import (
    SERIES_CELL_BYTES,
    SHARD_ENTRY_BYTES,
    SHARD_HASH_BYTES,
    SHARD_ROW_ID_BYTES,
    SeriesRef,
    ShardRef,
)
from strom.record.checksum import crc32c
from strom.runtime.files import Bytes, Files


class ShardFileWriter:
    """One new file, made durable at the end; the caller syncs the folder."""

    def __init__(self, files: Files, path: str) -> None:
        self._file = files.open(path, create=True)
        self._file.truncate(0)  # one of that name may be left from a crash
        self.position = 0

    def write(self, pieces: Sequence[Bytes]) -> int:
        """Append the pieces; returns where they start."""
        start = self.position
        self._file.append(pieces)
        self.position += sum(map(len, pieces))
        return start

    def close(self) -> None:
        """Make it durable."""
        self._file.sync()
        self._file.close()


def write_shard(writer: ShardFileWriter, name: str, entries: ShardEntries) -> ShardRef:
    """Add one shard to a file of shards."""
    pieces = [
        entries.hashes.astype("<u8", copy=False).tobytes(),
        entries.row_ids.astype("<u4").tobytes(),
        entries.versions.astype("<i8", copy=False).tobytes(),
    ]
    crc = crc32c(b"".join(pieces))
    position = writer.write(pieces)
    return ShardRef(entries.prefix, entries.depth, name, position, len(entries.hashes), crc)


def read_shard(files: Files, path: str, ref: ShardRef) -> ShardEntries:
    """The entries of a shard, verified by their checksum."""
    size = ref.entries * SHARD_ENTRY_BYTES
    content = files.open(path).read_at(ref.position, size) if size else b""
    if len(content) != size or crc32c(content) != ref.crc:
        raise StoreCorrupt(f"{path}: the shard at {ref.position} is not what was written", path=path)
    ids_at = ref.entries * SHARD_HASH_BYTES
    versions_at = ids_at + ref.entries * SHARD_ROW_ID_BYTES
    return ShardEntries(
        ref.prefix,
        ref.depth,
        np.frombuffer(content, "<u8", ref.entries),
        np.frombuffer(content, "<u4", ref.entries, ids_at),
        np.frombuffer(content, "<i8", ref.entries, versions_at),
    )


def write_series(files: Files, folder: str, name: str, low: int, cells: Int64s) -> SeriesRef:
    """Write the previous versions of the records from ``low`` on."""
    content = cells.astype("<i8", copy=False).tobytes()
    writer = ShardFileWriter(files, f"{folder}/{name}")
    writer.write([content])
    writer.close()
    return SeriesRef(low, low + len(cells), name, crc32c(content))


def read_series(files: Files, folder: str, ref: SeriesRef) -> Int64s:
    """The cells of a piece of the series, mapped and verified by their checksum."""
    path = f"{folder}/{ref.file}"
    size = (ref.high - ref.low) * SERIES_CELL_BYTES
    if not files.exists(path) or files.size(path) != size:
        raise StoreCorrupt(f"{path}: a piece of the series is missing or has another size", path=path)
    mapped = files.map(path)
    if crc32c(mapped) != ref.crc:
        raise StoreCorrupt(f"{path}: a piece of the series is not what was written", path=path)
    return np.frombuffer(mapped, "<i8")
