"""What a read was planned to read, as text: so that an option of the source can carry it to where Spark plans.

{"table": 7, "parts": [["range", partition id, name, bucket, start, end],
                       ["instant", partition id, name, bucket, at, epoch, start, end],
                       ["file", partition id, name, bucket, {…}, dead offsets, limits]]}
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from strom.client.key_plan import Instant
from strom.client.planning import BucketRange
from strom.errors import InvalidRequest
from strom.lake.planned import LakeLimits
from strom.lake.reading import LakeFile
from strom.model.bucket import BucketId
from strom.spark.tasks import LakePart, Part


def text_of_parts(table_id: int, parts: Sequence[Part]) -> str:
    """Parts of one table as text."""
    return json.dumps({"table": table_id, "parts": [_told(part) for part in parts]})


def parts_of_text(text: str, table_id: int) -> tuple[Part, ...]:
    """The parts of ``text_of_parts``; InvalidRequest when they are of another table, or no parts."""
    try:
        told = json.loads(text)
        known = int(told["table"])
        parts = tuple(_part(known, one) for one in told["parts"])
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise InvalidRequest(f"_planned is not what a plan was written as: {error}") from None
    if known != table_id:
        raise InvalidRequest(
            "the table was dropped, and another one of its name was created: load it again", table_id=known
        )
    return parts


def _told(part: Part) -> list[Any]:
    place = [part.bucket.partition_id, part.partition, part.bucket.bucket]
    if isinstance(part, BucketRange):
        return ["range", *place, part.start, part.end]
    if isinstance(part, Instant):
        return ["instant", *place, part.at, part.epoch, part.start, part.end]
    limits = part.limits
    told = None
    if limits is not None:
        bounds = limits.low.get(part.bucket), limits.high.get(part.bucket)
        told = [*bounds, limits.after_ms, limits.before_ms]
    return ["file", *place, asdict(part.file), _packed(part.dead), told]


def _part(table_id: int, told: Sequence[Any]) -> Part:
    kind, partition_id, name, number, *rest = told
    bucket = BucketId(table_id, partition_id, number)
    if kind == "range":
        start, end = rest
        return BucketRange(bucket, name, int(start), int(end))
    if kind == "instant":
        at, epoch, start, end = rest
        return Instant(bucket, name, int(at), epoch, int(start), end)
    if kind != "file":
        raise ValueError(f"there is no part {kind!r:.40}")
    file, dead, limits = rest
    known = LakeFile(**{**file, "deletes": tuple(file["deletes"])})
    return LakePart(bucket, name, known, _unpacked(dead, known), _limits(bucket, limits))


def _packed(dead: bytes) -> str:
    """Offsets, sorted, of which there may be very many: how far each is from the one before, zstd, in base64."""
    if not dead:
        return ""
    steps = np.diff(np.frombuffer(dead, "<i8"), prepend=0).astype("<i8").tobytes()
    return base64.b64encode(pa.compress(steps, codec="zstd", asbytes=True)).decode() + f":{len(dead)}"


def _unpacked(text: str, file: LakeFile) -> bytes:
    if not text:
        return b""
    packed, _, size = text.partition(":")
    if not 0 < int(size) <= 8 * (file.last_offset - file.first_offset + 1) or int(size) % 8:
        raise ValueError(f"{file.path} has not so many offsets")
    content = base64.b64decode(packed, validate=True)
    try:
        steps = pa.decompress(content, decompressed_size=int(size), codec="zstd", asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"dead offsets of {file.path}: {error}") from None
    return np.cumsum(np.frombuffer(steps, "<i8")).astype("<i8").tobytes()


def _limits(bucket: BucketId, told: Sequence[Any] | None) -> LakeLimits | None:
    if told is None:
        return None
    low, high, after, before = told
    return LakeLimits(
        {} if low is None else {bucket: int(low)},
        {} if high is None else {bucket: int(high)},
        after_ms=after,
        before_ms=before,
    )
