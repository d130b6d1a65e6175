"""The login of servers at each other: each proves to the other that it knows a secret, and neither sends it.

    caller → listener    the caller's nonce
    listener → caller    the listener's nonce, and HMAC-SHA256(secret, "listener" + both nonces)
    caller → listener    HMAC-SHA256(secret, "caller" + both nonces)

Who listens in learns nothing that opens another connection, because the nonces are fresh; who only pretends to be a
listener gets no proof out of a caller that another listener would take. What follows the login is neither encrypted nor
signed: that takes a network of the servers' own, or a tunnel. The secret is random and long: nobody guesses it, so it
needs no salt and no slow hash.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from strom.errors import AuthenticationFailed
from strom.protocol.api_keys import AUTHENTICATE
from strom.protocol.messages.connection import AuthenticateRequest
from strom.rpc.login_delays import LoginDelays
from strom.rpc.sasl import Challenge
from strom.runtime.files import Bytes
from strom.runtime.random import Randomness

if TYPE_CHECKING:
    from strom.rpc.caller import Caller

MECHANISM = "STROM-HMAC-SHA256"
NONCE_BYTES = 32
LISTENER, CALLER = b"strom listener", b"strom caller"
SERVER_USER = "server"
"""The name that a caller has after this login."""


class SharedSecret:
    """The listener's side, for all its connections."""

    def __init__(self, secret: str, randomness: Randomness) -> None:
        self._secret = secret.encode()
        self._randomness = randomness
        self.delays = LoginDelays()

    def begin(self) -> SecretConversation:
        """The login of a new connection."""
        return SecretConversation(self._secret, self._randomness)

    def user_named(self, token: Bytes) -> bytes:
        """Every caller is a server."""
        return SERVER_USER.encode()


class SecretConversation:
    """One connection's login. A caller that begins anew gets a new nonce; each is good for one proof."""

    def __init__(self, secret: bytes, randomness: Randomness) -> None:
        self._secret = secret
        self._randomness = randomness
        self._nonces: bytes | None = None

    def login(self, mechanism: str, token: Bytes) -> str | Challenge:
        """The next step: a challenge, or the user that has proved to know the secret."""
        if mechanism.upper() != MECHANISM:
            raise AuthenticationFailed(f"servers log in by {MECHANISM} here", mechanism=mechanism)
        nonces, self._nonces = self._nonces, None
        if nonces is None:
            return self._challenge(bytes(token))
        if not hmac.compare_digest(_proof(self._secret, CALLER, nonces), bytes(token)):
            raise AuthenticationFailed("the caller does not know this cluster's secret")
        return SERVER_USER

    def _challenge(self, nonce: bytes) -> Challenge:
        if len(nonce) != NONCE_BYTES:
            raise AuthenticationFailed(f"this login begins with a nonce of {NONCE_BYTES} bytes")
        own = self._randomness.token(NONCE_BYTES)
        self._nonces = nonce + own
        return Challenge(own + _proof(self._secret, LISTENER, self._nonces))


async def prove_secret(caller: Caller, secret: str, randomness: Randomness, timeout_s: float) -> None:
    """The caller's side. Raises AuthenticationFailed, also when it is the listener that does not know the secret."""
    nonce = randomness.token(NONCE_BYTES)
    first = AuthenticateRequest(protocol=MECHANISM, token=nonce)
    answer = await caller.call(AUTHENTICATE, first, timeout_s=timeout_s)
    challenge = bytes(answer.challenge or b"")
    nonces = nonce + challenge[:NONCE_BYTES]
    if not hmac.compare_digest(_proof(secret.encode(), LISTENER, nonces), challenge[NONCE_BYTES:]):
        raise AuthenticationFailed("the server that answers does not know this cluster's secret")
    proof = AuthenticateRequest(protocol=MECHANISM, token=_proof(secret.encode(), CALLER, nonces))
    await caller.call(AUTHENTICATE, proof, timeout_s=timeout_s)


def _proof(secret: bytes, side: bytes, nonces: bytes) -> bytes:
    return hmac.digest(secret, side + nonces, "sha256")
