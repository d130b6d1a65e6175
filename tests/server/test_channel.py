"""The pipe between a server and its tablet servers: questions, answers, and the end of either side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from strom.errors import Disconnected, StromError
from strom.server.process.channel import Channel, Facts


class Pipe:
    """Two channels that write into each other's readers."""

    def __init__(self, answer: Callable[[str, dict[str, Any]], Awaitable[Facts]]) -> None:
        self.left_in, self.right_in = asyncio.StreamReader(), asyncio.StreamReader()
        self.left = Channel(self.left_in, Writing(self.right_in), answer)
        self.right = Channel(self.right_in, Writing(self.left_in), answer)
        self.running = [asyncio.ensure_future(self.left.run()), asyncio.ensure_future(self.right.run())]

    async def close(self) -> None:
        for reader in (self.left_in, self.right_in):
            if not reader.at_eof():
                reader.feed_eof()
        await asyncio.gather(*self.running)


class Writing:
    def __init__(self, target: asyncio.StreamReader) -> None:
        self._target = target

    def write(self, data: bytes) -> None:
        self._target.feed_data(data)


async def echo(question: str, facts: dict[str, Any]) -> Facts:
    if question == "fail":
        raise ValueError("no such thing")
    if question == "hang":
        await asyncio.get_running_loop().create_future()
    return {"question": question, **facts}


def run(talk: Callable[[Pipe], Awaitable[None]]) -> None:
    async def main() -> None:
        pipe = Pipe(echo)
        try:
            await asyncio.wait_for(talk(pipe), 10)
        finally:
            await pipe.close()

    asyncio.run(main())


def test_both_sides_ask_and_answer_at_once() -> None:
    async def talk(pipe: Pipe) -> None:
        answers = await asyncio.gather(
            *(side.ask("number", {"n": n}) for n, side in enumerate([pipe.left, pipe.right] * 20))
        )
        assert [answer["n"] for answer in answers] == list(range(40))

    run(talk)


def test_a_failing_answer_fails_only_its_question() -> None:
    async def talk(pipe: Pipe) -> None:
        with pytest.raises(StromError, match="no such thing"):
            await pipe.left.ask("fail")
        assert (await pipe.left.ask("fine"))["question"] == "fine"

    run(talk)


def test_a_question_that_is_not_answered_times_out() -> None:
    async def talk(pipe: Pipe) -> None:
        with pytest.raises(Disconnected, match="did not answer"):
            await pipe.left.ask("hang", timeout_s=0.02)

    run(talk)


def test_the_end_of_the_other_side_ends_every_question() -> None:
    async def talk(pipe: Pipe) -> None:
        asked = asyncio.ensure_future(pipe.left.ask("hang"))
        await asyncio.sleep(0)
        pipe.left_in.feed_eof()
        with pytest.raises(Disconnected, match="gone"):
            await asked
        with pytest.raises(Disconnected, match="gone"):
            await pipe.left.ask("anything")

    run(talk)
