"""The last look: what was promised is there, once and in order, and all copies are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from cluster_histories.actors import (
    EVENTS,
    KEYS,
    TRANSACTION_WRITERS,
    Actor,
    AppendingActor,
    Row,
    TailingActor,
    TransactionActor,
    UpsertingActor,
)
from cluster_histories.losses import log_content
from cluster_histories.scene import Scene
from strom.aio.database import Database
from strom.log.epochs import EpochStart
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry
from strom.tablet.tablet import Tablet


class LastLook:
    """At the end of a history, when all is well."""

    def __init__(self, scene: Scene, actors: Iterable[Actor]) -> None:
        self.scene = scene
        self.actors = list(actors)

    # --- copies ----------------------------------------------------------------------------------------------

    def is_well(self) -> bool:
        """Whether every bucket is led, has all copies that are wanted in sync, and none is being moved."""
        return all(self._is_led(*one) for one in self.scene.entries().items())

    def _is_led(self, bucket: BucketId, entry: BucketEntry) -> bool:
        registration = self.scene.catalog.registrations.get(entry.leader)
        if registration is None or registration.incarnation != entry.incarnation or entry.moving:
            return False
        replicas = self.scene.replicas(entry.leader)
        found = None if replicas is None else replicas.find(bucket)
        led = found is not None and found.leading is not None and found.leading.epoch == entry.epoch
        return led and {one.server_id for one in entry.in_sync} == set(entry.wanted)

    def are_equal(self) -> bool:
        """Whether the copies of each bucket are the same, byte by byte, with the same watermarks and epochs."""
        return all(self._copies_equal(bucket, entry) for bucket, entry in self.scene.entries().items())

    def describe(self) -> str:
        """The copies, shortly."""
        return "; ".join(
            f"{bucket} epoch {entry.epoch} led by {entry.leader}, wanted {entry.wanted}, in sync "
            f"{[one.server_id for one in entry.in_sync]}: "
            + ", ".join(f"{one}: {self._shortly(one, bucket)}" for one in entry.servers)
            for bucket, entry in self.scene.entries().items()
            if not self._is_led(bucket, entry) or not self._copies_equal(bucket, entry)
        )

    def _shortly(self, server_id: int, bucket: BucketId) -> str:
        tablet = self.scene.tablet(server_id, bucket)
        if tablet is None:
            return "no copy"
        if not tablet.online:
            return f"offline, {tablet.error}"
        end, high, epochs, sealed, _ = _content(tablet)
        return f"{high} of {end}, {len(sealed)} stages, {[tuple(one) for one in epochs]}"

    def _copies_equal(self, bucket: BucketId, entry: BucketEntry) -> bool:
        tablets = [self.scene.tablet(server_id, bucket) for server_id in entry.servers]
        found = {_content(one) if one is not None and one.online else None for one in tablets}
        return len(found) == 1 and None not in found

    def check_losses(self) -> None:
        """Losses are declared only where all lost power."""
        for bucket, entry in self.scene.entries().items():
            if entry.losses > self.scene.losses:
                self.scene.report(
                    "NothingIsGivenUp", f"{bucket} declared {entry.losses} losses of {self.scene.losses}"
                )

    # --- rows ------------------------------------------------------------------------------------------------

    async def read(self, database: Database) -> None:
        """Compare all rows with what was promised."""
        plan = self.scene.plan
        if plan.log_writers or plan.transactions:
            self._check_log(await self._log(database))
        if plan.key_writers:
            await self._check_keys(database)

    async def _log(self, database: Database) -> dict[int, dict[int, Row]]:
        """The rows of the log by bucket and offset, in order."""
        table = await database.table(EVENTS)
        found = await table.changelog().to_arrow()
        rows: dict[int, dict[int, Row]] = {one: {} for one in range(self.scene.plan.buckets)}
        for bucket, offset, writer, number in zip(
            found["_bucket"].to_pylist(),
            found["_log_offset"].to_pylist(),
            found["writer"].to_pylist(),
            found["number"].to_pylist(),
            strict=True,
        ):
            rows[bucket][offset] = (writer, number)
        marked = may_have_marks(self.scene)
        for bucket, by_offset in rows.items():
            if not marked and sorted(by_offset) != list(range(len(by_offset))):
                self.scene.report("OffsetsAreDense", f"bucket {bucket} has {sorted(by_offset)}")
        return {bucket: dict(sorted(by_offset.items())) for bucket, by_offset in rows.items()}

    def _check_log(self, log: Mapping[int, Mapping[int, Row]]) -> None:
        counts = Counter(row for rows in log.values() for row in rows.values())
        doubled = sorted(row for row, count in counts.items() if count > 1)
        if doubled:
            self.scene.report("NothingIsDoubled", f"{doubled[:5]} are there more than once")
        for rows in log.values():
            self._check_order(rows.values())
        for actor in self.actors:
            if isinstance(actor, AppendingActor | TransactionActor):
                self._check_acknowledged(actor.name, actor.acknowledged, counts)
            elif isinstance(actor, TailingActor):
                self._check_seen(actor, log)
        self.scene.note("reader", {bucket: len(rows) for bucket, rows in log.items()})

    def _check_order(self, rows: Iterable[Row]) -> None:
        newest: dict[int, int] = {}
        for writer, number in rows:
            if number < newest.get(writer, -1):
                self.scene.report("WritersKeepTheirOrder", f"{writer} has {number} behind {newest[writer]}")
            newest[writer] = number

    def _check_acknowledged(self, name: str, rows: Mapping[Row, int], found: Mapping[Row, int]) -> None:
        gone = sorted(row for row, losses in rows.items() if losses == self.scene.losses and row not in found)
        if gone:
            self.scene.report("AcknowledgedIsNeverLost", f"of {name}: {gone[:5]}")
        whole = [row[1] // 10 for row in found if row[0] >= TRANSACTION_WRITERS]
        wanted = Counter(row[1] // 10 for row in rows if row[0] >= TRANSACTION_WRITERS)
        for version, count in Counter(whole).items():
            if version in wanted and count != wanted[version]:
                self.scene.report("TransactionsAreWhole", f"{version} has {count} rows of {wanted[version]}")

    def _check_seen(self, tail: TailingActor, log: Mapping[int, Mapping[int, Row]]) -> None:
        for bucket, seen in tail.seen.items():
            rows = log[bucket.bucket]
            for offset, (row, losses) in seen.items():
                if losses == self.scene.losses and rows.get(offset) != row:
                    self.scene.report("WhatWasSeenStays", f"{tail.name} saw {row} at {offset} of {bucket}")

    async def _check_keys(self, database: Database) -> None:
        table = await database.table(KEYS)
        for actor in self.actors:
            if isinstance(actor, UpsertingActor):
                for key, (number, losses) in sorted(actor.acknowledged.items()):
                    found = await table.lookup({"key": key})
                    if losses != self.scene.losses:
                        continue
                    if found is None or not number <= found["number"] <= actor.sent[key]:
                        self.scene.report(
                            "AcknowledgedIsNeverLost", f"key {key} has {found}, not {number} or later"
                        )
                    elif found["text"] != f"row {found['number']}":
                        self.scene.report("RowsAreWhole", f"key {key} has {found}")


def may_have_marks(scene: Scene) -> bool:
    """Whether offsets may be taken by what is no row: a transaction whose rows were lost with the power of all."""
    return bool(scene.plan.transactions and scene.losses)


def _content(tablet: Tablet) -> tuple[int, int, tuple[EpochStart, ...], tuple[bytes, ...], bytes]:
    """A copy, byte by byte."""
    end = tablet.end_offset
    sealed = tuple(sorted(tablet.stages.sealed_ids()))
    return end, tablet.high_watermark, tablet.log.epochs.until(end).starts, sealed, log_content(tablet, end)
