"""The time that a server saw is kept, and a full disk does not end that."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from strom.errors import StorageFull
from strom.runtime.files import Bytes, LocalFiles
from strom.runtime.world import World
from strom.server.background import clock_watch
from strom.server.background.clock_watch import ClockWatch
from strom.testing.clock import ManualClock
from waiting import until


class FailsFirst(LocalFiles):
    """A disk that fails the first time."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.errors = [error]

    def write_whole(self, path: str, content: Bytes) -> None:
        if self.errors:
            raise self.errors.pop()
        super().write_whole(path, content)


@pytest.mark.parametrize(
    "error", [StorageFull("no room on the disk"), OSError(errno.EIO, "input/output error")]
)
def test_the_time_is_kept_again_once_the_disk_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(clock_watch, "KEEP_EVERY_S", 0.001)

    async def test() -> None:
        world = replace(World.system(), files=FailsFirst(error))
        watching = asyncio.ensure_future(ClockWatch(world, str(tmp_path), "test", trust_after_ms=1000).run())
        await until(lambda: watching.done() or (tmp_path / "clock-test").exists())
        assert not watching.done()
        watching.cancel()
        world.offload.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("content", "ahead_days"),
    [
        ("{now} boot-1 0 0 0", 0),
        ("{then} boot-1 0 0 0", 1),
        ("{then} boot-0 0 0 0", 0),
        ("{then}", 0),
        ("{then} boot-0 0 86400000 0", 1),
        ("nonsense \xff 1 2", 0),
        ("", 0),
    ],
)
def test_what_was_seen_is_found_again(tmp_path: Path, content: str, ahead_days: int) -> None:
    clock = ManualClock()
    then = clock.now_ms() - 24 * 3600 * 1000
    (tmp_path / "clock-test").write_bytes(content.format(now=clock.now_ms(), then=then).encode("latin-1"))
    world = replace(World.system(), clock=clock)
    watch = ClockWatch(world, str(tmp_path), "test", trust_after_ms=1000)
    assert watch.time.ahead_ms() == ahead_days * 24 * 3600 * 1000
    asyncio.run(watch.keep())
    assert ClockWatch(world, str(tmp_path), "test", trust_after_ms=1000).time.seen() == watch.time.seen()
    world.offload.close()
