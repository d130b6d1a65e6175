"""What every commit of ours says in its snapshot's summary: how far each bucket is held, and what the rows lie between.

    strom.offsets           {"table_id", "round", "buckets": [[partition id, name, bucket, A, epoch]…], "bounds": {…}}
                            a sixth number where a log's rows in the lake begin later than at offset 0
    strom.offsets-file      instead, when that is over 4 KB: an immutable file in the table's metadata folder
    strom.offsets-sha256    its checksum

The newest summary with one of them is the truth, so every commit of ours copies it forward, a compaction too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strom.errors import LakeCorrupt
from strom.lake.storage import Storage
from strom.model.document import Document, canonical
from strom.model.lake import Bounds, LakeKey, Tiered, bounds_from_json, bounds_to_json

OFFSETS = "strom.offsets"
OFFSETS_FILE = "strom.offsets-file"
OFFSETS_SHA256 = "strom.offsets-sha256"
ROUND = "strom.round"
INLINE_BYTES_MAX = 4096
_LONG_MAX = 2**63 - 1


@dataclass(frozen=True)
class LakeOffsets:
    """How far a lake table holds its buckets. ``round``: the round that said it last."""

    table_id: int
    round: str
    offsets: Mapping[LakeKey, Tiered] = field(default_factory=dict)
    partitions: Mapping[int, str] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=dict)
    starts: Mapping[LakeKey, int] = field(default_factory=dict)
    """Where the rows of a log bucket begin, if not at 0: earlier ones were gone before its first round."""

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
        return canonical(
            {
                "table_id": self.table_id,
                "round": self.round,
                "buckets": buckets,
                "bounds": bounds_to_json(self.bounds),
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> LakeOffsets:
        """From text; LakeCorrupt when it is not what was written."""
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
        return cls(table_id, doc.text("round"), offsets, partitions, bounds_from_json(doc, "bounds"), starts)


def write_summary(storage: Storage, location: str, snapshot_id: int, held: LakeOffsets) -> dict[str, str]:
    """The summary's entries; what is too long for it is written beside the metadata first."""
    text = held.to_json()
    found = {ROUND: held.round}
    content = text.encode("utf-8")
    if len(content) <= INLINE_BYTES_MAX:
        return {**found, OFFSETS: text}
    uri = f"{location}/metadata/strom-offsets-{snapshot_id}.json"
    storage.write_new(uri, content)
    return {**found, OFFSETS_FILE: uri, OFFSETS_SHA256: hashlib.sha256(content).hexdigest()}


def is_told(summary: Mapping[str, Any] | None) -> bool:
    """Whether a snapshot's summary says how far the buckets are held."""
    # Not by ``in``: PyIceberg's summaries contain every name.
    return summary is not None and (summary.get(OFFSETS) is not None or summary.get(OFFSETS_FILE) is not None)


def read_summary(storage: Storage, summary: Mapping[str, Any]) -> LakeOffsets | None:
    """What a snapshot's summary says; None when it is not one of ours."""
    text = summary.get(OFFSETS)
    if isinstance(text, str):
        return LakeOffsets.from_json(text)
    uri = summary.get(OFFSETS_FILE)
    if not isinstance(uri, str):
        return None
    content = storage.read(uri)
    if hashlib.sha256(content).hexdigest() != summary.get(OFFSETS_SHA256):
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
