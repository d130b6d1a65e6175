"""SASL/PLAIN: nothing but the login is answered before it, and every failure looks the same."""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import Any, ClassVar

import pytest

from rpc.scene import (
    Stranger,
    calling,
    everywhere,
    exists,
    in_memory,
    listening,
    on_sockets,
    stranger,
    yes,
)
from strom.errors import AuthenticationFailed, SecurityDisabled
from strom.protocol.api_keys import API_VERSIONS, APIS, AUTHENTICATE, DATABASE_EXISTS
from strom.protocol.frame import encode_response
from strom.protocol.message import Message
from strom.protocol.messages.connection import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    AuthenticateRequest,
    AuthenticateResponse,
)
from strom.protocol.messages.databases import DatabaseExistsResponse
from strom.rpc.call import Call
from strom.rpc.limits import ListenerLimits
from strom.rpc.login_delays import (
    ADDRESS_FREE,
    ADDRESS_LONGEST_S,
    FIRST_S,
    FORGET_S,
    LINES_PER_ADDRESS,
    LINES_PER_USER,
    LONGEST_S,
    REMEMBERED_MAX,
    LoginDelays,
)
from strom.rpc.sasl import Sasl, plain_token
from strom.runtime.metrics import Metrics
from strom.runtime.world import World
from waiting import until

Play = Any
LOGIN_KEYS = {API_VERSIONS.key, AUTHENTICATE.key}
USERS = Sasl({"admin": "admin-secret", "älice": "pässword"})


def token(user: str, password: str, mechanism: str = "PLAIN") -> AuthenticateRequest:
    return AuthenticateRequest(protocol=mechanism, token=plain_token(user, password))


@everywhere
def test_who_knows_the_password_may_call(play: Play) -> None:
    async def main(world: World) -> None:
        seen: list[str | None] = []

        def handler(call: Call) -> Message:
            seen.append(call.principal)
            return yes(call)

        async with listening(world, handler, authentication=USERS) as listener:
            for user, password in (("admin", "admin-secret"), ("älice", "pässword")):
                async with calling(world, listener, user=user, password=password) as caller:
                    assert (await caller.call(DATABASE_EXISTS, exists())).exists
            assert seen == ["admin", "älice"]

    play(main)


@pytest.mark.parametrize(
    ("user", "password"),
    [("admin", "wrong"), ("nobody", "admin-secret"), ("admin", ""), ("", ""), ("admin", "admin-secret\0x")],
)
def test_who_does_not_know_it_may_not(user: str, password: str) -> None:
    async def main(world: World) -> None:
        async with listening(world, yes, authentication=USERS) as listener:
            with pytest.raises(AuthenticationFailed):
                async with calling(world, listener, user=user, password=password):
                    pass
            await until(lambda: listener.statistics().connections == 0)

    in_memory(main)


@everywhere
def test_before_the_login_nothing_else_is_answered(play: Play) -> None:
    async def main(world: World) -> None:
        async with (
            listening(world, yes, authentication=USERS) as listener,
            stranger(world, listener) as client,
        ):
            client.ask(0, DATABASE_EXISTS, exists())
            assert await client.error(0) == 46
            hello = ApiVersionsRequest(client_software_name="x", client_software_version="1")
            client.ask(1, API_VERSIONS, hello)
            assert (await client.answer(1, ApiVersionsResponse)).api_versions
            client.ask(2, AUTHENTICATE, token("admin", "wrong"))
            assert await client.error(2) == 46
            client.ask(3, AUTHENTICATE, token("admin", "admin-secret", mechanism="SCRAM"))
            assert await client.error(3) == 46
            client.ask(4, AUTHENTICATE, token("admin", "admin-secret"))
            assert await client.answer(4, AuthenticateResponse) == AuthenticateResponse()
            client.ask(5, DATABASE_EXISTS, exists())
            assert (await client.answer(5, DatabaseExistsResponse)).exists

    play(main)


def test_a_failed_login_ends_the_one_before() -> None:
    async def main(world: World) -> None:
        async with (
            listening(world, yes, authentication=USERS) as listener,
            stranger(world, listener) as client,
        ):
            client.ask(0, AUTHENTICATE, token("admin", "admin-secret"))
            await client.answer(0, AuthenticateResponse)
            client.ask(1, AUTHENTICATE, token("admin", "wrong"))
            assert await client.error(1) == 46
            client.ask(2, DATABASE_EXISTS, exists())
            assert await client.error(2) == 46

    in_memory(main)


def test_guessing_ends_the_connection() -> None:
    async def main(world: World) -> None:
        async with (
            listening(world, yes, authentication=USERS) as listener,
            stranger(world, listener) as client,
        ):
            for guess in range(3):
                client.ask(guess, AUTHENTICATE, token("admin", str(guess)))
                assert await client.error(guess) == 46
            client.ask(9, AUTHENTICATE, token("admin", "admin-secret"))
            await client.is_dropped()
            assert 9 not in client.answers

    in_memory(main)


def test_a_listener_without_authentication_refuses_a_login() -> None:
    async def main(world: World) -> None:
        async with listening(world, yes) as listener:
            with pytest.raises(SecurityDisabled):
                async with calling(world, listener, user="admin", password="admin-secret"):
                    pass
            async with stranger(world, listener) as client:
                client.ask(0, AUTHENTICATE, token("admin", "x"))
                assert await client.error(0) == 47

    in_memory(main)


def test_frames_are_small_before_the_login() -> None:
    async def main(world: World) -> None:
        limits = ListenerLimits(frame_bytes_max=1_000_000, frame_bytes_max_before_login=1_000)
        async with listening(world, yes, authentication=USERS, limits=limits) as listener:
            async with stranger(world, listener) as client:
                client.ask(0, AUTHENTICATE, token("admin", "x" * 2_000))
                assert await client.error(0) == 13
                await client.is_dropped()
            async with stranger(world, listener) as client:
                client.ask(0, AUTHENTICATE, token("admin", "admin-secret"))
                await client.answer(0, AuthenticateResponse)
                client.ask(1, DATABASE_EXISTS, exists("x" * 500_000))
                assert (await client.answer(1, DatabaseExistsResponse)).exists

    in_memory(main)


def test_who_does_not_log_in_in_time_is_dropped() -> None:
    async def main(world: World) -> None:
        async with (
            listening(world, yes, authentication=USERS) as listener,
            stranger(world, listener) as client,
        ):
            hello = ApiVersionsRequest(client_software_name="x", client_software_version="1")
            while not client.lost:
                client.ask(1, API_VERSIONS, hello)
                await asyncio.sleep(1.0)
            assert 10 <= asyncio.get_running_loop().time() < 15

    in_memory(main)


@pytest.mark.parametrize("token", [b"", b"\0", b"admin", b"\0admin\0admin-secret\0"])
def test_a_token_of_another_form_is_refused(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="a user and a password after a NUL each"):
        USERS.login("PLAIN", token)


def test_nobody_acts_as_somebody_else() -> None:
    with pytest.raises(AuthenticationFailed, match="is wrong"):
        USERS.login("PLAIN", b"other\0admin\0admin-secret")


def test_a_user_may_name_himself_as_the_one_to_act_as() -> None:
    assert USERS.login("plain", b"admin\0admin\0admin-secret") == "admin"


# --- before the login ----------------------------------------------------------------------------------------


@everywhere
def test_every_call_there_is_is_refused_before_the_login(play: Play) -> None:
    """Also those that a handler answers on a short way of its own, and keys that nobody knows."""

    async def main(world: World) -> None:
        reached: list[int] = []

        class Everything:
            """Answers whatever gets through, on both ways."""

            at_once: ClassVar[dict[int, Any]] = {}

            def __call__(self, call: Call) -> Message:
                reached.append(call.api.key)
                return yes(call)

        def short(key: int) -> Any:
            def answer(frame: Any, request_id: int) -> list[bytes]:
                reached.append(key)
                return encode_response(request_id, DatabaseExistsResponse(exists=True))  # type: ignore[return-value]

            return answer

        Everything.at_once = {key: short(key) for key in APIS if key not in LOGIN_KEYS}
        offered = list(APIS.values())
        async with listening(world, Everything(), authentication=USERS, apis=offered) as listener:
            async with stranger(world, listener) as client:
                keys = sorted({*APIS, 4711, 0, -1, 32767} - LOGIN_KEYS)
                for number, key in enumerate(keys):
                    client.send(struct.pack(">ihhi", 8, key, 0, number))
                assert [await client.error(number) for number in range(len(keys))] == [46] * len(keys)
            assert reached == []
            async with calling(world, listener, user="admin", password="admin-secret") as caller:
                assert (await caller.call(DATABASE_EXISTS, exists())).exists
            assert reached == [DATABASE_EXISTS.key], "after it, the short way is taken"

    play(main)


# --- failed logins -------------------------------------------------------------------------------------------


def test_a_failed_login_is_logged_with_user_and_address(caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        metrics = Metrics()
        sasl = Sasl({"admin": "admin-secret"})
        async with listening(world, yes, authentication=sasl, metrics=metrics) as listener:
            for user in ("admin", "line\nbreak", "x" * 5000):
                async with stranger(world, listener) as client:
                    client.ask(0, AUTHENTICATE, token(user, "wrong"))
                    assert await client.error(0) == 46
            lines = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
            assert len(lines) == 3
            assert "'admin' from 127.0.0.1 on listener CLIENT" in lines[0]
            assert "\n" not in lines[1]
            assert len(lines[2]) < 300
            assert "wrong" not in "".join(lines), "no password is ever logged"
            counted = {one["name"]: one["value"] for one in metrics.samples()}
            assert counted["strom_rpc_logins_failed_total"] == 3

    with caplog.at_level(logging.WARNING, logger="strom.rpc"):
        on_sockets(main)


def test_a_flood_of_logins_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        sasl = Sasl({"admin": "admin-secret"})
        limits = ListenerLimits(login_attempts_max=10_000)
        async with listening(world, yes, authentication=sasl, limits=limits) as listener:
            for number in range(1000):
                async with stranger(world, listener) as client:
                    client.ask(0, AUTHENTICATE, token(f"user-{number}", "wrong"))
                    await client.error(0)
        assert 100 <= len(caplog.records) < 120
        assert "1 from there" in caplog.records[0].getMessage()

    with caplog.at_level(logging.WARNING, logger="strom.rpc"):
        in_memory(main)


def test_guessing_gets_slower_and_slower_and_is_forgotten() -> None:
    async def main(world: World) -> None:
        loop = asyncio.get_running_loop()
        sasl = Sasl({"admin": "admin-secret", "alice": "alices"})

        async def seconds(user: str, password: str, host: str = "127.0.0.1") -> float:
            network = world.network.at(host)  # type: ignore[attr-defined]
            _, client = await network.connect("127.0.0.1", listener.port, Stranger)
            began = loop.time()
            client.ask(0, AUTHENTICATE, token(user, password))
            await until(lambda: 0 in client.answers)
            assert client.answers[0][0] == (password in ("admin-secret", "alices"))
            client.transport.abort()
            return loop.time() - began

        async with listening(world, yes, authentication=sasl) as listener:
            taken = [await seconds("admin", "wrong") for _ in range(9)]
            assert taken[0] < 0.05, "the first mistake is free"
            assert taken == sorted(taken)
            assert 3.0 < taken[-1] < 6.0, "the last one is not, and there is an end to it"
            assert await seconds("admin", "wrong", host="elsewhere") < 0.05, "others do not wait for it"
            assert await seconds("alice", "alices") < 0.05, "nor does another user at the same address"
            assert 3.0 < await seconds("admin", "admin-secret") < 6.0, "the right password waits as long"
            assert await seconds("admin", "admin-secret") < 0.05, "and is forgiven then"
            for number in range(20):
                await seconds(f"user-{number}", "wrong")
            assert 0.5 < await seconds("alice", "alices") < 1.5, "an address that tries everybody is slowed"
            assert 0.5 < await seconds("alice", "alices") < 1.5, (
                "and stays so, though one of its logins was right"
            )
            await asyncio.sleep(61.0)
            assert await seconds("alice", "alices") < 0.05

    in_memory(main)


def test_one_connection_guesses_one_at_a_time_and_others_are_served_meanwhile() -> None:
    async def main(world: World) -> None:
        sasl = Sasl({"admin": "admin-secret"})
        async with (
            listening(world, yes, authentication=sasl) as listener,
            stranger(world, listener) as client,
            stranger(world, listener) as second,
            calling(world, listener, user="admin", password="admin-secret") as known,
        ):
            client.ask(0, AUTHENTICATE, token("admin", "a"))
            assert await client.error(0) == 46
            second.ask(0, AUTHENTICATE, token("admin", "b"))
            second.ask(1, AUTHENTICATE, token("admin", "admin-secret"))
            second.ask(2, DATABASE_EXISTS, exists())
            assert await second.error(1) == 46, "the first is still waiting for its answer"
            assert await second.error(2) == 46
            assert (await known.call(DATABASE_EXISTS, exists())).exists
            assert 0 not in second.answers
            assert await second.error(0) == 46

    in_memory(main)


def test_who_goes_on_guessing_while_an_answer_waits_is_dropped() -> None:
    async def main(world: World) -> None:
        sasl = Sasl({"admin": "admin-secret"})
        async with (
            listening(world, yes, authentication=sasl) as listener,
            stranger(world, listener) as client,
            stranger(world, listener) as second,
        ):
            client.ask(0, AUTHENTICATE, token("admin", "a"))
            assert await client.error(0) == 46
            began = asyncio.get_running_loop().time()
            for number in range(4):  # the first waits; each of the others counts as one that failed
                second.ask(number, AUTHENTICATE, token("admin", str(number)))
            for number in range(1, 4):
                assert await second.error(number) == 46
            await second.is_dropped()
            assert asyncio.get_running_loop().time() - began < 5, "long before its time to log in was over"

    in_memory(main)


def test_who_logs_in_anew_is_nobody_until_that_is_answered() -> None:
    async def main(world: World) -> None:
        sasl = Sasl({"admin": "admin-secret", "alice": "alices"})
        seen: list[str | None] = []

        def handler(call: Call) -> Message:
            seen.append(call.principal)
            return yes(call)

        async with (
            listening(world, handler, authentication=sasl) as listener,
            stranger(world, listener) as other,
            stranger(world, listener) as client,
        ):
            other.ask(0, AUTHENTICATE, token("alice", "wrong"))
            assert await other.error(0) == 46, "from now on a login as alice waits for its answer"
            client.ask(0, AUTHENTICATE, token("admin", "admin-secret"))
            await until(lambda: 0 in client.answers)
            client.ask(1, AUTHENTICATE, token("alice", "alices"))
            client.ask(2, DATABASE_EXISTS, exists())
            assert await client.error(2) == 46, "no longer admin, and not yet alice"
            assert 1 not in client.answers
            await until(lambda: 1 in client.answers)
            client.ask(3, DATABASE_EXISTS, exists())
            await until(lambda: 3 in client.answers)
            client.ask(4, AUTHENTICATE, token("admin", "wrong"))
            assert await client.error(4) == 46
            client.ask(5, DATABASE_EXISTS, exists())
            assert await client.error(5) == 46, "a login that failed takes away the one before"
            assert seen == ["alice"]

    in_memory(main)


def test_an_address_has_a_few_failures_of_many_users_free() -> None:
    delays = LoginDelays()
    for number in range(ADDRESS_FREE):
        delays.failed("here", b"user-%d" % number, 0.0)
    assert delays.delay_s("here", b"another", 0.0) == 0.0
    delays.failed("here", b"one more", 0.0)
    assert delays.delay_s("here", b"another", 0.0) == FIRST_S
    assert delays.delay_s("elsewhere", b"another", 0.0) == 0.0
    for number in range(100):
        delays.failed("here", b"user-%d" % number, 0.0)
    assert delays.delay_s("here", b"another", 0.0) == ADDRESS_LONGEST_S, "others may come from there"
    for _ in range(100):
        delays.failed("here", b"admin", 0.0)
    assert delays.delay_s("here", b"admin", 0.0) == LONGEST_S
    delays.succeeded("here", b"admin")
    assert delays.delay_s("here", b"admin", 0.0) == ADDRESS_LONGEST_S
    assert delays.delay_s("here", b"admin", FORGET_S - 0.1) == ADDRESS_LONGEST_S
    assert delays.delay_s("here", b"admin", FORGET_S) == 0.0


def test_what_is_remembered_of_failures_is_bounded() -> None:
    delays = LoginDelays()
    for number in range(2 * REMEMBERED_MAX):
        delays.failed(f"address-{number}", b"admin", 0.0)
    assert len(delays) == REMEMBERED_MAX
    assert delays.delay_s("address-0", b"admin", 1.0) == 0.0
    assert delays.delay_s(f"address-{2 * REMEMBERED_MAX - 1}", b"admin", 1.0) > 0.0


def test_the_first_failures_of_every_user_are_logged_and_of_a_flood_each_that_doubles_it() -> None:
    delays = LoginDelays()
    told = [number for number in range(1, 1025) if delays.failed("here", b"admin", 0.0) == (number, True)]
    assert told == [*range(1, LINES_PER_USER + 1), *(2**power for power in range(2, 11))]
    assert delays.failed("elsewhere", b"admin", 0.0) == (1, True)
    delays = LoginDelays()
    told = [number for number in range(1, 600) if delays.failed("here", b"user-%d" % number, 0.0)[1]]
    assert told == [*range(1, LINES_PER_ADDRESS + 1), 128, 256, 512], "each user's first, up to a bound"
