"""SASL: what a login is to a listener, and PLAIN: a user and a password in one message."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from strom.errors import AuthenticationFailed
from strom.rpc.login_delays import LoginDelays
from strom.runtime.files import Bytes

PLAIN = "PLAIN"
USER_BYTES_MAX = 128
"""How much of a user name is stored and logged."""


class Challenge(NamedTuple):
    """The caller has to answer this first: the login goes on."""

    content: bytes


class LoginSteps(Protocol):
    """The login of one connection."""

    def login(self, mechanism: str, token: Bytes) -> str | Challenge:
        """The user that is logged in now, or what the caller has to answer. Raises AuthenticationFailed."""


class Authentication(Protocol):
    """How callers of a listener log in."""

    delays: LoginDelays
    """Recent failures, over all listeners that require this login."""

    def begin(self) -> LoginSteps:
        """The login of a new connection."""

    def user_named(self, token: Bytes) -> bytes:
        """The user that a token names, authenticated or not, for delays and for the log."""


class Sasl:
    """Checks users and passwords. All failures look the same from outside, including their timing."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = {user.encode(): password.encode() for user, password in users.items()}
        self.delays = LoginDelays()

    def begin(self) -> LoginSteps:
        """One step, which remembers nothing."""
        return self

    def login(self, mechanism: str, token: Bytes) -> str:
        """The user that ``token`` authenticates. Raises AuthenticationFailed."""
        if mechanism.upper() != PLAIN:
            raise AuthenticationFailed("only PLAIN is offered here", mechanism=mechanism)
        # The first part, an identity to act as, may be empty or the user's own name.
        parts = bytes(token).split(b"\0")
        if len(parts) != 3:
            raise AuthenticationFailed("a PLAIN token has a user and a password after a NUL each")
        identity, user, password = parts
        known = self._users.get(user)
        # Always compare: the time of a refusal must not reveal whether the user exists.
        right = hmac.compare_digest(known if known is not None else b"\0", password)
        if known is None or not right or identity not in (b"", user):
            raise AuthenticationFailed("the user or the password is wrong")
        return user.decode()

    def user_named(self, token: Bytes) -> bytes:
        """The user that a token names; empty for another form."""
        parts = bytes(token).split(b"\0", 3)
        return parts[1][:USER_BYTES_MAX] if len(parts) == 3 else b""


def plain_token(user: str, password: str) -> bytes:
    """What a client sends."""
    return b"\0".join((b"", user.encode(), password.encode()))
