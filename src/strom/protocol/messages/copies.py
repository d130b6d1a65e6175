"""Where the copies of buckets are, and where they shall be (keys from 20070 up). The active coordinator answers."""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT32, INT64, int32, int64, nested, packed, repeated, text
from strom.protocol.message import Message
from strom.protocol.messages.tables import WireTablePath


class ListCopiesRequest(Message):
    """Without a table: the buckets of all tables. ``after``: the end of the page before, as its answer said."""

    table_path: WireTablePath | None = nested(1, WireTablePath, default=None)
    after: Sequence[int] = packed(2, INT64, default=())


class WireCopies(Message):
    """The copies of one bucket. ``leader_id`` is missing while nobody leads it.

    ``servers``: who has copies; ``wanted``: who shall have them, the preferred leader first; ``in_sync``: whose copies
    are in sync, as far as their servers answer. ``losses``: how often acknowledged rows may have been given up.
    """

    table_path: WireTablePath = nested(1, WireTablePath)
    partition_name: str | None = text(2, default=None)
    bucket_id: int = int32(3)
    leader_id: int | None = int32(4, default=None)
    epoch: int = int32(5)
    servers: Sequence[int] = packed(6, INT32, default=())
    wanted: Sequence[int] = packed(7, INT32, default=())
    in_sync: Sequence[int] = packed(8, INT32, default=())
    min_insync: int = int32(9)
    losses: int = int64(10)


class ListCopiesResponse(Message):
    """A page. ``next``: where the next one begins; missing on the last."""

    buckets: Sequence[WireCopies] = repeated(1, WireCopies, default=())
    next: Sequence[int] = packed(2, INT64, default=())


class MoveCopiesRequest(Message):
    """Other servers for the copies of a bucket (``wanted``, the preferred leader first), or another leader, or both.

    ``leader_id`` becomes the preferred leader too. It must have a copy that is in sync.
    """

    table_path: WireTablePath = nested(1, WireTablePath)
    partition_name: str | None = text(2, default=None)
    bucket_id: int = int32(3)
    wanted: Sequence[int] = packed(4, INT32, default=())
    leader_id: int | None = int32(5, default=None)


class MoveCopiesResponse(Message):
    """The bucket as it is now; new copies are made after the answer."""

    bucket: WireCopies = nested(1, WireCopies)
