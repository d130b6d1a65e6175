"""The login of servers at each other: both prove to know the secret, nobody sends it, and no proof is good twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rpc.scene import exists, in_memory, listening, silenced, stranger, yes
from strom.errors import AuthenticationFailed
from strom.protocol.api_keys import AUTHENTICATE, DATABASE_EXISTS
from strom.protocol.error_codes import code_of
from strom.protocol.messages.connection import AuthenticateRequest, AuthenticateResponse
from strom.rpc.caller import Caller
from strom.rpc.sasl import Challenge
from strom.rpc.shared_secret import MECHANISM, NONCE_BYTES, SharedSecret, prove_secret
from strom.runtime.world import World
from strom.testing.random import SeededRandomness

SECRET = "of this cluster"


def listener_side(seed: int = 1, secret: str = SECRET) -> SharedSecret:
    return SharedSecret(secret, SeededRandomness(seed))


class Wire:
    """A caller whose listener is an object; writes down every byte that would go over the network."""

    def __init__(self, other: SharedSecret) -> None:
        self._steps = other.begin()
        self.sent: list[bytes] = []
        self.received: list[bytes] = []

    async def call(self, api: Any, request: AuthenticateRequest, *, timeout_s: float) -> AuthenticateResponse:
        self.sent.append(bytes(request.token))
        outcome = self._steps.login(request.protocol, request.token)
        if isinstance(outcome, Challenge):
            self.received.append(outcome.content)
            return AuthenticateResponse(challenge=outcome.content)
        return AuthenticateResponse()


def proves(wire: Wire, secret: str = SECRET, seed: int = 2) -> None:
    step = prove_secret(wire, secret, SeededRandomness(seed), 1.0)  # type: ignore[arg-type]
    with pytest.raises(StopIteration):
        step.send(None)


def test_a_caller_that_knows_the_secret_is_let_in_and_the_secret_is_never_sent() -> None:
    async def main(world: World) -> None:
        async with listening(world, yes, authentication=SharedSecret(SECRET, world.randomness)) as listener:
            caller = await Caller.connect(
                world,
                "127.0.0.1",
                listener.port,
                login=lambda caller, timeout_s: prove_secret(caller, SECRET, world.randomness, timeout_s),
            )
            assert (await caller.call(DATABASE_EXISTS, exists())).exists
            caller.close()

    in_memory(main)
    wire = Wire(listener_side())
    proves(wire)
    assert len(wire.sent) == 2
    assert not any(SECRET.encode() in content for content in (*wire.sent, *wire.received))


def test_a_proof_is_good_for_one_connection_only() -> None:
    """Who listened in replays what it heard, against the same listener and with the same first nonce."""
    wire = Wire(listener_side())
    proves(wire)
    nonce, proof = wire.sent
    randomness = SeededRandomness(9)
    again = SharedSecret(SECRET, randomness).begin()
    assert isinstance(again.login(MECHANISM, nonce), Challenge)
    with pytest.raises(AuthenticationFailed):
        again.login(MECHANISM, proof)


def test_a_nonce_of_the_listener_is_good_for_one_try() -> None:
    steps = listener_side().begin()
    nonce = b"n" * NONCE_BYTES
    first = steps.login(MECHANISM, nonce)
    with pytest.raises(AuthenticationFailed):
        steps.login(MECHANISM, b"a guess")
    second = steps.login(MECHANISM, nonce)
    assert isinstance(first, Challenge)
    assert isinstance(second, Challenge)
    assert first.content[:NONCE_BYTES] != second.content[:NONCE_BYTES]


def test_what_the_listener_proves_is_no_proof_of_a_caller() -> None:
    """A caller without the secret sends the listener's own proof back to it."""
    steps = listener_side().begin()
    challenge = steps.login(MECHANISM, b"n" * NONCE_BYTES)
    assert isinstance(challenge, Challenge)
    with pytest.raises(AuthenticationFailed):
        steps.login(MECHANISM, challenge.content[NONCE_BYTES:])


def test_a_listener_that_does_not_know_the_secret_gets_no_proof() -> None:
    wire = Wire(listener_side(secret="of another cluster"))
    step = prove_secret(wire, SECRET, SeededRandomness(2), 1.0)  # type: ignore[arg-type]
    with pytest.raises(AuthenticationFailed, match="the server that answers does not know"):
        step.send(None)
    assert len(wire.sent) == 1, "the nonce, and nothing after it"


@pytest.mark.parametrize("nonce", [b"", b"short", b"n" * (NONCE_BYTES + 1)])
def test_a_nonce_has_one_length(nonce: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="nonce"):
        listener_side().begin().login(MECHANISM, nonce)


def test_another_mechanism_is_refused_and_before_the_proof_nothing_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    silenced(caplog)
    refused = code_of(AuthenticationFailed(""))

    async def main(world: World) -> None:
        async with (
            listening(world, yes, authentication=SharedSecret(SECRET, world.randomness)) as listener,
            stranger(world, listener) as asker,
        ):
            tokens: Sequence[tuple[str, bytes]] = [("PLAIN", b"\0server\0" + SECRET.encode())]
            for number, (mechanism, token) in enumerate(tokens):
                asker.ask(number, AUTHENTICATE, AuthenticateRequest(protocol=mechanism, token=token))
                assert await asker.error(number) == refused
            asker.ask(
                7, AUTHENTICATE, AuthenticateRequest(protocol=MECHANISM, token=b"n" * NONCE_BYTES)
            )  # a challenge is no welcome
            asker.ask(8, DATABASE_EXISTS, exists())
            assert await asker.error(8) == refused

    in_memory(main)
