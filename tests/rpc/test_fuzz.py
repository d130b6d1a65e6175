"""Whatever a client sends, however it comes in pieces, and however it leaves: no crash, no hang, nothing left behind.

A hostile client plays a list of acts against a listener on virtual time, while an honest one keeps calling.
Afterwards the honest one has had all its answers, every count is zero, and nothing unexpected was logged. The
streams in tests/corpus/frames are always played; ``make torture`` plays many more.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from protocol.any_message import any_message
from rpc.scene import Stranger, calling, exists, in_memory, listening, on_sockets, stranger
from strom.errors import TableNotFound
from strom.protocol.api_keys import APIS, DATABASE_EXISTS, LOG_APIS, PRODUCE_LOG, Api
from strom.protocol.frame import encode_request
from strom.protocol.message import Message
from strom.protocol.messages.databases import DatabaseExistsResponse
from strom.protocol.messages.log import LimitScanResponse
from strom.rpc.call import Call
from strom.rpc.limits import ListenerLimits
from strom.rpc.sasl import Sasl
from strom.runtime.world import World
from waiting import pause, until

CORPUS = sorted((Path(__file__).parents[1] / "corpus" / "frames").glob("*.hex"))
FRAME_BYTES_MAX = 1 << 20
LIMITS = ListenerLimits(
    frame_bytes_max=FRAME_BYTES_MAX,
    connection_inflight_bytes_max=300_000,
    inflight_bytes_max=700_000,
    calls_max=20,
    answer_bytes_high=50_000,
    answer_bytes_max=2_000_000,
    idle_timeout_s=60.0,
    frame_timeout_s=20.0,
    stall_timeout_s=20.0,
)


class Moody:
    """A handler that answers in every way there is, by turns; some answers come a few ``unit_s`` later."""

    def __init__(self, unit_s: float = 1.0) -> None:
        self.turn = 0
        self._unit_s = unit_s

    def __call__(self, call: Call) -> Any:
        if call.api is DATABASE_EXISTS and call.request.database_name == "honest":
            return DatabaseExistsResponse(exists=True)
        self.turn += 1
        moods = [
            self._at_once,
            self._later,
            self._future,
            self._refuse,
            self._fail,
            self._fail_later,
            self._large,
        ]
        return moods[self.turn % len(moods)](call)

    def failed(self, call: Call, error: BaseException) -> Message | None:
        return call.api.response() if call.api is PRODUCE_LOG and self.turn % 2 else None

    def _at_once(self, call: Call) -> Message:
        return _some_answer(call)

    async def _later(self, call: Call) -> Message:
        await pause(self.turn % 5 * self._unit_s)
        return _some_answer(call)

    def _future(self, call: Call) -> Any:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_later(
            self.turn % 3 * self._unit_s, lambda: future.done() or future.set_result(_some_answer(call))
        )
        return future

    def _refuse(self, call: Call) -> Message:
        raise TableNotFound("no")

    def _fail(self, call: Call) -> Message:
        raise ValueError("expected")

    async def _fail_later(self, call: Call) -> Message:
        await pause(self._unit_s)
        raise ValueError("expected")

    def _large(self, call: Call) -> Message:
        return LimitScanResponse(records=bytes(200_000))  # right for one call, wrong for the others


def _some_answer(call: Call) -> Message:
    return _smallest(call.api.response)


def _smallest(kind: type[Message]) -> Message:
    """A message with nothing but what it must have, and that zero or empty."""
    zero: dict[int, Any] = {0: 0, 1: 0, 2: False, 3: b"", 5: ""}
    required = {name: one for name, one in kind.fields.items() if name not in kind._defaults}
    return kind(
        **{
            name: zero[one.kind] if one.message is None else _smallest(one.message())
            for name, one in required.items()
        }
    )


# --- acts ----------------------------------------------------------------------------------------------------


def _head(length: int, key: int, version: int, request_id: int) -> bytes:
    return struct.pack(">ihhi", length, key, version, request_id)


@cache
def _requests_to(api: Api[Any, Any]) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda message, request_id: b"".join(encode_request(api.key, 0, request_id, message)),
        any_message(api.request, depth=3),
        st.integers(0, 2**31 - 1),
    )


requests = st.sampled_from(LOG_APIS).flatmap(_requests_to)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good request with a few bytes changed, cut out or put in."""
    body = bytearray(draw(requests))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(body) - 1)))
        change = draw(st.sampled_from(["flip", "cut", "insert"]))
        if change == "flip" and body:
            body[place] ^= 1 << draw(st.integers(0, 7))
        elif change == "cut":
            del body[place : place + draw(st.integers(1, 8))]
        else:
            body[place:place] = draw(st.binary(min_size=1, max_size=8))
    return bytes(body)


@st.composite
def right_length_wrong_body(draw: st.DrawFn) -> bytes:
    """A frame of the right form around a changed body: it gets past the frame reader."""
    body = draw(mutated())[12:]
    key = draw(st.sampled_from(sorted(APIS)) | st.integers(-(2**15), 2**15 - 1))
    return _head(8 + len(body), key, draw(st.integers(-1, 3)), draw(st.integers(-5, 2**31 - 1))) + body


heads = st.builds(
    _head,
    st.integers(-(2**31), 2**31 - 1) | st.integers(0, 100),
    st.sampled_from(sorted(APIS)),
    st.integers(-1, 3),
    st.integers(0, 10),
)

streams = st.one_of(requests, mutated(), right_length_wrong_body(), heads, st.binary(max_size=60))
acts = st.one_of(
    streams.map(lambda stream: ("send", stream)),
    streams.map(lambda stream: ("send", stream)),
    st.integers(10_000, 400_000).map(lambda size: ("send large", size)),
    st.sampled_from([0.0, 0.5, 5.0, 30.0]).map(lambda seconds: ("wait", seconds)),
    st.sampled_from([("stop reading", None), ("read again", None), ("end", None), ("abort", None)]),
)


async def _play(client: Stranger, hostile: list[tuple[str, Any]]) -> None:
    for act, detail in hostile:
        if act == "wait":
            await asyncio.sleep(detail)
        if client.lost or client.transport.is_closing():
            return
        if act == "send":
            client.send(detail)
        elif act == "send large":
            client.send(_head(8 + detail, PRODUCE_LOG.key, 0, 1), bytes(detail))
        elif act == "stop reading":
            client.transport.pause_reading()
        elif act == "read again":
            client.transport.resume_reading()
        elif act == "end":
            client.transport.write_eof()
            break
        elif act == "abort":
            client.transport.abort()
    await asyncio.sleep(2.0)


def _faults(
    hostile: list[tuple[str, Any]], *, seed: int | None = None, authentication: Sasl | None = None
) -> list[str]:
    """What was logged or raised unexpectedly. The honest client has to be answered meanwhile, within bounds."""
    faults: list[str] = []

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            if not (isinstance(error, ValueError) and str(error) == "expected") and not isinstance(
                error, AssertionError
            ):
                faults.append(record.getMessage() + repr(error))

    async def main(world: World) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: faults.append(repr(context)))
        most = 0
        options = {"limits": LIMITS, "authentication": authentication}
        async with listening(world, Moody(), **options) as listener:
            budget = listener._service.budget
            login = {"user": "admin", "password": "secret"} if authentication else {}
            async with calling(world, listener, **login) as honest, stranger(world, listener) as client:
                playing = asyncio.ensure_future(_play(client, hostile))
                while not playing.done():
                    most = max(most, budget.used)
                    assert (await honest.call(DATABASE_EXISTS, exists("honest"), timeout_s=200.0)).exists
                    await asyncio.sleep(1.0)
                await playing
            await until(lambda: budget.used == 0, within_s=1000)
        # One frame may pass the budget when nothing else is in flight, and unsent answers have a bound of their own.
        bound = LIMITS.inflight_bytes_max + FRAME_BYTES_MAX + LIMITS.answer_bytes_max + 200_000
        assert most <= bound

    watch = Watch(logging.ERROR)
    logger = logging.getLogger("strom.rpc")
    logger.addHandler(watch)
    logger.propagate = False
    try:
        in_memory(main, seed=seed)
    finally:
        logger.removeHandler(watch)
        logger.propagate = True
    return faults


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_every_stream_of_the_corpus_is_survived(path: Path) -> None:
    stream = [("send", bytes.fromhex(line)) for line in path.read_text().splitlines()]
    assert _faults(stream) == []
    assert _faults([*stream, ("wait", 30.0)], seed=1) == []
    assert _faults([*stream, ("abort", None)], authentication=Sasl({"admin": "secret"})) == []


@pytest.mark.parametrize("plain", [False, True], ids=["uvloop", "asyncio"])
def test_the_corpus_is_survived_on_real_sockets(plain: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        async with (
            listening(world, Moody(0.02), limits=LIMITS) as listener,
            calling(world, listener) as honest,
        ):
            for path in CORPUS:
                async with stranger(world, listener) as client:
                    client.send(*(bytes.fromhex(line) for line in path.read_text().splitlines()))
                    assert (await honest.call(DATABASE_EXISTS, exists("honest"))).exists
            await until(lambda: listener.statistics().connections == 1)
            await until(
                lambda: listener._service.budget.used == 0
            )  # calls go on when their connection is lost

    caplog.set_level(logging.CRITICAL)
    on_sockets(main, plain=plain)


HOSTILE = st.lists(acts, max_size=15)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hostile=HOSTILE, seed=st.integers(0, 1000))
def test_a_hostile_client_is_survived(hostile: list[tuple[str, Any]], seed: int) -> None:
    assert _faults(hostile, seed=seed) == []


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(hostile=HOSTILE, seed=st.integers(0, 1000))
def test_a_hostile_client_is_survived_before_its_login(hostile: list[tuple[str, Any]], seed: int) -> None:
    assert _faults(hostile, seed=seed, authentication=Sasl({"admin": "secret"})) == []


@pytest.mark.torture
@pytest.mark.timeout(3600)
@settings(
    max_examples=20_000,
    deadline=None,
    phases=[Phase.generate, Phase.target, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(hostile=st.lists(acts, max_size=60), seed=st.integers(0, 2**31), login=st.booleans())
def test_many_hostile_clients_are_survived(hostile: list[tuple[str, Any]], seed: int, login: bool) -> None:
    assert _faults(hostile, seed=seed, authentication=Sasl({"admin": "secret"}) if login else None) == []
