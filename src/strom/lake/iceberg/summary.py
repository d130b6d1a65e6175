"""What each of our commits states in its snapshot's summary: how far each bucket is held, and bounds of the rows.

    strom.offsets           {"table_id", "round", "buckets": [[partition id, name, bucket, A, epoch]…], "bounds": {…},
                            "live": [[name, bucket, rows, total]…]}: the prints of each bucket's live offsets;
                            a sixth number of a bucket where a log's rows in the lake begin later than at offset 0
    strom.offsets-file      instead, when that is over 4 KB: an immutable file in the table's metadata folder
    strom.offsets-sha256    its checksum
    strom.rows              how many rows are live

The newest summary with one of them counts, so each of our commits copies it forward, a compaction too.

The same text is a property of the table, ``strom.held``, set by the same commit: any engine's maintenance can expire
snapshots and remove files, but the property stays. It may be wrong (after a rollback), so it counts only where nothing
better is left, and only if the rows match it (``lake_head.py``).
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strom.errors import LakeCorrupt
from strom.lake.files.offset_print import OffsetPrint
from strom.lake.files.storage import Storage
from strom.model.document import Document, canonical
from strom.model.lake.lake import Bounds, LakeKey, Place, Tiered, bounds_from_json, bounds_to_json

OFFSETS = "strom.offsets"
OFFSETS_FILE = "strom.offsets-file"
OFFSETS_SHA256 = "strom.offsets-sha256"
ROUND = "strom.round"
ROWS = "strom.rows"
HELD = "strom.held"
"""The name of the table's property; its value is compressed when it is long."""
INLINE_BYTES_MAX = 4096
HELD_CHARACTERS_MAX = 8 << 20
"""A longer one is omitted: every reader of the table loads it with the metadata."""
_LONG_MAX = 2**63 - 1
_WORD_MAX = 2**64 - 1
_PLAIN_BYTES_MAX = 256 << 20


@dataclass(frozen=True)
class LakeOffsets:
    """How far a lake table holds its buckets. ``round``: the last round that stated it."""

    table_id: int
    round: str
    offsets: Mapping[LakeKey, Tiered] = field(default_factory=dict)
    partitions: Mapping[int, str] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=dict)
    starts: Mapping[LakeKey, int] = field(default_factory=dict)
    """Where the rows of a log bucket begin, if not at 0: earlier ones had expired before its first round."""

    live: Mapping[Place, OffsetPrint] | None = None
    """The prints of each bucket's live offsets; None: written by an earlier version, which had none."""

    @property
    def rows(self) -> int | None:
        """Live rows; None where they were not counted."""
        return None if self.live is None else sum(one.rows for one in self.live.values())

    def name_of(self, key: LakeKey) -> str | None:
        """The name of a bucket's partition."""
        return None if key.partition_id is None else self.partitions.get(key.partition_id)

    def to_json(self) -> str:
        """Compact text."""
        rows = sorted(self.offsets.items(), key=lambda item: (item[0].partition_id or 0, item[0].bucket))
        buckets = [
            [
                *(key.partition_id, self.name_of(key), key.bucket, found.offset, found.epoch),
                *([self.starts[key]] if self.starts.get(key) else []),
            ]
            for key, found in rows
        ]
        plain: dict[str, Any] = {
            "table_id": self.table_id,
            "round": self.round,
            "buckets": buckets,
            "bounds": bounds_to_json(self.bounds),
        }
        if self.live is not None:
            plain["live"] = [
                [*place, *found] for place, found in sorted(self.live.items(), key=lambda one: str(one[0]))
            ]
        return canonical(plain)

    @classmethod
    def from_json(cls, text: str | bytes) -> LakeOffsets:
        """Parse the text; LakeCorrupt when it is damaged."""
        doc = Document.parse(text, OFFSETS, LakeCorrupt)
        offsets: dict[LakeKey, Tiered] = {}
        partitions: dict[int, str] = {}
        starts: dict[LakeKey, int] = {}
        rows = doc.raw("buckets")
        if not isinstance(rows, list):
            doc.refuse("buckets", "must be a list")
        for row in rows:
            key, name, found, start = _bucket(row, doc)
            offsets[key] = found
            if start:
                starts[key] = start
            if key.partition_id is not None and name is not None:
                partitions[key.partition_id] = name
        table_id = doc.integer("table_id", low=0, high=_LONG_MAX)
        bounds = bounds_from_json(doc, "bounds")
        return cls(table_id, doc.text("round"), offsets, partitions, bounds, starts, _live(doc))


def write_summary(storage: Storage, location: str, snapshot_id: int, held: LakeOffsets) -> dict[str, str]:
    """The summary's entries; text that is too long for it is first written to a file beside the metadata."""
    text = held.to_json()
    found = {ROUND: held.round}
    if held.rows is not None:
        found[ROWS] = str(held.rows)
    content = text.encode("utf-8")
    if len(content) <= INLINE_BYTES_MAX:
        return {**found, OFFSETS: text}
    uri = f"{location}/metadata/strom-offsets-{snapshot_id}.json"
    storage.write_new(uri, content)
    return {**found, OFFSETS_FILE: uri, OFFSETS_SHA256: hashlib.sha256(content).hexdigest()}


def is_told(summary: Mapping[str, Any] | None) -> bool:
    """Whether a snapshot's summary states how far the buckets are held."""
    # Not by ``in``: PyIceberg's summaries contain every name.
    return summary is not None and (summary.get(OFFSETS) is not None or summary.get(OFFSETS_FILE) is not None)


def held_property(held: LakeOffsets) -> dict[str, str]:
    """The table's property that states the same, out of reach of expiry; empty where it would be too long."""
    text = held.to_json()
    if len(text) > INLINE_BYTES_MAX:
        text = base64.b64encode(zlib.compress(text.encode("utf-8"), 6)).decode("ascii")
    return {HELD: text} if len(text) <= HELD_CHARACTERS_MAX else {}


def read_property(properties: Mapping[str, str]) -> LakeOffsets | None:
    """Read the table's property; None when it is missing or unreadable."""
    content = _property_text(properties)
    try:
        return None if content is None else LakeOffsets.from_json(content)
    except LakeCorrupt:
        return None  # written by another program


def _property_text(properties: Mapping[str, str]) -> bytes | None:
    text = properties.get(HELD, "")
    if not text or text.startswith("{"):
        return text.encode("utf-8") or None
    try:
        return zlib.decompressobj().decompress(base64.b64decode(text), _PLAIN_BYTES_MAX)
    except (ValueError, zlib.error):
        return None


def read_summary(
    storage: Storage, summary: Mapping[str, Any], properties: Mapping[str, str] | None = None
) -> LakeOffsets | None:
    """Read a snapshot's summary; None when it is not one of ours.

    ``properties``: the table's, a fallback if the summary's file was removed as an orphan.
    """
    text = summary.get(OFFSETS)
    if isinstance(text, str):
        return LakeOffsets.from_json(text)
    uri = summary.get(OFFSETS_FILE)
    if not isinstance(uri, str):
        return None
    checksum = summary.get(OFFSETS_SHA256)
    kept = None if properties is None else _property_text(properties)
    if kept is not None and hashlib.sha256(kept).hexdigest() == checksum:
        return LakeOffsets.from_json(kept)
    content = storage.read(uri)
    if hashlib.sha256(content).hexdigest() != checksum:
        raise LakeCorrupt(f"{uri} is not what was written", uri=uri)
    return LakeOffsets.from_json(content)


def _bucket(row: object, doc: Document) -> tuple[LakeKey, str | None, Tiered, int]:
    if not isinstance(row, list) or len(row) not in (5, 6):
        doc.refuse("buckets", f"has {json.dumps(row)[:80]}, which is no bucket")
    partition, name, bucket, offset, epoch = row[:5]
    start = row[5] if len(row) == 6 else 0
    numbers = [0 if partition is None else partition, bucket, offset, epoch, start]
    sound = all(type(number) is int and -1 <= number <= _LONG_MAX for number in numbers)
    if not sound or not (name is None or isinstance(name, str)):
        doc.refuse("buckets", f"has {json.dumps(row)[:80]}, which is no bucket")
    return LakeKey(partition, bucket), name, Tiered(offset, epoch), start


def _live(doc: Document) -> dict[Place, OffsetPrint] | None:
    rows = doc.raw("live")
    if rows is None:
        return None
    if not isinstance(rows, list):
        doc.refuse("live", "must be a list")
    found: dict[Place, OffsetPrint] = {}
    for row in rows:
        if not isinstance(row, list) or len(row) != 4:
            doc.refuse("live", f"has {json.dumps(row)[:80]}, which is no bucket's rows")
        name, bucket, count, total = row
        sound = all(type(one) is int and 0 <= one <= _WORD_MAX for one in (bucket, count, total))
        if not sound or not (name is None or isinstance(name, str)):
            doc.refuse("live", f"has {json.dumps(row)[:80]}, which is no bucket's rows")
        found[name, bucket] = OffsetPrint(count, total)
    return found
