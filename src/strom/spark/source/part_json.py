"""The planned parts of a read as JSON, so that an option of the source can carry them to where Spark plans.

{"table": 7, "parts": [["range", partition id, name, bucket, start, end, end and epoch of the cut],
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

from strom.client.plan.key_plan import Instant
from strom.client.plan.log_plan import BucketRange
from strom.errors import InvalidRequest
from strom.lake.files.file_reader import LakeFile
from strom.lake.read.union_plan import LakeLimits
from strom.model.bucket import BucketId
from strom.spark.connect.tasks import LakePart, Part

WIDTHS = (1, 2, 4, 8)
DAMAGED_RANGE = "damaged range"


def text_of_parts(table_id: int, parts: Sequence[Part]) -> str:
    """Parts of one table as text."""
    return json.dumps({"table": table_id, "parts": [_told(part) for part in parts]})


def parts_of_text(text: str, table_id: int) -> tuple[Part, ...]:
    """The inverse of ``text_of_parts``; InvalidRequest for the parts of another table, or other text."""
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
        kind = DAMAGED_RANGE if part.damaged else "range"
        return [kind, *place, part.start, part.end, *(part.cut or ())]
    if isinstance(part, Instant):
        return ["instant", *place, part.at, part.epoch, part.start, part.end]
    limits = part.limits
    told = None
    if limits is not None:
        bounds = limits.low.get(part.bucket), limits.high.get(part.bucket)
        told = [*bounds, limits.after_ms, limits.before_ms]
    return ["file", *place, asdict(part.file), _packed(part.dead, part.file), told]


def _part(table_id: int, told: Sequence[Any]) -> Part:
    kind, partition_id, name, number, *rest = told
    bucket = BucketId(table_id, partition_id, number)
    if kind in ("range", DAMAGED_RANGE):
        start, end, *cut = map(int, rest)
        place = (cut[0], cut[1]) if cut else None
        return BucketRange(bucket, name, start, end, place, damaged=kind == DAMAGED_RANGE)
    if kind == "instant":
        at, epoch, start, end = rest
        return Instant(bucket, name, int(at), epoch, int(start), end)
    if kind != "file":
        raise ValueError(f"there is no part {kind!r:.40}")
    file, dead, limits = rest
    known = LakeFile(**{**file, "deletes": tuple(file["deletes"])})
    return LakePart(bucket, name, known, _unpacked(dead, known), _limits(bucket, limits))


def _packed(dead: bytes, file: LakeFile) -> str:
    """Sorted offsets, possibly very many: the distance of each from the one before, in as few bytes as the largest
    needs, as zstd in base64; then their number and the bytes per distance."""
    if not dead:
        return ""
    steps = np.diff(np.frombuffer(dead, "<i8"), prepend=file.first_offset)
    width = next(one for one in WIDTHS if int(steps.max()) < 1 << (8 * one - 1))
    packed = pa.compress(steps.astype(f"<i{width}").tobytes(), codec="zstd", asbytes=True)
    return f"{base64.b64encode(packed).decode()}:{len(steps)}:{width}"


def _unpacked(text: str, file: LakeFile) -> bytes:
    if not text:
        return b""
    packed, count, width = text.split(":")
    if not 0 < int(count) <= file.last_offset - file.first_offset + 1 or int(width) not in WIDTHS:
        raise ValueError(f"{file.path} has fewer offsets")
    content = base64.b64decode(packed, validate=True)
    size = int(count) * int(width)
    try:
        steps = pa.decompress(content, decompressed_size=size, codec="zstd", asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"dead offsets of {file.path}: {error}") from None
    offsets = file.first_offset + np.cumsum(np.frombuffer(steps, f"<i{width}"), dtype=np.int64)
    return offsets.astype("<i8").tobytes()


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
