"""Frames: the head before each message on the wire. Numbers are big-endian (those inside batches are not).

    request    length i32 | api key i16 | api version i16 | request id i32 | message
    response   length i32 | type i8 | request id i32 | message

``length`` counts what follows it. Response type 0 carries the call's response, type 1 an ErrorResponse. The peer has a
type 2 without a request id, which its own Rust client misreads: we never send it.
"""

from __future__ import annotations

import struct

from strom.errors import InvalidRequest, LimitExceeded
from strom.protocol.codec import encode_onto, gather
from strom.protocol.error_codes import code_of, message_of
from strom.protocol.message import Message
from strom.protocol.messages.connection import ErrorResponse
from strom.runtime.files import Bytes

LENGTH = struct.Struct(">i")
REQUEST_HEAD = struct.Struct(">hhi")
RESPONSE_HEAD = struct.Struct(">bi")
_REQUEST = struct.Struct(">ihhi")
_RESPONSE = struct.Struct(">ibi")

SUCCESS = 0
ERROR = 1

REQUEST_ID_MASK = 0x7FFF_FFFF
FRAME_BYTES_MAX = 2**31 - 1
"""A length is a signed number of 32 bits."""


def read_request_head(frame: Bytes) -> tuple[int, int, int]:
    """Api key, api version and request id, from the beginning of a frame (which lies after its length)."""
    api_key, api_version, request_id = REQUEST_HEAD.unpack_from(frame)
    return api_key, api_version, request_id


def read_response_head(frame: Bytes) -> tuple[bool, int]:
    """Whether the call succeeded, and its request id."""
    kind, request_id = RESPONSE_HEAD.unpack_from(frame)
    if kind not in (SUCCESS, ERROR):
        raise InvalidRequest(f"response type {kind} is not known", type=kind)
    return kind == SUCCESS, request_id


def encode_request(api_key: int, api_version: int, request_id: int, message: Message) -> list[Bytes]:
    """A request as buffers to send in order."""
    pieces: list[Bytes] = [b""]
    size = encode_onto(pieces, message, REQUEST_HEAD.size) + REQUEST_HEAD.size
    pieces[0] = _REQUEST.pack(size, api_key, api_version, request_id)
    return gather(pieces, size)


def request_head(api_key: int, api_version: int, request_id: int, size: int) -> bytes:
    """The head of an already encoded message of ``size`` bytes."""
    return _REQUEST.pack(size + REQUEST_HEAD.size, api_key, api_version, request_id)


def response_head(request_id: int, size: int) -> bytes:
    """The head of an already encoded successful response of ``size`` bytes."""
    return _RESPONSE.pack(size + RESPONSE_HEAD.size, SUCCESS, request_id)


def encode_response(request_id: int, message: Message) -> list[Bytes]:
    """A successful response as buffers to send in order."""
    return _encode_response(SUCCESS, request_id, message)


def encode_error(request_id: int, error: BaseException) -> list[Bytes]:
    """An error response as buffers to send in order."""
    body = ErrorResponse(error_code=code_of(error), error_message=message_of(error))
    return _encode_response(ERROR, request_id, body)


def _encode_response(kind: int, request_id: int, message: Message) -> list[Bytes]:
    pieces: list[Bytes] = [b""]
    size = encode_onto(pieces, message, RESPONSE_HEAD.size) + RESPONSE_HEAD.size
    if size > FRAME_BYTES_MAX:
        raise LimitExceeded(f"an answer of {size} bytes does not fit into a frame: ask for less", bytes=size)
    pieces[0] = _RESPONSE.pack(size, kind, request_id)
    return gather(pieces, size)
