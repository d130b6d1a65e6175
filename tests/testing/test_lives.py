"""A process of a simulation that died does nothing more: no look at the disk, no change, no task."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from strom.testing import loop as virtual
from strom.testing.disk import ForgettingDisk
from strom.testing.mortal import Killed, Life, MortalFile, MortalFiles, watch_tasks

ASKED: dict[str, tuple[Any, ...]] = {
    "open": ("/data/a",),
    "exists": ("/data/a",),
    "is_folder": ("/data",),
    "size": ("/data/a",),
    "identity": ("/data/a",),
    "make_folder": ("/data/more",),
    "remove": ("/data/a",),
    "remove_tree": ("/data",),
    "rename": ("/data/a", "/data/b"),
    "sync_folder": ("/data",),
    "read_whole": ("/data/a",),
    "map": ("/data/a",),
    "write_whole": ("/data/a", b"new"),
    "write_whole_if_absent": ("/data/b", b"new"),
    "narrow": ("/data/a",),
    "free_bytes": ("/data",),
    "lock": ("/data/lock",),
    "list": ("/data",),
}

ASKED_OF_A_FILE: dict[str, tuple[Any, ...]] = {
    "size": (),
    "read_at": (0, 1),
    "read_into": (0, [memoryview(bytearray(1))]),
    "append": ([b"more"],),
    "truncate": (0,),
    "sync": (),
}


class Unseen:
    """Nobody may be told of a change."""

    def __getattr__(self, name: str) -> Any:
        pytest.fail(f"a dead process was seen to do {name}")


def at_its_end() -> tuple[ForgettingDisk, Life, MortalFiles, MortalFile]:
    disk, life = ForgettingDisk(), Life("server")
    disk.make_folder("/data")
    disk.write_whole("/data/a", b"content")
    files = MortalFiles(life, disk, Unseen())
    return disk, life, files, files.open("/data/a")


def calls_of(kind: type) -> set[str]:
    return {name for name, one in vars(kind).items() if inspect.isfunction(one) and not name.startswith("_")}


def test_every_call_is_tried() -> None:
    assert calls_of(MortalFiles) == ASKED.keys()
    assert calls_of(MortalFile) - {"close"} == ASKED_OF_A_FILE.keys()


@pytest.mark.parametrize("call", ASKED)
def test_a_dead_process_neither_sees_nor_changes_its_disk(call: str) -> None:
    disk, life, files, _ = at_its_end()
    before = len(disk.trace)
    life.die()
    with pytest.raises(Killed, match="server"):
        getattr(files, call)(*ASKED[call])
    assert len(disk.trace) == before
    assert disk.read_whole("/data/a") == b"content"


@pytest.mark.parametrize("call", ASKED_OF_A_FILE)
def test_a_dead_process_has_no_use_of_its_open_files(call: str) -> None:
    disk, life, _, file = at_its_end()
    before = len(disk.trace)
    life.die()
    with pytest.raises(Killed):
        getattr(file, call)(*ASKED_OF_A_FILE[call])
    assert len(disk.trace) == before


def test_a_process_dies_in_place_of_the_change_that_was_chosen() -> None:
    disk, life, _, file = at_its_end()
    told: list[str] = []
    life.on_death.append(lambda: told.append("dead"))
    quiet = MortalFiles(life, disk, type("Quiet", (), {"replaced": lambda *_: None})())
    life.die_after(2)
    quiet.write_whole("/data/b", b"1")
    assert file.size() == 7, "a look is no change"
    quiet.write_whole("/data/b", b"2")
    with pytest.raises(Killed):
        quiet.write_whole("/data/b", b"3")
    assert (life.dead, told, disk.read_whole("/data/b")) == (True, ["dead"], b"2")
    life.die()
    assert told == ["dead"], "nobody dies twice"


def test_tasks_end_with_their_process_also_those_begun_afterwards() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        watch_tasks(loop)
        life, other = Life("one"), Life("other")
        stays = other.spawn(asyncio.sleep(1, "there"), "stays")
        goes = life.spawn(asyncio.sleep(1), "goes")
        life.die()
        late = life.spawn(asyncio.sleep(1), "late")
        done, _ = await asyncio.wait([stays, goes, late])
        assert len(done) == 3
        assert (goes.cancelled(), late.cancelled(), stays.result()) == (True, True, "there")

    virtual.run(main())
