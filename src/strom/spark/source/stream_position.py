"""How far a stream has come, as Spark keeps it in its checkpoint, and how far it may go next. Pure.

    {"version": 1, "table": 7, "schema": 1, "offsets": {"0": 120, "1": 80}}
    {"version": 1, "table": 7, "schema": 1, "offsets": {"2026-11-15": {"0": 120}}, "partitions": {"2026-11-15": 3}}

``offsets`` are the next ones to read; a bucket that is not named is read from its beginning. They can be given to
``start`` as they are. Partitions are known by their id too: one that was dropped and made again begins anew.

A stream from ``full`` first reads the table at an instant. While it does, ``full`` says which instant of every
bucket, and up to which offset its rows were given; ``offsets`` stand at that instant already, so that nothing is
lost or repeated when the changes after it follow.

Spark keeps where a batch ends, and takes the start from the batch before. The first batch has none before it: its
start is asked for again whenever it is planned, also after a restart. So that start is always the same word
(``BEGINNING``), and the place that was meant by it, chosen once, is kept as ``from`` in the end of that batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.errors import InvalidRequest
from strom.model.bucket import BucketId
from strom.spark.connect.options import flat, nested

VERSION = 1
BEGINNING: Mapping[str, Any] = {"version": VERSION, "begin": True}
"""Where the first batch starts: the end of that batch knows where that is."""

Place: TypeAlias = "tuple[str | None, int]"
"""A bucket: its partition's name, and its number."""


@dataclass(frozen=True)
class BucketSnapshot:
    """The instant of one bucket that is being read first, and up to where it was."""

    at: int
    epoch: int | None
    done: int = 0

    @property
    def left(self) -> int:
        """Offsets whose rows are still to come."""
        return self.at - self.done


@dataclass(frozen=True)
class Position:
    """A place in every bucket."""

    table_id: int
    schema_id: int
    offsets: Mapping[Place, int]
    partitions: Mapping[str, int] = field(default_factory=dict)
    """The id of every partition that is named."""
    full: Mapping[Place, BucketSnapshot] = field(default_factory=dict)
    """Empty once the instant was read."""
    origin: Position | None = None
    """In the end of the first batch: where that batch starts."""

    # --- as JSON ------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """What Spark keeps."""
        found: dict[str, Any] = {
            "version": VERSION,
            "table": self.table_id,
            "schema": self.schema_id,
            "offsets": nested(dict(self.offsets)),
        }
        if self.partitions:
            found["partitions"] = dict(self.partitions)
        if self.full:
            found["full"] = {
                "at": nested({place: one.at for place, one in self.full.items()}),
                "done": nested({place: one.done for place, one in self.full.items()}),
                "epochs": nested({p: -1 if o.epoch is None else o.epoch for p, o in self.full.items()}),
            }
        if self.origin is not None:
            found["from"] = self.origin.to_json()
        return found

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Position:
        """What Spark kept; InvalidRequest when it is not ours."""
        try:
            if json["version"] != VERSION:
                raise InvalidRequest(
                    f"the checkpoint was written by another version of Strom ({json['version']}): start a new one"
                )
            position = cls._plain(json)
            return replace(position, origin=cls._plain(json["from"])) if "from" in json else position
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidRequest(
                f"the checkpoint does not hold a position in a table of Strom ({error!r}): was it written by another "
                "source? Use a checkpointLocation of its own for every query"
            ) from None

    @classmethod
    def _plain(cls, json: Mapping[str, Any]) -> Position:
        return cls(
            int(json["table"]),
            int(json["schema"]),
            _places(json["offsets"]),
            {str(name): int(number) for name, number in json.get("partitions", {}).items()},
            _snapshots(json.get("full")),
        )

    @classmethod
    def of_extent(cls, extent: ScanPlan, schema_id: int, *, ends: bool) -> Position:
        """Where every bucket begins, or ends."""
        offsets = {place_of(one): one.end if ends else one.start for one in extent.ranges}
        return cls(extent.table_id, schema_id, offsets, ids_of(extent))

    @classmethod
    def of_instant(cls, plan: KeyScanPlan, extent: ScanPlan, schema_id: int) -> Position:
        """Before the rows of an instant, with the changes after it to follow. A bucket in sight that the plan does
        not have, and that begins where it ends, is of a partition that only the lake keeps."""
        snapshots = {place_of(one): BucketSnapshot(one.at, one.epoch) for one in plan.instants}
        there = {one.partition for one in plan.instants}
        for one in extent.ranges:
            if one.partition not in there and one.start == one.end > 0:
                snapshots[place_of(one)] = BucketSnapshot(one.end, None)
        offsets = {place: one.at for place, one in snapshots.items()}
        return cls(plan.table_id, schema_id, offsets, ids_of(extent), snapshots)

    # --- going on -----------------------------------------------------------------------------------------------

    def made_again(self, later: Position) -> set[str]:
        """Partitions that were dropped and made again until a later position: what is known here is of the old ones."""
        return {
            name for name, number in self.partitions.items() if later.partitions.get(name, number) != number
        }

    def known(self, extent: ScanPlan) -> Position:
        """The same without partitions that are gone; one that was made again begins anew."""
        now = ids_of(extent)
        gone = {name for name, number in self.partitions.items() if now.get(name) != number}
        if not gone and now == self.partitions:
            return self
        return replace(
            self,
            offsets={place: offset for place, offset in self.offsets.items() if place[0] not in gone},
            full={place: one for place, one in self.full.items() if place[0] not in gone},
            partitions=now,
        )

    def after_snapshot(self, rows: int | None) -> Position:
        """The position after at most so many more offsets of the instant."""
        left = {place: one.left for place, one in self.full.items()}
        shares = shared(left, rows)
        moved = {place: replace(one, done=one.done + shares[place]) for place, one in self.full.items()}
        full = moved if any(one.left for one in moved.values()) else {}
        return replace(self, full=full, origin=None)

    def after(self, extent: ScanPlan, rows: int | None) -> Position:
        """The position after at most so many more offsets of the log."""
        here = {place_of(one): self.offsets.get(place_of(one), one.start) for one in extent.ranges}
        left = {place_of(one): max(one.end - here[place_of(one)], 0) for one in extent.ranges}
        shares = shared(left, rows)
        offsets = {**self.offsets, **{place: here[place] + shares[place] for place in here}}
        return replace(self, offsets=offsets, partitions=ids_of(extent), origin=None)


def start_of(start: Mapping[str, Any], end: Position) -> Position:
    """Where a batch starts that Spark knows by what it kept: the same place however often it is asked for."""
    if start != BEGINNING:
        return Position.from_json(start)
    if end.origin is None:
        raise InvalidRequest(
            "the first batch of this query was planned by an older version of Strom and never finished, and its "
            "checkpoint does not say where it began: start the query with a new checkpointLocation"
        )
    return end.origin


def place_of(part: BucketRange | Instant) -> Place:
    """Which bucket a part is of."""
    return part.partition, part.bucket.bucket


def ids_of(extent: ScanPlan) -> dict[str, int]:
    """The partitions of a table by name."""
    return {
        one.partition: one.bucket.partition_id
        for one in extent.ranges
        if one.partition is not None and one.bucket.partition_id is not None
    }


def cut_to(extent: ScanPlan, target: ScanPlan) -> ScanPlan:
    """What is there now, as far as it was there then."""
    ends = {one.bucket: one.end for one in target.ranges}
    kept = [
        BucketRange(one.bucket, one.partition, one.start, max(min(one.end, ends[one.bucket]), one.start))
        for one in extent.ranges
        if one.bucket in ends
    ]
    return ScanPlan(extent.table_id, tuple(kept))


def reaches(extent: ScanPlan | None, end: Position) -> bool:
    """Whether everything up to a position was in sight when the buckets were last looked at."""
    if extent is None or extent.table_id != end.table_id:
        return False
    ends = {place_of(one): one.end for one in extent.ranges}
    return all(ends.get(place, -1) >= offset for place, offset in end.offsets.items())


def shared(left: Mapping[Place, int], rows: int | None) -> dict[Place, int]:
    """How far to go in each bucket with so many rows in all: in proportion, at least one row where there is one."""
    total = sum(left.values())
    if rows is None or total <= rows:
        return dict(left)
    shares = {place: count * rows // total for place, count in left.items()}
    spare = rows - sum(shares.values())
    for place in sorted(left, key=lambda one: shares[one] - left[one]):
        more = min(spare, left[place] - shares[place], max(1, spare // len(left)))
        shares[place] += more
        spare -= more
    return shares


def between(
    start: Position, end: Position, buckets: Mapping[Place, BucketId]
) -> Iterator[tuple[Place, BucketRange | Instant | None]]:
    """What lies between two positions, bucket by bucket; None for one that is not there any more."""
    again = start.made_again(end)
    for place, one in start.full.items():
        upto = end.full[place].done if place in end.full else one.at
        if one.done < upto:
            bucket = None if place[0] in again else buckets.get(place)
            yield (
                place,
                None if bucket is None else Instant(bucket, place[0], one.at, one.epoch, one.done, upto),
            )
    for place, offset in end.offsets.items():
        since = None if place[0] in again else start.offsets.get(place)
        if since is None or since < offset:
            bucket = buckets.get(place)
            if bucket is None:
                yield place, None
            else:
                yield place, BucketRange(bucket, place[0], since or 0, offset)


def _places(offsets: Mapping[str, Any]) -> dict[Place, int]:
    return {key: offset for key, offset in flat(offsets).items() if isinstance(key, tuple) and len(key) == 2}


def _snapshots(json: Mapping[str, Any] | None) -> dict[Place, BucketSnapshot]:
    if not json:
        return {}
    done, epochs = _places(json["done"]), _places(json["epochs"])
    return {
        place: BucketSnapshot(at, None if epochs[place] < 0 else epochs[place], done[place])
        for place, at in _places(json["at"]).items()
    }
