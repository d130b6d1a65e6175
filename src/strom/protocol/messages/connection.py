"""The first messages of a connection, and the error response."""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import int32, raw, repeated, text
from strom.protocol.message import Message
from strom.runtime.files import Bytes


class ErrorResponse(Message):
    """The body of a response of type 1."""

    error_code: int = int32(1)
    error_message: str | None = text(2, default=None)


class ApiVersion(Message):
    """A call this server answers."""

    api_key: int = int32(1)
    min_version: int = int32(2)
    max_version: int = int32(3)


class ApiVersionsRequest(Message):
    """Who is calling. Always the first request of a connection."""

    client_software_name: str = text(1)
    client_software_version: str = text(2)


class ApiVersionsResponse(Message):
    """The calls on offer. ``server_type`` only if coordinator and tablets have separate ports."""

    api_versions: Sequence[ApiVersion] = repeated(1, ApiVersion, default=())
    server_type: int | None = int32(2, default=None)


class AuthenticateRequest(Message):
    """SASL: the mechanism and its token."""

    protocol: str = text(1)
    token: Bytes = raw(2)


class AuthenticateResponse(Message):
    """Logged in; ``challenge`` would ask for another round."""

    challenge: Bytes | None = raw(1, default=None)
