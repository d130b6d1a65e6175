"""A leader's work on its chain, as an uploader calls it: on a store in memory, on one with bad days, on a real one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lake.s3_place import BUCKET, S3Server
from remote.segments import following, layouts
from strom.errors import ChecksumMismatch, StaleEpoch
from strom.remote.chain_leader import ChainLeader, LogState, SegmentContent
from strom.remote.column_extents import transpose
from strom.remote.local_deletion import LocalDeletion
from strom.remote.remote_chain import RemoteChain
from strom.remote.remote_manifest import DROPPED_EPOCH, RemoteEpoch, RemoteManifest, RemoteSegment
from strom.remote.remote_names import RemoteNames
from strom.remote.segment_reader import SegmentReader
from strom.remote.settling import settle
from strom.runtime import loops
from strom.runtime.clock import SystemClock
from strom.runtime.objects.object_place import ObjectPlace
from strom.runtime.objects.object_store import Objects
from strom.runtime.objects.obstore_objects import ObstoreObjects
from strom.runtime.objects.patient_objects import PatientObjects, StorePatience
from strom.runtime.objects.range_reader import RangeBudget, RangeReader
from strom.runtime.random import SystemRandomness
from strom.testing import loop
from strom.testing.clock import LoopClock
from strom.testing.faulty_objects import FaultyObjects, StoreFaults
from strom.testing.objects import MemoryObjects
from strom.testing.random import SeededRandomness

SCHEMA = pa.schema([("a", pa.int64())])
NAMES = RemoteNames("cluster", 7, None, 0)


def ids(prefix: str = "r") -> Callable[[], str]:
    """New ones each time."""
    numbers = itertools.count()
    return lambda: f"{prefix}{next(numbers)}"


def leader(objects: Objects, epoch: int, prefix: str = "r") -> ChainLeader:
    return ChainLeader(RemoteChain(objects, NAMES), epoch=epoch, new_id=ids(prefix), about={"name": "t"})


def rows(start: int, end: int) -> SegmentContent:
    """Rows of one column whose values are their offsets."""
    batch = pa.record_batch([pa.array(range(start, end), pa.int64())], schema=SCHEMA)
    return transpose(following([batch], start), layouts(SCHEMA))


def state(*epochs: tuple[int, int]) -> LogState:
    return LogState(tuple(RemoteEpoch(*one) for one in epochs))


async def extend(one: ChainLeader, until: int) -> RemoteSegment:
    """Upload and name up to an offset, claiming as often as it takes."""
    while True:
        if not one.claimed and not await one.claim():
            continue
        start = one.manifest.end_offset
        if start >= until:
            return one.manifest.segments[-1]
        segment = await one.upload(rows(start, until), stable=until)
        if segment is not None and await one.name(segment, state((1, 0))):
            return segment


def test_what_is_uploaded_and_named_is_what_the_next_leader_finds() -> None:
    async def main() -> tuple[RemoteManifest, RemoteManifest]:
        objects = MemoryObjects()
        first = leader(objects, 1, "a")
        await extend(first, 10)
        await extend(first, 25)
        second = leader(objects, 2, "b")
        assert await second.claim()
        return first.manifest, second.manifest

    first, second = loop.run(main())
    assert [(one.start_offset, one.end_offset) for one in second.segments] == [(0, 10), (10, 25)]
    assert (second.segments, second.end_offset, second.epoch) == (first.segments, 25, 2)


def test_a_deposed_leader_names_nothing_and_what_it_put_is_swept() -> None:
    async def main() -> None:
        objects = MemoryObjects()
        old, new = leader(objects, 1, "a"), leader(objects, 2, "b")
        await extend(old, 10)
        late = await old.upload(rows(10, 20), stable=20)
        assert late is not None
        await extend(new, 15)
        with pytest.raises(StaleEpoch, match="a leader of epoch 2 has it"):
            await old.name(late, state((1, 0)))
        assert not old.claimed
        with pytest.raises(StaleEpoch):
            await old.claim()
        orphans = await new.orphans()
        assert orphans == [NAMES.segment(late.name)]
        await new.remove(orphans)
        left = [one.key for one in await objects.list(NAMES.segments)]
        assert left == sorted(NAMES.segment(one.name) for one in new.manifest.segments)

    loop.run(main())


def test_what_is_not_stable_is_not_taken_up() -> None:
    async def main() -> list[Any]:
        objects = MemoryObjects()
        one = leader(objects, 1)
        with pytest.raises(AssertionError):
            await one.upload(rows(0, 5), stable=5)  # not claimed
        await one.claim()
        with pytest.raises(AssertionError):
            await one.upload(rows(0, 5), stable=4)
        with pytest.raises(AssertionError):
            await one.upload(rows(1, 5), stable=5)
        return await objects.list(NAMES.segments)

    assert loop.run(main()) == []


def test_the_listing_may_be_late_and_the_newest_manifest_is_found() -> None:
    async def main() -> list[int]:
        objects = FaultyObjects(SeededRandomness(1), StoreFaults(listing_lag_s=100.0))
        one = leader(objects, 1)
        await extend(one, 10)
        await extend(one, 20)
        return [(await RemoteChain(objects, NAMES).head()).number for _ in range(20)]

    assert set(loop.run(main())) == {3}


@pytest.mark.parametrize("seed", range(4))
def test_leaders_that_follow_each_other_on_a_bad_day_lose_nothing(seed: int) -> None:
    """Two leaders at a time: each goes on until it is fenced."""

    async def main() -> tuple[RemoteManifest, set[str]]:
        faults = StoreFaults(lost=0.15, answer_lost=0.15, done_later=0.15, throttled=0.1, listing_lag_s=2.0)
        faulty = FaultyObjects(SeededRandomness(seed), faults)
        clock = LoopClock(asyncio.get_running_loop().time)

        def patient(number: int) -> PatientObjects:
            patience = StorePatience(deadline_s=1.0)
            return PatientObjects(faulty, clock=clock, randomness=SeededRandomness(number), patience=patience)

        async def lead(epoch: int) -> None:
            await asyncio.sleep(3.0 * epoch)
            one = leader(patient(epoch), epoch, f"e{epoch}x")
            try:
                for until in range(10 * epoch, 10 * epoch + 400, 7):
                    await tried(one, until)
            except StaleEpoch:
                return

        await asyncio.gather(*(lead(epoch) for epoch in range(1, 6)))
        await asyncio.sleep(100)
        faulty.faults = StoreFaults()
        head = await RemoteChain(faulty, NAMES).head()
        return head.manifest, {one.key for one in await faulty.list(NAMES.segments)}

    async def tried(one: ChainLeader, until: int) -> None:
        from strom.errors import StoreUnavailable

        while True:
            try:
                await extend(one, until)
                return
            except StoreUnavailable:
                continue

    manifest, there = loop.run(main())
    assert manifest.epoch == 5
    assert manifest.end_offset == 50 + 57 * 7
    assert {NAMES.segment(one.name) for one in manifest.segments} <= there


def test_local_rows_may_go_once_every_segment_was_read_and_is_sound() -> None:
    async def main() -> None:
        objects = MemoryObjects()
        one = leader(objects, 1)
        deletion = LocalDeletion(RemoteChain(objects, NAMES), RangeBudget())
        assert await deletion.proven_end() == 0
        await extend(one, 10)
        assert await deletion.proven_end() == 10
        segment = await one.upload(rows(10, 20), stable=20)
        assert segment is not None
        assert await deletion.proven_end() == 10, "nobody has named it"
        await one.name(segment, state((1, 0)))
        objects.flip(NAMES.segment(segment.name), segment.size - 1)
        with pytest.raises(ChecksumMismatch):
            await deletion.proven_end()
        objects.flip(NAMES.segment(segment.name), segment.size - 1)
        assert await deletion.proven_end() == 20

    loop.run(main())


def test_what_expires_leaves_the_manifest_and_is_removed_after_its_grace_unless_somebody_holds_it() -> None:
    async def main() -> None:
        objects = MemoryObjects()
        one = leader(objects, 1)
        for until in (10, 20, 30):
            await extend(one, until)
        names = [segment.name for segment in one.manifest.segments]
        assert await one.retire(25, now_ms=1000)
        assert [segment.name for segment in one.manifest.segments] == names[2:]
        assert (one.manifest.start_offset, one.manifest.end_offset) == (20, 30)
        later = leader(objects, 2, "b")
        await later.claim()
        assert await later.orphans() == [], "what left is not an orphan before its grace is over"
        await later.remove_retired(1500, grace_ms=600, held=frozenset())
        assert len(await objects.list(NAMES.segments)) == 3
        await later.remove_retired(1600, grace_ms=600, held=frozenset({names[0]}))
        left = {item.key for item in await objects.list(NAMES.segments)}
        assert left == {NAMES.segment(names[0]), NAMES.segment(names[2])}
        assert [item.name for item in later.manifest.retired] == names[:1]

    loop.run(main())


def test_after_a_drop_nobody_names_anything() -> None:
    async def main() -> int:
        objects = MemoryObjects()
        one = leader(objects, 1)
        await extend(one, 10)
        assert await one.drop()
        with pytest.raises(StaleEpoch, match="dropped"):
            await leader(objects, 2**31 - 2).claim()
        return (await RemoteChain(objects, NAMES).head()).manifest.epoch

    assert loop.run(main()) == DROPPED_EPOCH


@pytest.mark.parametrize(
    ("remote_end", "remote", "local", "start", "end", "cut", "resume"),
    [
        (10, [(1, 0)], [(1, 0)], 0, 15, 15, 15),  # the same, and more
        (10, [(1, 0)], [(1, 0)], 0, 10, 10, 10),
        (10, [(1, 0)], [(1, 0)], 0, 6, 6, 10),  # less: goes on behind the remote end
        (10, [(1, 0), (2, 4)], [(1, 0), (3, 4)], 0, 15, 4, 10),  # another record at 4
        (10, [(1, 0), (2, 4)], [(1, 0)], 0, 15, 4, 10),
        (10, [(1, 0)], [(1, 0), (3, 12)], 0, 15, 15, 15),  # another epoch above the remote end
        (10, [(1, 0), (2, 4)], [(1, 0), (2, 5)], 2, 15, 4, 10),
        (10, [(1, 0)], [(2, 12)], 12, 15, 15, 15),  # all of it is above
        (10, [(1, 0)], [], 0, 0, 0, 10),  # an empty disk
        (0, [], [(1, 0)], 0, 5, 5, 5),  # nothing is remote
    ],
)
def test_after_a_loss_the_remote_log_wins(
    remote_end: int,
    remote: list[tuple[int, int]],
    local: list[tuple[int, int]],
    start: int,
    end: int,
    cut: int,
    resume: int,
) -> None:
    manifest = RemoteManifest(
        1, "x", {}, end_offset=remote_end, epochs=tuple(RemoteEpoch(*one) for one in remote)
    )
    decided = settle(manifest, [RemoteEpoch(*one) for one in local], start, end)
    assert (decided.cut_at, decided.resume_at) == (cut, resume)


@pytest.mark.slow
def test_a_bucket_lives_in_a_real_store(s3: S3Server) -> None:
    async def main() -> list[int]:
        place = ObjectPlace.of(f"s3://{BUCKET}/remote-chain", s3.options())
        objects = PatientObjects(ObstoreObjects(place), clock=SystemClock(), randomness=SystemRandomness())
        old, new = leader(objects, 1, "a"), leader(objects, 2, "b")
        await extend(old, 1000)
        late = await old.upload(rows(1000, 1100), stable=1100)
        assert late is not None
        await extend(new, 2500)
        with pytest.raises(StaleEpoch):
            await old.name(late, state((1, 0)))
        await new.remove(await new.orphans())
        ranges = RangeReader(objects, RangeBudget())
        found: list[int] = []
        for segment in (await RemoteChain(objects, NAMES).head()).manifest.segments:
            reader = SegmentReader(ranges, NAMES.segment(segment.name), segment)
            found += [len(one) for one in await reader.whole(0, 1 << 60)]
        deletion = LocalDeletion(RemoteChain(objects, NAMES), RangeBudget())
        assert await deletion.proven_end() == 2500
        assert len(await objects.list(NAMES.segments)) == 2
        return found

    assert len(loops.run(main())) == 2
