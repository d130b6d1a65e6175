"""Copying a base ends when the follower's role does: nothing more is asked of the leader, kept or installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from strom.errors import Disconnected
from strom.model.bucket import BucketId
from strom.protocol.messages.replication import CopyBaseRequest, CopyBaseResponse, WireCopyFile
from strom.record.checksum import crc32c
from strom.runtime.tasks import InlineOffload, Tasks
from strom.server.replicas.base_copying import PIECE_BYTES, PIECES_AHEAD, BaseCopying, CopyRate
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


WHOLE = ["list", "ask a.log", "ask b.log", "keep a.log", "keep b.log", "install", "goes on", "release"]


def copied(scene: Any, disk: ForgettingDisk) -> None:
    """Copy what a scene offers, until nothing more happens."""

    async def main() -> None:
        tasks = Tasks()
        tablets = SimpleNamespace(folder_of_copy=lambda *_: "copies/b0")
        copying = BaseCopying(
            1, cast(Any, tablets), disk, cast(Any, scene), tasks, scene.ask, cast(Any, scene)
        )
        copying.begin(cast(Any, scene.following))
        await asyncio.sleep(60)
        assert not len(tasks)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await tasks.close()

    virtual.run(main())


@pytest.mark.parametrize(
    "stops", ["list", "ask a.log", "ask b.log", "keep a.log", "keep b.log", "install", "never"]
)
def test_when_the_role_ends_nothing_more_is_done(stops: str) -> None:
    scene = Scene(stops)
    copied(scene, scene.disk)
    upto = WHOLE if stops == "never" else WHOLE[: WHOLE.index(stops) + 1]
    assert [one for one in scene.done if one != "pay"] == upto
    if stops in ("never", "install"):
        assert scene.done.count("pay") == len(FILES)
        assert scene.disk.list("copies/b0") == sorted(FILES)


class LongScene(Scene):
    """A file of many pieces at a leader that answers the later ones first; notes how many are asked for at a time."""

    def __init__(self, fails: int = -1) -> None:
        super().__init__("never")
        self.content = bytes(range(256)) * (PIECE_BYTES // 256) * 9 + b"end"
        self.fails = fails
        self.asked = self.most = 0
        self.answered: list[int] = []

    async def ask(self, server_id: int, request: CopyBaseRequest) -> CopyBaseResponse:
        if request.file is None:
            listed = [WireCopyFile(name="a.log", size=len(self.content))]
            return CopyBaseResponse(leader_epoch=3, at=40, files=listed)
        assert request.position is not None
        number = request.position // PIECE_BYTES
        self.asked += 1
        self.most = max(self.most, self.asked)
        await asyncio.sleep(1.0 - 0.1 * (number % PIECES_AHEAD))
        self.asked -= 1
        self.answered.append(number)
        if number == self.fails:
            raise Disconnected("the leader is away")
        piece = self.content[request.position :][: request.max_bytes]
        return CopyBaseResponse(leader_epoch=3, at=40, content=piece, crc=crc32c(piece))


def test_a_few_pieces_are_asked_for_ahead_and_kept_in_order() -> None:
    scene = LongScene()
    copied(scene, scene.disk)
    assert scene.most == PIECES_AHEAD
    assert scene.disk.read_whole("copies/b0/a.log") == scene.content


def test_a_piece_that_fails_ends_those_that_were_asked_for_ahead() -> None:
    scene = LongScene(fails=5)
    copied(scene, scene.disk)
    assert max(scene.answered) < 5 + PIECES_AHEAD - 1
    assert scene.done[-1] == "goes on", "with what was there before"
    assert scene.disk.list("copies") == ["b0.copying"]


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
