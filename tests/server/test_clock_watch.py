"""The time that a server saw is kept, and a full disk does not end that."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from strom.errors import StorageFull
from strom.runtime.files import Bytes, LocalFiles
from strom.runtime.world import World
from strom.server.background import clock_watch
from strom.server.background.clock_watch import ClockWatch


class FullFirst(LocalFiles):
    """A disk that has no room the first time."""

    full = True

    def write_whole(self, path: str, content: Bytes) -> None:
        if self.full:
            self.full = False
            raise StorageFull("no room on the disk")
        super().write_whole(path, content)


def test_the_time_is_kept_again_once_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_watch, "KEEP_EVERY_S", 0.001)

    async def test() -> None:
        world = replace(World.system(), files=FullFirst())
        watching = asyncio.ensure_future(ClockWatch(world, str(tmp_path), "test", trust_after_ms=1000).run())
        while not (tmp_path / "clock-test").exists():
            assert not watching.done()
            await asyncio.sleep(0.001)
        watching.cancel()

    asyncio.run(test())
