"""Damage: offsets of a bucket that are given up, so that readers continue after them (key 20040)."""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import boolean, int32, int64, repeated, text
from strom.protocol.message import Message


class MarkDamageRequest(Message):
    """Give up the batches that hold offsets of [start_offset, end_offset); ``take_back``: no longer.

    Without offsets nothing changes: the answer lists the marks.
    """

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    start_offset: int | None = int64(4, default=None)
    end_offset: int | None = int64(5, default=None)
    take_back: bool | None = boolean(6, default=None)


class DamageMark(Message):
    """Offsets [start_offset, end_offset), and when they were given up."""

    start_offset: int = int64(1)
    end_offset: int = int64(2)
    marked_ms: int = int64(3)


class MarkDamageResponse(Message):
    """All current marks of the bucket."""

    error_code: int | None = int32(1, default=None)
    error_message: str | None = text(2, default=None)
    marks: Sequence[DamageMark] = repeated(3, DamageMark, default=())
