"""Readers hold what they read, until their deadline."""

from __future__ import annotations

from remote.test_chain_leader import NAMES, extend, leader
from strom.remote.reader_pins import ReaderPins
from strom.remote.remote_chain import ChainHead, RemoteChain
from strom.runtime.files import Bytes
from strom.testing import loop
from strom.testing.objects import MemoryObjects


async def three_segments(objects: MemoryObjects) -> tuple[RemoteChain, list[str]]:
    """A chain of them, and their names."""
    one = leader(objects, 1)
    for until in (10, 20, 30):
        await extend(one, until)
    return RemoteChain(objects, NAMES), [segment.name for segment in one.manifest.segments]


def test_a_pinned_manifest_holds_its_segments_until_the_deadline_or_the_release() -> None:
    async def main() -> None:
        objects = MemoryObjects()
        chain, names = await three_segments(objects)
        pins = ReaderPins(chain)
        head = await pins.pin("reader", deadline_ms=1000)
        assert [segment.name for segment in head.manifest.segments] == names
        later = leader(objects, 2, "b")
        await later.claim()
        await later.retire(20, now_ms=0)
        gone = frozenset(segment.name for segment in later.manifest.retired)
        assert gone == set(names[:2])
        assert await pins.held(gone, now_ms=999) == gone
        await later.remove_retired(999, grace_ms=10, held=await pins.held(gone, now_ms=999))
        assert len(await objects.list(NAMES.segments)) == 3
        assert await pins.held(gone, now_ms=1000) == frozenset()
        assert await objects.list(f"{NAMES.folder}/p/") == [], "a pin that is over is removed"
        await pins.pin("reader", deadline_ms=5000)
        assert await pins.held(gone, now_ms=2000) == frozenset(), "the newest manifest does not name them"
        await pins.release("reader")
        await later.remove_retired(2000, grace_ms=10, held=await pins.held(gone, now_ms=2000))
        assert [one.key for one in await objects.list(NAMES.segments)] == [NAMES.segment(names[2])]

    loop.run(main())


class Interrupted(MemoryObjects):
    """Just before the first pin is stored, the chain goes on."""

    goes_on = True

    async def put(self, key: str, content: Bytes) -> None:
        if "/p/" in key and self.goes_on:
            self.goes_on = False
            later = leader(self, 2, "b")
            await later.claim()
            await later.retire(20, now_ms=0)
        await super().put(key, content)


def test_a_chain_that_went_on_before_the_pin_was_stored_is_pinned_anew() -> None:
    async def main() -> tuple[ChainHead, ChainHead, int]:
        objects = Interrupted()
        chain, _ = await three_segments(objects)
        head = await ReaderPins(chain).pin("reader", deadline_ms=1000)
        return head, await chain.head(), len(head.manifest.segments)

    pinned, newest, segments = loop.run(main())
    assert pinned == newest
    assert segments == 1


def test_a_pin_that_cannot_be_read_or_whose_manifest_is_gone_holds_everything() -> None:
    async def main() -> tuple[frozenset[str], frozenset[str]]:
        objects = MemoryObjects()
        chain, names = await three_segments(objects)
        pins = ReaderPins(chain)
        await objects.put(f"{NAMES.folder}/p/broken", b"{")
        broken = await pins.held(frozenset(names[:1]), now_ms=0)
        await pins.release("broken")
        await pins.pin("old", deadline_ms=10)
        await objects.delete([NAMES.manifest((await chain.head()).number)])
        return broken, await pins.held(frozenset(names[:1]), now_ms=0)

    broken, gone = loop.run(main())
    assert len(broken) == len(gone) == 1
