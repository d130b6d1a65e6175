"""Bugs, planted one at a time to see that the simulation finds them. Each breaks the product in one place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from strom.client.read.tail import LogTail
from strom.client.write.accumulator import BucketQueue
from strom.client.write.delivery import Delivery
from strom.errors import Disconnected
from strom.log.epochs import Epochs, EpochStart
from strom.log.log import Log
from strom.log.sync import SyncPoint
from strom.log.writers import Writers
from strom.server.background import retention
from strom.server.calls import writes
from strom.server.tablets.tablets import Tablets
from strom.tablet.log_tablet import LogTablet
from strom.tablet.tablet import Accepted, Tablet

Patch = pytest.MonkeyPatch
Mutant = Callable[[Patch], None]


def nothing_is_synced(patch: Patch) -> None:
    patch.setattr(SyncPoint, "sync", lambda self: None)


def new_files_are_not_synced_with_their_folder(patch: Patch) -> None:
    def sync(self: SyncPoint) -> None:
        for target in self._targets:
            target.sync()

    patch.setattr(SyncPoint, "sync", sync)


def acknowledged_before_it_is_durable(patch: Patch) -> None:
    def at_once(tablet: Any, offset: int, wanted: Any, response: Any) -> Any:
        return response

    patch.setattr(writes, "_acknowledged", at_once)


def acknowledged_without_an_append(patch: Patch) -> None:
    append, calls = LogTablet.append, count()

    def sometimes(self: LogTablet, records: memoryview, **options: Any) -> Accepted:
        if next(calls) % 20 == 19:
            end = self.high_watermark
            return Accepted(base_offset=end, next_offset=end, rows=1, size=len(records), duplicate=True)
        return append(self, records, **options)

    patch.setattr(LogTablet, "append", sometimes)


def readers_see_past_the_high_watermark(patch: Patch) -> None:
    def read(self: Tablet, offset: int, *, max_bytes: int, until: int | None = None, **options: Any) -> Any:
        end = self.log.end_offset
        return self.log.read(offset, until=end if until is None else until, max_bytes=max_bytes, **options)

    patch.setattr(Tablet, "read", read)


def writers_are_forgotten_by_a_restart(patch: Patch) -> None:
    begin = Log.__init__

    def forget(self: Log, files: Any, folder: str, settings: Any, found: Any, **options: Any) -> None:
        begin(self, files, folder, settings, found._replace(writers=Writers(expiry_ms=1 << 40)), **options)

    patch.setattr(Log, "__init__", forget)


def repeated_batches_are_taken_again(patch: Patch) -> None:
    patch.setattr(Writers, "find_duplicate", lambda self, header, *, now_ms: None)


def epochs_do_not_rise(patch: Patch) -> None:
    def begin(self: Epochs, start_offset: int, *, log_start: int = 0) -> Epochs:
        return Epochs((EpochStart(0, 0),), 0)

    patch.setattr(Epochs, "begin", begin)


def offsets_have_gaps(patch: Patch) -> None:
    append, calls = Log.append, count()

    def leap(self: Log, *arguments: Any, **options: Any) -> Any:
        result = append(self, *arguments, **options)
        if next(calls) % 20 == 19:
            self._chain.end_offset += 1
        return result

    patch.setattr(Log, "append", leap)


def timestamps_follow_the_clock(patch: Patch) -> None:
    append = Log.append

    def follow(self: Log, *arguments: Any, **options: Any) -> Any:
        self._chain.newest_timestamp_ms = -1
        return append(self, *arguments, **options)

    patch.setattr(Log, "append", follow)


def retention_is_too_eager(patch: Patch) -> None:
    ttl = retention.properties.log_ttl_ms

    def half(wanted: Any) -> int | None:
        found = ttl(wanted)
        return None if found is None else found // 2

    patch.setattr(retention.properties, "log_ttl_ms", half)


def retention_ends_by_an_error(patch: Patch) -> None:
    async def visit(self: Any, bucket: Any) -> int:
        raise ValueError("not expected")

    patch.setattr(retention.Retention, "_visit", visit)


def the_client_takes_a_broken_connection_for_a_yes(patch: Patch) -> None:
    settle = Delivery._settle

    def gullible(self: Delivery, batch: Any, error: Any) -> None:
        settle(self, batch, None if isinstance(error, Disconnected) else error)

    patch.setattr(Delivery, "_settle", gullible)


def a_tail_tells_a_batch_twice(patch: Patch) -> None:
    read, calls = LogTail.read, count()
    told: list[Any] = [None]

    def repeat(self: LogTail, arrived: Any) -> Any:
        if next(calls) % 10 != 9:
            told[0] = read(self, arrived)
        return told[0]

    patch.setattr(LogTail, "read", repeat)


def dropped_buckets_stay_on_the_disk(patch: Patch) -> None:
    patch.setattr(Tablets, "_remove", lambda self, bucket, placement=0: None)


def a_flush_leaves_out_the_last_batch(patch: Patch) -> None:
    flush = Delivery.flush

    async def early(self: Delivery, mark: int) -> None:
        await flush(self, mark - 1)

    patch.setattr(Delivery, "flush", early)


def what_came_back_is_sent_backwards(patch: Patch) -> None:
    def put_back(self: BucketQueue) -> None:
        if self.returned and not self.in_flight:
            self.queued.extendleft(sorted(self.returned, key=lambda batch: batch.sequence))
            self.returned = []

    patch.setattr(BucketQueue, "_put_back", put_back)


MUTANTS: dict[Mutant, tuple[int, str]] = {
    nothing_is_synced: (2, "AcknowledgedIsNeverLost|NoReaderSees|DeliveredIs"),
    new_files_are_not_synced_with_their_folder: (2, "AcknowledgedIsNeverLost|NoReaderSees|DeliveredIs"),
    acknowledged_before_it_is_durable: (0, "AcknowledgedIsNeverLost"),
    acknowledged_without_an_append: (2, "AcknowledgedIsNeverLost"),
    readers_see_past_the_high_watermark: (2, "NoReaderSeesPastTheHighWatermark|DeliveredIsNeverTakenBack"),
    writers_are_forgotten_by_a_restart: (2, "NothingIsDoubled|Writers|ClientsAreToldTheTruth"),
    repeated_batches_are_taken_again: (1, "NothingIsDoubled|WritersKeepTheirOrder"),
    epochs_do_not_rise: (25, "EpochAndOffsetNeverReused"),
    offsets_have_gaps: (1, "OffsetsAreDense|ServerStaysUp|ClientsAreToldTheTruth"),
    timestamps_follow_the_clock: (3, "TimestampsNeverFall"),
    retention_is_too_eager: (17, "RetentionTakesOnlyTheOld|AcknowledgedIsNeverLost"),
    retention_ends_by_an_error: (0, "ServerStaysUp"),
    the_client_takes_a_broken_connection_for_a_yes: (1, "AcknowledgedIsNeverLost"),
    dropped_buckets_stay_on_the_disk: (6, "DroppedIsGone"),
    a_tail_tells_a_batch_twice: (0, "NothingIsDoubled|OffsetsAreDense"),
    a_flush_leaves_out_the_last_batch: (0, "AcknowledgedIsNeverLost"),
    what_came_back_is_sent_backwards: (15, "WritersKeepTheirOrder"),
}
"""Each with a history of the suite that is likely to show it, and the promises that may be seen broken first."""
