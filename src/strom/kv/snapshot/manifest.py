"""The manifest of a primary-key bucket: which files hold its state, and as of which offset.

It is the one mutable file in the folder, replaced atomically as a whole. A file that it does not name means nothing; a
file that it names was durable before it, and so was the log up to its offset. Format: docs/formats/manifest.md.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from strom.errors import NewerFormat, StoreCorrupt
from strom.kv.runs.run_layout import RunRef
from strom.record.checksum import crc32c
from strom.runtime.files import Files

MANIFEST_NAME: Final = "manifest"
MANIFEST_FORMAT: Final = b"STROMKEY"
MANIFEST_VERSION: Final = 2
_WITHOUT_RUNS: Final = 1
"""A manifest without runs is of this version, which older Stroms read too."""
MANIFEST_HEADER: Final = struct.Struct("<8sII")
"""Format, checksum of the body (CRC-32C), bytes of the body."""

SHARD_HASH_BYTES: Final = 8
SHARD_ROW_ID_BYTES: Final = 4
SHARD_VERSION_BYTES: Final = 8
SHARD_ENTRY_BYTES: Final = SHARD_HASH_BYTES + SHARD_ROW_ID_BYTES + SHARD_VERSION_BYTES
SERIES_CELL_BYTES: Final = 8

BASE_PREFIX: Final = "base-"
INDEX_PREFIX: Final = "index-"
SERIES_PREFIX: Final = "series-"


class ShardRef(NamedTuple):
    """Where the entries of one index shard lie: hashes, then row ids, then versions."""

    prefix: int
    depth: int
    file: str
    position: int
    entries: int
    crc: int


class SeriesRef(NamedTuple):
    """A file with the previous versions of the records in [low, high)."""

    low: int
    high: int
    file: str
    crc: int


class EpochRef(NamedTuple):
    """An epoch and its first offset."""

    epoch: int
    start: int


@dataclass(frozen=True)
class Manifest:
    """The state of a bucket at ``offset``."""

    number: int
    """Increases with every manifest; names of new files contain it."""
    offset: int
    carried: int
    horizon: int
    series_start: int
    base: tuple[str, ...]
    """Base files, the oldest first."""
    shards: tuple[ShardRef, ...]
    series: tuple[SeriesRef, ...]
    epochs: tuple[EpochRef, ...]
    """Epochs that wrote records below ``offset``."""
    runs: tuple[RunRef, ...] = ()
    """Of an index that lies in runs: by rising hashes, those of a tile from the oldest to the newest."""

    @property
    def in_runs(self) -> bool:
        """Whether the index lies in runs. One in memory has a shard even when it is empty."""
        return not self.shards

    def files(self) -> set[str]:
        """Every file that this manifest needs."""
        parts: tuple[ShardRef | SeriesRef | RunRef, ...] = (*self.shards, *self.series, *self.runs)
        return {*self.base, *(one.file for one in parts)}

    def encode(self) -> bytes:
        """The bytes of the file."""
        body: dict[str, object] = {
            "version": MANIFEST_VERSION if self.in_runs else _WITHOUT_RUNS,
            "number": self.number,
            "offset": self.offset,
            "carried": self.carried,
            "horizon": self.horizon,
            "series_start": self.series_start,
            "base": list(self.base),
            "shards": [list(one) for one in self.shards],
            "series": [list(one) for one in self.series],
            "epochs": [list(one) for one in self.epochs],
        }
        if self.runs or self.in_runs:
            body["runs"] = [list(one) for one in self.runs]
        octets = json.dumps(body, separators=(",", ":")).encode()
        return MANIFEST_HEADER.pack(MANIFEST_FORMAT, crc32c(octets), len(octets)) + octets


def read_manifest(files: Files, folder: str) -> Manifest | None:
    """The manifest of a bucket; None if it never had one. StoreCorrupt when the file is not what was written."""
    path = f"{folder}/{MANIFEST_NAME}"
    return decode_manifest(files.read_whole(path), path) if files.exists(path) else None


def decode_manifest(content: bytes, path: str = MANIFEST_NAME) -> Manifest:
    """The manifest in a file's bytes; StoreCorrupt when they are damaged."""
    if len(content) < MANIFEST_HEADER.size:
        raise _corrupt(path, "it is too short")
    form, checksum, length = MANIFEST_HEADER.unpack_from(content)
    body = content[MANIFEST_HEADER.size :]
    if form != MANIFEST_FORMAT or length != len(body) or checksum != crc32c(body):
        raise _corrupt(path, "its checksum does not fit")
    try:
        found = json.loads(body)
        if found["version"] > MANIFEST_VERSION:
            raise NewerFormat(f"{path} was written by a newer Strom (version {found['version']})", path=path)
        return _checked(_manifest(found), path)
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(path, f"it has another shape: {error!r}") from None


def _manifest(found: Mapping[str, Any]) -> Manifest:
    return Manifest(
        number=int(found["number"]),
        offset=int(found["offset"]),
        carried=int(found["carried"]),
        horizon=int(found["horizon"]),
        series_start=int(found["series_start"]),
        base=tuple(_name(name) for name in found["base"]),
        shards=tuple(
            ShardRef(int(prefix), int(depth), _name(file), int(position), int(count), int(crc))
            for prefix, depth, file, position, count, crc in found["shards"]
        ),
        series=tuple(
            SeriesRef(int(low), int(high), _name(file), int(crc)) for low, high, file, crc in found["series"]
        ),
        epochs=tuple(EpochRef(int(epoch), int(start)) for epoch, start in found["epochs"]),
        runs=tuple(_run(*one) for one in found.get("runs", ())),
    )


def _run(prefix: int, depth: int, file: object, *numbers: int) -> RunRef:
    return RunRef(int(prefix), int(depth), _name(file), *map(int, numbers))


def _name(name: object) -> str:
    """Check that this is a file name within the folder."""
    if (
        not isinstance(name, str)
        or not name.startswith((BASE_PREFIX, INDEX_PREFIX, SERIES_PREFIX))
        or "/" in name
    ):
        raise ValueError(f"{name!r} is not the name of a manifest's file")
    return name


def _checked(found: Manifest, path: str) -> Manifest:
    rising = [0, found.series_start, found.horizon, found.offset]
    if rising != sorted(rising) or not 0 <= found.carried <= found.offset:
        raise _corrupt(path, f"its offsets contradict each other: {rising}, carried {found.carried}")
    if any(one.entries < 0 or one.position < 0 for one in found.shards):
        raise _corrupt(path, "a shard has a negative place")
    if any(min(one.position, one.pages - 1, one.blocks - 1, one.entries - 1) < 0 for one in found.runs):
        raise _corrupt(path, "a run has a negative place, or nothing")
    if found.runs and found.shards:
        raise _corrupt(path, "the index lies in shards and in runs")
    reached = min(found.series[0].low, found.series_start) if found.series else found.series_start
    for one in found.series:
        if one.low > reached or one.high <= one.low or (one is not found.series[0] and one.low != reached):
            raise _corrupt(path, f"the series has a gap at {reached}")
        reached = one.high
    if reached != found.offset:
        raise _corrupt(path, f"the series ends at {reached}, not at the manifest's offset {found.offset}")
    return found


def _corrupt(path: str, why: str) -> StoreCorrupt:
    return StoreCorrupt(f"{path} is not what was written: {why}", path=path)
