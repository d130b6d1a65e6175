"""Copying a base ends when the follower's role does: nothing more is asked of the leader, kept or installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from strom.model.bucket import BucketId
from strom.protocol.messages.replication import CopyBaseRequest, CopyBaseResponse, WireCopyFile
from strom.record.checksum import crc32c
from strom.runtime.tasks import InlineOffload, Tasks
from strom.server.replicas.base_copying import BaseCopying, CopyRate
from strom.tablet.tablet import Tablet
from strom.testing import loop as virtual
from strom.testing.clock import LoopClock
from strom.testing.disk import ForgettingDisk

FILES = {"a.log": b"first", "b.log": b"second"}


class Scene:
    """A follower that copies two files, one piece each. ``stops``: what is done last in its role."""

    def __init__(self, stops: str) -> None:
        self.stops = stops
        self.done: list[str] = []
        self.disk = ForgettingDisk()
        self.disk.make_folder("copies")
        identity = SimpleNamespace(placement=7)
        self.following = SimpleNamespace(
            bucket=BucketId(1, None, 0),
            epoch=3,
            leader_id=2,
            stopped=False,
            moved=None,
            followership=SimpleNamespace(member=SimpleNamespace(identity=identity)),
            slot=self,
            goes_on=lambda tablet: self.does("goes on"),
        )

    def does(self, what: str) -> None:
        self.done.append(what)
        if what == self.stops:
            self.following.stopped = True

    async def ask(self, server_id: int, request: CopyBaseRequest) -> CopyBaseResponse:
        if request.ended:
            self.does("release")
            return CopyBaseResponse(leader_epoch=3, at=40)
        if request.file is None:
            self.does("list")
            listed = [WireCopyFile(name=name, size=len(content)) for name, content in FILES.items()]
            return CopyBaseResponse(leader_epoch=3, at=40, files=listed)
        name = list(FILES)[request.file]
        self.does(f"ask {name}")
        return CopyBaseResponse(leader_epoch=3, at=40, content=FILES[name], crc=crc32c(FILES[name]))

    # What stands for the threads, the rate and the slot.

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        found = await InlineOffload().run(work, *arguments)
        if work.__name__ == "add":
            self.does(f"keep {list(FILES)[arguments[0]]}")
        return found

    async def take(self, size: int) -> None:
        self.does("pay")

    @property
    def bucket(self) -> BucketId:
        return BucketId(1, None, 0)

    async def reopen(self, _refusal: Exception, work: Callable[[], None]) -> None:
        work()
        self.does("install")

    async def opened(self, **_how: bool) -> Any:
        return Mock(spec=Tablet)


WHOLE = [
    "list",
    "ask a.log",
    "pay",
    "keep a.log",
    "ask b.log",
    "pay",
    "keep b.log",
    "install",
    "goes on",
    "release",
]


@pytest.mark.parametrize(
    "stops", ["list", "ask a.log", "keep a.log", "ask b.log", "keep b.log", "install", "never"]
)
def test_when_the_role_ends_nothing_more_is_done(stops: str) -> None:
    async def main() -> Scene:
        scene, tasks = Scene(stops), Tasks()
        tablets = SimpleNamespace(folder_of_copy=lambda *_: "copies/b0")
        copying = BaseCopying(
            1, cast(Any, tablets), scene.disk, cast(Any, scene), tasks, scene.ask, cast(Any, scene)
        )
        copying.begin(cast(Any, scene.following))
        await asyncio.sleep(60)
        assert not len(tasks)
        await tasks.close()
        return scene

    scene = virtual.run(main())
    upto = WHOLE if stops == "never" else WHOLE[: WHOLE.index(stops) + 1]
    paid = ["pay"] if stops.startswith("ask") else []  # nobody is asked whether to pay for what came
    assert scene.done == upto + paid
    if stops in ("never", "install"):
        assert scene.disk.list("copies/b0") == sorted(FILES)


def test_copies_together_keep_to_a_rate_but_for_a_little_at_first() -> None:
    async def main() -> list[float]:
        clock = LoopClock(asyncio.get_running_loop().time)
        rate, began = CopyRate(clock, 1000), clock.monotonic()
        ends = []

        async def copy() -> None:
            for _ in range(5):
                await rate.take(500)
            ends.append(clock.monotonic() - began)

        await asyncio.gather(copy(), copy())
        await asyncio.sleep(60)  # what was not used is not saved up
        began = clock.monotonic()
        await copy()
        return ends

    assert virtual.run(main()) == pytest.approx([4.5, 5.0, 2.4])
