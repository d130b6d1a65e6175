"""What the connections of one listener share: handler, limits, counters, and how a frame becomes an answer.

No I/O: a frame and a session go in; a message, an awaitable or an error comes out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from strom.errors import AuthenticationFailed, SecurityDisabled, StromError, UnsupportedVersion
from strom.protocol.api_keys import API_VERSIONS, AUTHENTICATE, Api, Role
from strom.protocol.codec import decode
from strom.protocol.error_codes import code_of
from strom.protocol.frame import REQUEST_HEAD, encode_error, encode_response
from strom.protocol.message import Message
from strom.protocol.messages.connection import ApiVersion, ApiVersionsResponse, AuthenticateResponse
from strom.rpc.budget import Budget
from strom.rpc.call import Answer, AtOnce, Call, Handler
from strom.rpc.call_memory import BudgetShare
from strom.rpc.late_turns import LateTurns
from strom.rpc.limits import ListenerLimits
from strom.rpc.promise import Promise
from strom.rpc.sasl import Authentication, Challenge, LoginSteps
from strom.rpc.slow_calls import SlowCalls
from strom.rpc.traffic import ListenerTraffic
from strom.runtime.files import Bytes

logger = logging.getLogger(__name__)


class PeerSession:
    """The other end of a connection."""

    __slots__ = ("address", "connection_id", "failed_logins", "logging_in", "login", "principal", "welcome")

    def __init__(self, connection_id: int, *, login: LoginSteps | None) -> None:
        self.connection_id = connection_id
        self.login = login
        """How it logs in; None if no login is required."""
        self.address = ""
        """The address of the other side, without the port."""
        self.logging_in = False
        self.welcome = login is None
        """Whether calls are answered: after login, or from the start if none is required."""
        self.principal: str | None = None
        self.failed_logins = 0


class Service:
    """Answers the calls of one listener."""

    def __init__(
        self,
        name: str,
        handler: Handler,
        *,
        authentication: Authentication | None,
        limits: ListenerLimits,
        budget: Budget,
        traffic: ListenerTraffic,
        apis: Iterable[Api[Any, Any]],
        server_type: int | None,
    ) -> None:
        self.name = name
        self.limits = limits
        self.budget = budget
        self.traffic = traffic
        self.slow = SlowCalls(budget)
        self.late = LateTurns()
        self.authentication = authentication
        self._handler = handler
        self._failed: Callable[[Call, BaseException], Message | None] | None = getattr(
            handler, "failed", None
        )
        self._apis = {api.key: api for api in apis}
        self._apis |= {api.key: api for api in (API_VERSIONS, AUTHENTICATE)}
        offered: Mapping[int, AtOnce] = getattr(handler, "at_once", {})
        self.at_once = {key: (self._apis[key], quick) for key, quick in offered.items() if key in self._apis}
        """The calls with a fast path."""
        self._versions = ApiVersionsResponse(
            api_versions=[
                ApiVersion(api_key=key, min_version=api.min_version, max_version=api.max_version)
                for key, api in sorted(self._apis.items())
            ],
            server_type=server_type,
        )

    def session(self, connection_id: int) -> PeerSession:
        """The session of a new connection."""
        login = None if self.authentication is None else self.authentication.begin()
        return PeerSession(connection_id, login=login)

    def open(self, session: PeerSession, api_key: int, version: int, frame: Bytes) -> Call:
        """The call in a frame. Raises what is wrong with it."""
        api = self._apis.get(api_key)
        if not session.welcome and api is not API_VERSIONS and api is not AUTHENTICATE:
            raise AuthenticationFailed("log in first: this listener asks for a user and a password")
        if api is None:
            raise UnsupportedVersion(f"no call has the key {api_key} here", api_key=api_key)
        if not api.min_version <= version <= api.max_version:
            raise UnsupportedVersion(
                f"{api.name} is offered in versions {api.min_version} to {api.max_version}, not {version}",
                api_key=api_key,
                version=version,
            )
        request = decode(api.request, frame, start=REQUEST_HEAD.size, fields_max=self.limits.fields_max)
        share = BudgetShare(self.budget)
        return Call(api, version, request, session.principal, self.name, session.connection_id, share)

    def answer(self, session: PeerSession, call: Call) -> Answer:
        """The answer to a call, or something that will become it."""
        if call.api.role is not Role.CONNECTION:
            return self._handler(call)
        return self._versions if call.api is API_VERSIONS else self._login(session, call)

    def success(self, call: Call, request_id: int, answer: Message) -> list[Bytes]:
        """The frame for an answer."""
        assert type(answer) is call.api.response, f"{call.api.name} answered with {type(answer).__name__}"
        return encode_response(request_id, answer)

    def failure(self, call: Call | None, request_id: int, error: BaseException) -> list[Bytes]:
        """The frame for an error: the handler's own response if it has one, else an error response."""
        if not isinstance(error, StromError):
            logger.error("%s failed", call.api.name if call else "a frame", exc_info=error)
        self.traffic.failed(call.api if call else None, code_of(error))
        if call is not None and self._failed is not None:
            try:
                answer = self._failed(call, error)
                if answer is not None:
                    return self.success(call, request_id, answer)
            except Exception:
                logger.exception("the answer to a failed %s failed", call.api.name)
        return encode_error(request_id, error)

    def _login(self, session: PeerSession, call: Call) -> Answer:
        """A login: answered immediately, unless some have failed recently."""
        authentication = self.authentication
        if authentication is None or session.login is None:
            raise SecurityDisabled("this listener has no authentication: connect without a user")
        if session.logging_in:
            session.failed_logins += 1
            raise AuthenticationFailed("wait for the answer to the first login")
        loop = asyncio.get_running_loop()
        user = authentication.user_named(call.request.token)
        delay_s = authentication.delays.delay_s(session.address, user, loop.time())
        principal: str | None = None
        problem: str | None = None
        try:
            outcome = session.login.login(call.request.protocol, call.request.token)
            if isinstance(outcome, Challenge):
                session.welcome = False
                return AuthenticateResponse(challenge=outcome.content)
            principal = outcome
            authentication.delays.succeeded(session.address, user)
        except AuthenticationFailed as error:
            problem = (
                error.message
            )  # not the error itself: it would keep this frame alive, and so the connection
            self._note_failed(session, user, loop.time())
        if not delay_s:
            return _settled(session, principal, problem)
        session.welcome = False
        session.logging_in = True
        promise: Promise[Message] = Promise()
        loop.call_later(delay_s, _settle, promise, session, principal, problem)
        return promise

    def _note_failed(self, session: PeerSession, user: bytes, now: float) -> None:
        assert self.authentication is not None
        count, worth_a_line = self.authentication.delays.failed(session.address, user, now)
        self.traffic.login_failed()
        if worth_a_line:
            logger.warning(
                "a login as %r from %s on listener %s failed (%d from there lately)",
                user.decode("utf-8", "replace"),
                session.address or "an unknown address",
                self.name,
                count,
            )


def _settled(session: PeerSession, principal: str | None, problem: str | None) -> AuthenticateResponse:
    session.logging_in = False
    session.principal = principal
    session.welcome = problem is None
    if problem is not None:
        session.failed_logins += 1
        raise AuthenticationFailed(problem)
    return AuthenticateResponse()


def _settle(
    promise: Promise[Message], session: PeerSession, principal: str | None, problem: str | None
) -> None:
    if promise.done():
        return  # the connection is gone
    try:
        answer = _settled(session, principal, problem)
    except AuthenticationFailed as error:
        promise.set_exception(error)
    else:
        promise.set_result(answer)
