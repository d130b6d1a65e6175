"""Who does not hear of the metadata for long knows it, in time, and hears when it is over."""

from __future__ import annotations

import asyncio
import logging

import pytest

from strom.server.membership.metadata_contact import MetadataContact
from strom.testing import loop as virtual

TIMEOUT_S = 6.0


class Store:
    """Answers until a test says otherwise."""

    def __init__(self) -> None:
        self.silent_since: float | None = None

    def stop(self) -> None:
        self.silent_since = asyncio.get_running_loop().time()

    def answer(self) -> None:
        self.silent_since = None

    def silent_s(self) -> float:
        return 0.0 if self.silent_since is None else asyncio.get_running_loop().time() - self.silent_since


async def followed(store: Store) -> tuple[MetadataContact, list[tuple[float, bool]], asyncio.Future[None]]:
    contact = MetadataContact(store.silent_s, TIMEOUT_S)
    told: list[tuple[float, bool]] = []
    contact.on_change.append(lambda: told.append((round(asyncio.get_running_loop().time(), 1), contact.lost)))
    return contact, told, asyncio.ensure_future(contact.run())


def test_contact_is_lost_after_the_time_and_back_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = Store()
        contact, told, running = await followed(store)
        await asyncio.sleep(100.0)
        assert told == []
        store.stop()
        await asyncio.sleep(5.9)
        assert not contact.lost
        await asyncio.sleep(10.0)
        assert contact.lost
        store.answer()
        await asyncio.sleep(0.2)
        assert not contact.lost
        assert [lost for _, lost in told] == [True, False]
        assert 106.0 <= told[0][0] <= 106.1
        running.cancel()

    caplog.set_level(logging.INFO)
    virtual.run(main())
    assert "others may have taken over" in caplog.text
    assert "the metadata answers again" in caplog.text


def test_a_short_silence_is_nothing() -> None:
    async def main() -> None:
        store = Store()
        _, told, running = await followed(store)
        for _ in range(20):
            store.stop()
            await asyncio.sleep(5.5)
            store.answer()
            await asyncio.sleep(0.5)
        assert told == []
        running.cancel()

    virtual.run(main())


def test_whoever_asks_right_after_a_pause_is_told_before_the_next_look() -> None:
    async def main() -> None:
        store = Store()
        contact, told, running = await followed(store)
        await asyncio.sleep(1.0)
        store.stop()
        asyncio.get_running_loop()._now += 30.0  # type: ignore[attr-defined]
        assert contact.lost
        assert told == []
        running.cancel()

    virtual.run(main())
