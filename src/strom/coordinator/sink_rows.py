"""What the metadata keeps of a sink: what it decided last, per table, and the stages of its last decision.

Only a decision writes a row, so its ``parts`` are those of decision ``number``. They pin their stages until the next
decision replaces them, which happens only when they are applied everywhere. The format is in docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from strom.errors import MetadataCorrupt
from strom.model.bucket import BucketId
from strom.model.document import Document, canonical

ROW_BYTES_MAX = 900_000
"""Below the size limit of a metadata value; about fifteen thousand tasks that each wrote to some buckets."""
NAME_CHARACTERS_MAX = 300
STAGE_ID_BYTES = 16
NUMBER_MAX = 2**63 - 1
BUCKET_MAX = 2**20


class StagedPart(NamedTuple):
    """What one task staged in one table or partition."""

    stage_id: bytes
    table_id: int
    partition_id: int | None
    buckets: tuple[int, ...]


class EmptiedPart(NamedTuple):
    """A table or partition that a decision overwrites, all of its buckets."""

    table_id: int
    partition_id: int | None
    bucket_count: int


@dataclass(frozen=True)
class SinkRow:
    """One sink."""

    name: str
    query_id: str
    one_shot: bool
    epoch: int
    number: int
    deadline_ms: int
    """The highest deadline of the decision's stages."""
    last: Mapping[int, int]
    """The last epoch decided, by table id."""
    parts: Sequence[StagedPart] = ()
    emptied: Sequence[EmptiedPart] = ()
    query_name: str | None = None
    """The query's display name; it means nothing here."""
    skip_lost: bool = False
    """Whether an operator allowed this decision to be published without the stages that are lost or cannot be
    published."""
    earlier: Sequence[int] = ()
    """Tables that already had this epoch from an earlier decision: this one decided nothing about them."""

    @cached_property
    def stages(self) -> Mapping[BucketId, tuple[bytes, ...]]:
        """The stages of the last decision by bucket; none where a bucket is only emptied."""
        found: dict[BucketId, list[bytes]] = {bucket: [] for bucket in self.emptied_buckets}
        for part in self.parts:
            for bucket in part.buckets:
                found.setdefault(BucketId(part.table_id, part.partition_id, bucket), []).append(part.stage_id)
        return {bucket: tuple(ids) for bucket, ids in found.items()}

    @cached_property
    def emptied_buckets(self) -> frozenset[BucketId]:
        """The buckets whose rows the last decision replaces."""
        return frozenset(_buckets(self.emptied))


def _buckets(emptied: Sequence[EmptiedPart]) -> Iterator[BucketId]:
    for part in emptied:
        for bucket in range(part.bucket_count):
            yield BucketId(part.table_id, part.partition_id, bucket)


def encode_sink(row: SinkRow) -> bytes:
    """The value under ``sinks/``. The buckets that a task wrote to are a bit mask, in hex."""
    return canonical(
        {
            "sink": row.name,
            "query": row.query_id,
            "one_shot": row.one_shot,
            "epoch": row.epoch,
            "number": row.number,
            "deadline": row.deadline_ms,
            "last": {str(table_id): epoch for table_id, epoch in row.last.items()},
            "parts": [
                [one.table_id, one.partition_id, one.stage_id.hex(), f"{_bitmap(one.buckets):x}"]
                for one in row.parts
            ],
            "emptied": [list(one) for one in row.emptied],
            **({} if row.query_name is None else {"query_name": row.query_name}),
            **({"skip_lost": True} if row.skip_lost else {}),
            **({"earlier": list(row.earlier)} if row.earlier else {}),
        }
    ).encode()


def decode_sink(key: str, value: bytes) -> SinkRow:
    """Decode a sink."""
    doc = Document.parse(value, key, MetadataCorrupt)
    try:
        return SinkRow(
            name=doc.text("sink"),
            query_id=doc.text("query"),
            one_shot=doc.flag("one_shot", default=False),
            epoch=doc.integer("epoch", low=0, high=NUMBER_MAX),
            number=doc.integer("number", low=1, high=NUMBER_MAX),
            deadline_ms=doc.integer("deadline", low=0, high=NUMBER_MAX),
            last={int(table_id): int(epoch) for table_id, epoch in doc.document("last").value.items()},
            parts=tuple(_part(*one) for one in _lists(doc, "parts")),
            emptied=tuple(_emptied(*one) for one in _lists(doc, "emptied")),
            query_name=doc.text_or_none("query_name"),
            skip_lost=doc.flag("skip_lost", default=False),
            earlier=tuple(map(_number, _lists(doc, "earlier"))) if doc.raw("earlier") is not None else (),
        )
    except (ValueError, TypeError) as error:
        raise MetadataCorrupt(f"{key} is not a sink: {error}", key=key) from error


def _lists(doc: Document, key: str) -> list[Any]:
    found = doc.raw(key)
    if not isinstance(found, list):
        doc.refuse(key, "must be a list")
    return found


def _part(table_id: object, partition_id: object, stage_id: object, buckets: object) -> StagedPart:
    name = bytes.fromhex(str(stage_id))
    if len(name) != STAGE_ID_BYTES or len(str(buckets)) > BUCKET_MAX // 4:
        raise ValueError("a stage's name or its buckets are too long")
    return StagedPart(name, _number(table_id), _optional(partition_id), _bits(int(str(buckets), 16)))


def _emptied(table_id: object, partition_id: object, bucket_count: object) -> EmptiedPart:
    count = _number(bucket_count)
    if count > BUCKET_MAX:
        raise ValueError(f"{count} buckets")
    return EmptiedPart(_number(table_id), _optional(partition_id), count)


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= NUMBER_MAX:
        raise ValueError(f"{value!r} is not a number")
    return value


def _optional(value: object) -> int | None:
    return None if value is None else _number(value)


def _bitmap(buckets: Sequence[int]) -> int:
    bitmap = 0
    for bucket in buckets:
        bitmap |= 1 << bucket
    return bitmap


def _bits(bitmap: int) -> tuple[int, ...]:
    return tuple(position for position in range(bitmap.bit_length()) if bitmap >> position & 1)
