"""A stream's position, as Spark keeps it in the checkpoint, and how far the next batch may go. Pure.

    {"version": 1, "table": 7, "schema": 1, "offsets": {"0": 120, "1": 80}}
    {"version": 1, "table": 7, "schema": 1, "offsets": {"2026-11-15": {"0": 120}}, "partitions": {"2026-11-15": 3}}

``offsets`` are the next ones to read; a bucket that is not named is read from its beginning. They can be passed
to ``start`` as they are. Partitions are also known by id: a recreated one begins at its start.

A stream from ``full`` first reads the table at an instant. Meanwhile ``full`` holds the instant of every bucket and the
offset up to which its rows were read; ``offsets`` already point to that instant, so nothing is lost or repeated when
the changes follow.

Spark keeps where a batch ends and takes the start from the batch before. For the first batch it asks for the start
whenever it plans it, also after a restart. So that start is a constant (``BEGINNING``), and the place it stands for,
chosen once, is kept as ``from`` in the end of that batch.
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
"""Where the first batch starts; the end of that batch holds the place."""

Place: TypeAlias = "tuple[str | None, int]"
"""A bucket: its partition's name, and its number."""


@dataclass(frozen=True)
class BucketSnapshot:
    """The instant of one bucket that is read first, and how far it has been read."""

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
    """The id of each named partition."""
    full: Mapping[Place, BucketSnapshot] = field(default_factory=dict)
    """Empty once the instant has been read."""
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
        """Before the rows of an instant, with the changes after it to follow. An empty bucket that the plan does not
        have belongs to a lake-only partition."""
        snapshots = {place_of(one): BucketSnapshot(one.at, one.epoch) for one in plan.instants}
        there = {one.partition for one in plan.instants}
        for one in extent.ranges:
            if one.partition not in there and one.start == one.end > 0:
                snapshots[place_of(one)] = BucketSnapshot(one.end, None)
        offsets = {place: one.at for place, one in snapshots.items()}
        return cls(plan.table_id, schema_id, offsets, ids_of(extent), snapshots)

    # --- going on -----------------------------------------------------------------------------------------------

    def made_again(self, later: Position) -> set[str]:
        """Partitions that were recreated before a later position: this position is about the old ones."""
        return {
            name for name, number in self.partitions.items() if later.partitions.get(name, number) != number
        }

    def known(self, extent: ScanPlan) -> Position:
        """The same without dropped partitions; a recreated one begins at its start."""
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
        """The position after at most ``rows`` more offsets of the instant."""
        left = {place: one.left for place, one in self.full.items()}
        shares = shared(left, rows)
        moved = {place: replace(one, done=one.done + shares[place]) for place, one in self.full.items()}
        full = moved if any(one.left for one in moved.values()) else {}
        return replace(self, full=full, origin=None)

    def after(self, extent: ScanPlan, rows: int | None) -> Position:
        """The position after at most ``rows`` more offsets of the log."""
        here = {place_of(one): self.offsets.get(place_of(one), one.start) for one in extent.ranges}
        left = {place_of(one): max(one.end - here[place_of(one)], 0) for one in extent.ranges}
        shares = shared(left, rows)
        offsets = {**self.offsets, **{place: here[place] + shares[place] for place in here}}
        return replace(self, offsets=offsets, partitions=ids_of(extent), origin=None)


def start_of(start: Mapping[str, Any], end: Position) -> Position:
    """The start of a batch that Spark has planned: the same place every time."""
    if start != BEGINNING:
        return Position.from_json(start)
    if end.origin is None:
        raise InvalidRequest(
            "the first batch of this query was planned by an older version of Strom and never finished, and its "
            "checkpoint does not say where it began: start the query with a new checkpointLocation"
        )
    return end.origin


def place_of(part: BucketRange | Instant) -> Place:
    """The bucket of a part."""
    return part.partition, part.bucket.bucket


def ids_of(extent: ScanPlan) -> dict[str, int]:
    """The partitions of a table by name."""
    return {
        one.partition: one.bucket.partition_id
        for one in extent.ranges
        if one.partition is not None and one.bucket.partition_id is not None
    }


def cut_to(extent: ScanPlan, target: ScanPlan) -> ScanPlan:
    """What exists now, limited to what existed then."""
    ends = {one.bucket: one.end for one in target.ranges}
    kept = [
        BucketRange(one.bucket, one.partition, one.start, max(min(one.end, ends[one.bucket]), one.start))
        for one in extent.ranges
        if one.bucket in ends
    ]
    return ScanPlan(extent.table_id, tuple(kept))


def reaches(extent: ScanPlan | None, end: Position) -> bool:
    """Whether the last look at the buckets covered everything up to a position."""
    if extent is None or extent.table_id != end.table_id:
        return False
    ends = {place_of(one): one.end for one in extent.ranges}
    return all(ends.get(place, -1) >= offset for place, offset in end.offsets.items())


def shared(left: Mapping[Place, int], rows: int | None) -> dict[Place, int]:
    """How many of ``rows`` in total each bucket gets: in proportion, and at least one if it has any."""
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
    """The range between two positions for each bucket; None for a bucket that is gone."""
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
