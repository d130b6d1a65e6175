"""Readers in other threads while one hand appends, rolls, syncs and expires."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from log.workbench import NUMBERS, Workbench, numbers_of
from strom.errors import OffsetOutOfRange
from strom.runtime.files import LocalFiles

BATCHES = 300


@pytest.fixture(autouse=True)
def _switch_threads_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(before)


class Reader(threading.Thread):
    """Reads at random offsets below the end and checks every row: the number of a row is its offset."""

    def __init__(self, bench: Workbench, done: threading.Event, seed: int) -> None:
        super().__init__()
        self.bench = bench
        self.done = done
        self.random = random.Random(seed)
        self.rows = 0
        self.expired = 0
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.done.is_set():
                self.read_once()
        except BaseException as error:
            self.problem = error

    def read_once(self) -> None:
        log = self.bench.log
        until = log.end_offset
        start = min(log.start_offset, until)
        offset = self.random.choice([until - 1, self.random.randint(start, until)])
        projection = self.random.choice([None, NUMBERS])
        try:
            while start <= offset < until:
                found = log.read(offset, until=until, max_bytes=2000, projection=projection)
                rows = numbers_of(found, projection.schema if projection else None)
                assert rows == [(n, n) for n in range(rows[0][0], found.next_offset)]
                assert rows[0][0] <= offset < found.next_offset <= until
                self.rows += len(rows)
                offset = found.next_offset
                if self.random.random() < 0.3:
                    assert log.offset_at(self.random.randint(0, 10**7)) >= start
                    assert log.tail_rows(3, until=until).rows >= 3
                    return
        except OffsetOutOfRange:
            self.expired += 1


class Syncer(threading.Thread):
    """Syncs beside the appender, as group commit does."""

    def __init__(self, bench: Workbench, done: threading.Event) -> None:
        super().__init__()
        self.bench = bench
        self.done = done
        self.falls = 0

    def run(self) -> None:
        while not self.done.is_set():
            before = self.bench.log.synced_end
            self.bench.sync()
            self.falls += self.bench.log.synced_end < before


def test_readers_see_whole_batches_whatever_the_writer_does(tmp_path: Path) -> None:
    bench = Workbench(
        LocalFiles(), folder=f"{tmp_path}/0", segment_bytes=3000, checkpoint_bytes=20_000, sync_on_roll=False
    )
    bench.append()
    done = threading.Event()
    readers = [Reader(bench, done, seed) for seed in range(3)]
    syncer = Syncer(bench, done)
    for thread in (*readers, syncer):
        thread.start()
    try:
        for number in range(BATCHES):
            bench.now_ms += 1
            bench.append(1 + number % 5)
            pending = bench.log.pending_checkpoint()
            if pending is not None:
                pending.write()
                bench.log.checkpointed(pending)
            if number % 100 == 99:
                bench.log.expire(now_ms=bench.now_ms, ttl_ms=None, bytes_max=20_000)
    finally:
        done.set()
        for thread in (*readers, syncer):
            thread.join()
    assert [reader.problem for reader in readers] == [None, None, None]
    assert all(reader.rows > 100 for reader in readers)
    assert syncer.falls == 0
    assert bench.log.start_offset > 0
    bench.sync()
    assert bench.log.synced_end == bench.log.end_offset
    bench.check()
    bench.reopen()
    bench.check()
