"""What the cluster remembers about a table's lake: the newest reported snapshot, and up to where it has each bucket.

The lake itself is the truth; a record is its last report, which may be out of date but was true once. Plain data, with
JSON both ways: for the metadata, the wire, and people.

    offsets        by (partition id or None, bucket): offset A up to which the lake holds the bucket, epoch of A - 1
    partitions     the names of the partitions among them, which the lake knows by name
    starts         where a log's rows in the lake begin, if not at 0: earlier rows had expired before the first round
    readable_low   the lowest A of the snapshots that readers may still use, if lower than A
    bounds         by column id: lower and upper bound of all rows ever committed (strom/model/lake/lake.py)
    dropped        dropped partitions, by id: their rows are no longer read, and will be deleted from the lake
    fresh_ms       everything acknowledged before this time is in the lake
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from strom.errors import StromError
from strom.model.document import Document, canonical
from strom.model.lake.lake import Bounds, LakeKey, Tiered, bounds_from_json, bounds_to_json

LakeState = Literal["active", "quarantined"]

NUMBER_MAX = 2**63 - 1
BUCKET_MAX = 2**20
EPOCH_MAX = 2**31 - 1
REASON_CHARACTERS_MAX = 2_000


@dataclass(frozen=True)
class LakeReport:
    """What a round reports to the coordinator, by REPORT_LAKE. ``snapshot_id`` None: the lake has none yet.

    ``more``: the round left rows that existed when it was planned; the table is due again at once.
    ``offsets``: all buckets in the lake, not only those of the round.
    """

    snapshot_id: int | None
    offsets: Mapping[LakeKey, Tiered]
    partitions: Mapping[int, str] = field(default_factory=dict)
    readable_low: Mapping[LakeKey, int] = field(default_factory=dict)
    starts: Mapping[LakeKey, int] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=dict)
    files: int = 0
    """Live data files, rows and bytes of the whole lake table."""
    rows: int = 0
    size_bytes: int = 0
    duration_ms: int = 0
    more: bool = False
    state: LakeState = "active"
    reason: str | None = None
    """Why the table is quarantined, and what to do."""
    facts: Mapping[str, int] = field(default_factory=dict)
    """Figures of the round for people: rows and bytes written, deletes, milliseconds per step."""

    def to_json(self) -> bytes:
        """The report on the wire."""
        return canonical(
            _common(self) | {"duration": self.duration_ms, "more": self.more, "facts": dict(self.facts)}
        ).encode()

    @staticmethod
    def from_json(content: bytes, error: type[StromError]) -> LakeReport:
        """The report from its JSON; ``error`` when it is malformed."""
        doc = Document.parse(content, "lake report", error)
        return LakeReport(
            **_common_of(doc),
            duration_ms=doc.integer("duration", low=0, high=NUMBER_MAX, default=0),
            more=doc.flag("more", default=False),
            facts=_numbers(doc, "facts"),
        )


@dataclass(frozen=True)
class LakeRecord:
    """What the metadata holds under ``lake/<table id>``."""

    table_id: int
    snapshot_id: int | None
    offsets: Mapping[LakeKey, Tiered]
    partitions: Mapping[int, str] = field(default_factory=dict)
    readable_low: Mapping[LakeKey, int] = field(default_factory=dict)
    starts: Mapping[LakeKey, int] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=dict)
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    round: int = 0
    """The round that reported it; 0 after a rebuild."""
    committed_ms: int = 0
    """When the snapshot was reported."""
    fresh_ms: int = 0
    state: LakeState = "active"
    reason: str | None = None
    facts: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[int, str] = field(default_factory=dict)

    @property
    def quarantined(self) -> bool:
        """Whether the table needs a person, because its lake holds something that none of our rounds wrote."""
        return self.state == "quarantined"

    def place_of(self, partition_id: int | None, name: str | None, bucket: int) -> Tiered | None:
        """Up to where the lake holds a bucket; None when it holds nothing of it.

        A partition recreated under a name that the lake has, and that was not dropped by hand, continues where its
        namesake ended.
        """
        found = self.offsets.get(LakeKey(partition_id, bucket))
        if found is not None and partition_id not in self.dropped:
            return found
        namesakes = [
            place
            for known_id, known in self.partitions.items()
            if known == name
            and known_id not in self.dropped
            and (place := self.offsets.get(LakeKey(known_id, bucket))) is not None
        ]
        return max(namesakes, default=None)

    def offset_of(self, partition_id: int | None, bucket: int) -> int:
        """Up to where the lake holds a bucket; 0 when it holds nothing of it."""
        found = self.offsets.get(LakeKey(partition_id, bucket))
        return 0 if found is None else found.offset

    def start_of(self, partition_id: int | None, name: str | None, bucket: int) -> int:
        """Where the lake's rows of a log bucket begin, including those of earlier partitions with its name."""
        ids = {one for one, known in self.partitions.items() if known == name and one not in self.dropped}
        keys = [LakeKey(one, bucket) for one in (partition_id, *ids)]
        return min((self.starts.get(key, 0) for key in keys if key in self.offsets), default=0)

    def low_of(self, partition_id: int | None, bucket: int) -> int:
        """The lowest offset from which a reader of any lake snapshot may continue in a bucket."""
        key = LakeKey(partition_id, bucket)
        return self.readable_low.get(key, self.offset_of(partition_id, bucket))

    def to_json(self) -> bytes:
        """The record in the metadata and on the wire."""
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        # Cached, because every planned read of a lake table gets the record.
        return canonical(
            _common(self)
            | {
                "table": self.table_id,
                "round": self.round,
                "committed": self.committed_ms,
                "fresh": self.fresh_ms,
                "facts": dict(self.facts),
                "dropped": {str(partition_id): name for partition_id, name in self.dropped.items()},
            }
        ).encode()

    @staticmethod
    def from_json(content: bytes, error: type[StromError]) -> LakeRecord:
        """The record from its JSON; ``error`` when it is malformed."""
        doc = Document.parse(content, "lake record", error)
        return LakeRecord(
            **_common_of(doc),
            table_id=doc.integer("table", low=0, high=NUMBER_MAX),
            round=doc.integer("round", low=0, high=NUMBER_MAX, default=0),
            committed_ms=doc.integer("committed", low=0, high=NUMBER_MAX, default=0),
            fresh_ms=doc.integer("fresh", low=0, high=NUMBER_MAX, default=0),
            facts=_numbers(doc, "facts"),
            dropped=_dropped(doc),
        )


# --- both forms ------------------------------------------------------------------------------------------------


def _common(one: LakeReport | LakeRecord) -> dict[str, Any]:
    return {
        "snapshot": one.snapshot_id,
        "offsets": _offsets_to_json(one),
        "starts": [
            [*key, start] for key, start in sorted(one.starts.items(), key=lambda item: _order(item[0]))
        ],
        "bounds": bounds_to_json(one.bounds),
        "files": one.files,
        "rows": one.rows,
        "bytes": one.size_bytes,
        "state": one.state,
        "reason": None if one.reason is None else one.reason[:REASON_CHARACTERS_MAX],
    }


def _common_of(doc: Document) -> dict[str, Any]:
    snapshot_id = doc.raw("snapshot")
    offsets, names, lows = _offsets_of(doc)
    return {
        "snapshot_id": None if snapshot_id is None else doc.integer("snapshot", low=0, high=NUMBER_MAX),
        "offsets": offsets,
        "partitions": names,
        "readable_low": lows,
        "starts": _starts_of(doc),
        "bounds": bounds_from_json(doc, "bounds"),
        "files": doc.integer("files", low=0, high=NUMBER_MAX, default=0),
        "rows": doc.integer("rows", low=0, high=NUMBER_MAX, default=0),
        "size_bytes": doc.integer("bytes", low=0, high=NUMBER_MAX, default=0),
        "state": _state_of(doc),
        "reason": doc.text_or_none("reason"),
    }


def _offsets_to_json(one: LakeReport | LakeRecord) -> list[list[Any]]:
    """By partition: [id, name, [[bucket, offset, epoch], …]], with a fourth number where ``readable_low`` is lower."""
    groups: dict[int | None, list[list[int]]] = {}
    for (partition_id, bucket), place in sorted(one.offsets.items(), key=lambda item: _order(item[0])):
        low = one.readable_low.get(LakeKey(partition_id, bucket), place.offset)
        numbers = [bucket, place.offset, place.epoch]
        groups.setdefault(partition_id, []).append(numbers if low >= place.offset else [*numbers, low])
    return [
        [partition_id, None if partition_id is None else one.partitions.get(partition_id), buckets]
        for partition_id, buckets in groups.items()
    ]


def _order(key: LakeKey) -> tuple[int, int]:
    return -1 if key[0] is None else key[0], key[1]


def _offsets_of(doc: Document) -> tuple[dict[LakeKey, Tiered], dict[int, str], dict[LakeKey, int]]:
    offsets: dict[LakeKey, Tiered] = {}
    names: dict[int, str] = {}
    lows: dict[LakeKey, int] = {}
    for group in _list(doc, doc.raw("offsets")):
        partition_id, name, buckets = _list(doc, group, (3,))
        if partition_id is not None:
            partition_id = _number(doc, partition_id, NUMBER_MAX)
            if name is not None:
                names[partition_id] = str(name)
        for numbers in _list(doc, buckets):
            bucket, offset, epoch, *low = _list(doc, numbers, (3, 4))
            key = LakeKey(partition_id, _number(doc, bucket, BUCKET_MAX))
            offsets[key] = Tiered(_number(doc, offset, NUMBER_MAX), _number(doc, epoch, EPOCH_MAX, low=-1))
            if low:
                lows[key] = _number(doc, low[0], NUMBER_MAX)
    return offsets, names, lows


def _starts_of(doc: Document) -> dict[LakeKey, int]:
    found: dict[LakeKey, int] = {}
    for row in _list(doc, doc.raw("starts")):
        partition_id, bucket, start = _list(doc, row, (3,))
        number = None if partition_id is None else _number(doc, partition_id, NUMBER_MAX)
        found[LakeKey(number, _number(doc, bucket, BUCKET_MAX))] = _number(doc, start, NUMBER_MAX)
    return found


def _dropped(doc: Document) -> dict[int, str]:
    found = doc.mapping("dropped")
    if not all(one.isdecimal() and len(one) <= 19 for one in found):
        doc.refuse("dropped", "must name partitions by their ids")
    return {int(partition_id): name for partition_id, name in found.items()}


def _state_of(doc: Document) -> LakeState:
    state = doc.text_or_none("state") or "active"
    if state not in ("active", "quarantined"):
        doc.refuse("state", f"is {state!r}, not `active` or `quarantined`")
    return "quarantined" if state == "quarantined" else "active"


def _numbers(doc: Document, key: str) -> dict[str, int]:
    if doc.raw(key) is None:
        return {}
    return {name: _number(doc, value, NUMBER_MAX) for name, value in doc.document(key).value.items()}


def _list(doc: Document, value: object, lengths: Sequence[int] = ()) -> list[Any]:
    if value is None and not lengths:
        return []
    if not isinstance(value, list) or (lengths and len(value) not in lengths):
        doc.refuse("offsets", "is not made of lists of the right lengths", found=value)
    return value


def _number(doc: Document, value: object, high: int, *, low: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        doc.refuse("", f"holds {value!r} where a number between {low} and {high} belongs")
    return value
