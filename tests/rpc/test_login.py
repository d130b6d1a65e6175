"""SASL/PLAIN: nothing but the login is answered before it, and every failure looks the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rpc.scene import calling, everywhere, exists, in_memory, listening, stranger, until, yes
from strom.errors import AuthenticationFailed, SecurityDisabled
from strom.protocol.api_keys import API_VERSIONS, AUTHENTICATE, DATABASE_EXISTS
from strom.protocol.message import Message
from strom.protocol.messages.connection import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    AuthenticateRequest,
    AuthenticateResponse,
)
from strom.protocol.messages.databases import DatabaseExistsResponse
from strom.rpc.call import Call
from strom.rpc.limits import Limits
from strom.rpc.sasl import Sasl, plain_token
from strom.runtime.world import World

Play = Any
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
        limits = Limits(frame_bytes_max=1_000_000, frame_bytes_max_before_login=1_000)
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


@pytest.mark.parametrize(
    "token", [b"", b"\0", b"admin", b"\0admin\0admin-secret\0", b"other\0admin\0admin-secret"]
)
def test_a_token_of_another_form_is_refused(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        USERS.login("PLAIN", token)


def test_a_user_may_name_himself_as_the_one_to_act_as() -> None:
    assert USERS.login("plain", b"admin\0admin\0admin-secret") == "admin"
