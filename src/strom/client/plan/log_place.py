"""Where a scan or a tail begins or ends, as users write it.

None, "earliest", "latest"          the first row there is, or the end
a datetime (naive: local time)      the first batch committed at that time or later
an int                              this offset in every bucket
{bucket: offset}                    an offset for each bucket; (partition name, bucket) where there are partitions
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from strom.errors import InvalidRequest
from strom.model.bucket import BucketId

Key: TypeAlias = "int | tuple[str | None, int] | BucketId"
PlaceLike: TypeAlias = "str | int | dt.datetime | Mapping[Key, int] | Place | None"


class PlaceKind(Enum):
    """How a place is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"
    EACH = "each"


@dataclass(frozen=True)
class Place:
    """A place in every bucket. ``value``: milliseconds since 1970 for TIME, the offset for OFFSET."""

    kind: PlaceKind
    value: int = 0
    each: Mapping[Key, int] = field(default_factory=dict)

    def offset_in(self, bucket: BucketId, partition: str | None) -> int | None:
        """The offset given for a bucket; None when there is none."""
        if self.kind is PlaceKind.OFFSET:
            return self.value
        if self.kind is not PlaceKind.EACH:
            return None
        keys: list[Key] = [bucket, (partition, bucket.bucket)]
        if partition is None:
            keys.append(bucket.bucket)
        return next((self.each[key] for key in keys if key in self.each), None)


EARLIEST = Place(PlaceKind.EARLIEST)
LATEST = Place(PlaceKind.LATEST)
_WORDS = {"earliest": EARLIEST, "latest": LATEST}


def place_of(value: PlaceLike, *, default: Place) -> Place:
    """Parse a place."""
    match value:
        case None:
            return default
        case Place():
            return value
        case str() if value in _WORDS:
            return _WORDS[value]
        case bool():
            pass
        case int() if value >= 0:
            return Place(PlaceKind.OFFSET, value)
        case dt.datetime():
            return Place(PlaceKind.TIME, int(value.timestamp() * 1000))
        case Mapping():
            return Place(PlaceKind.EACH, each=_checked(value))
    raise InvalidRequest(
        f"{value!r:.60} is no place in a log: say 'earliest', 'latest', a datetime, an offset, "
        "or {bucket: offset}",
        found=repr(value)[:60],
    )


def _checked(each: Mapping[Key, int]) -> Mapping[Key, int]:
    for key, offset in each.items():
        pair = isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], int)
        if not (isinstance(key, int | BucketId) or pair) or not isinstance(offset, int) or offset < 0:
            raise InvalidRequest(
                f"{key!r}: {offset!r} is no offset of a bucket: say {{bucket: offset}} or "
                "{(partition, bucket): offset}",
                found=repr(key)[:60],
            )
    return dict(each)
