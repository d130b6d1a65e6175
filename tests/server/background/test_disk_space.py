"""Writes stop before the disk is full and resume by themselves."""

from __future__ import annotations

import asyncio

import pytest

from strom.errors import StorageFull
from strom.runtime.tasks import InlineOffload
from strom.runtime.world import World
from strom.server.background.clock_watch import ClockWatch
from strom.server.background.disk_space import SAMPLE_S, DiskSpace
from strom.testing.clock import ManualClock
from strom.testing.disk import ForgettingDisk
from strom.testing.network import MemoryNetwork
from strom.testing.random import SeededRandomness


class Disk:
    def __init__(self) -> None:
        self.free = 1000
        self.asked = 0

    def free_bytes(self, path: str) -> int:
        self.asked += 1
        return self.free


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def now_ms(self) -> int:
        return int(self.seconds * 1000)


def space(disk: Disk, clock: Clock) -> DiskSpace:
    return DiskSpace(disk, ["/data"], free_bytes_min=100, clock=clock)  # type: ignore[arg-type]


def test_there_is_room() -> None:
    disk, clock = Disk(), Clock()
    watched = space(disk, clock)
    watched.refuse_when_full()
    assert not watched.full


def test_a_nearly_full_disk_refuses_writes_until_there_is_clearly_room() -> None:
    disk, clock = Disk(), Clock()
    watched = space(disk, clock)
    disk.free = 99
    with pytest.raises(StorageFull, match="writing resumes"):
        watched.refuse_when_full()
    disk.free = 110
    clock.seconds += 1
    with pytest.raises(StorageFull):
        watched.refuse_when_full()
    disk.free = 125
    clock.seconds += 1
    watched.refuse_when_full()
    assert not watched.full


def test_the_disk_is_not_asked_for_every_write() -> None:
    disk, clock = Disk(), Clock()
    watched = space(disk, clock)
    for _ in range(100):
        watched.refuse_when_full()
    assert disk.asked == 1
    clock.seconds += SAMPLE_S
    watched.refuse_when_full()
    assert disk.asked == 2


def test_a_disk_that_fills_up_and_has_room_again_is_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    disk, clock = Disk(), Clock()
    watched = space(disk, clock)
    with caplog.at_level("INFO", logger="strom"):
        for free in (1000, 99, 98, 125, 1000):
            disk.free = free
            watched.sample()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "/data is full" in caplog.text


def test_a_full_disk_does_not_end_the_watch_of_the_clock(caplog: pytest.LogCaptureFixture) -> None:
    """What retention goes by is only as old as the last look: a server that cannot write it down looks again."""
    disk = ForgettingDisk()
    disk.make_folder("/data")
    world = World(ManualClock(), SeededRandomness(1), disk, MemoryNetwork(), InlineOffload())
    watch = ClockWatch(world, "/data", "tablet-0", trust_after_ms=1_000)
    disk.fill(0)
    asyncio.run(watch.keep())
    assert "cannot store the time" in caplog.text
    disk.fill(None)
    asyncio.run(watch.keep())
    assert disk.read_whole("/data/clock-tablet-0").split()[0] == b"%d" % watch.time.now_ms()
