"""How the error of one bucket is answered: in fields of the bucket's own response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from strom.errors import LeaderNotAvailable, ServerStopping, StromError
from strom.protocol.error_codes import code_of, message_of

logger = logging.getLogger(__name__)

R = TypeVar("R")


class OneBucket(Protocol):
    """The part of a request that asks for one bucket."""

    partition_id: int | None
    bucket_id: int


def refused(response: Callable[..., R], wanted: OneBucket, error: BaseException, **more: Any) -> R:
    """The response of one bucket: why there is nothing else in it."""
    return response(
        partition_id=wanted.partition_id, bucket_id=wanted.bucket_id, **more, **error_fields(error)
    )


def error_fields(error: BaseException) -> dict[str, Any]:
    """``error_code`` and ``error_message`` of a response."""
    if isinstance(error, ServerStopping | asyncio.CancelledError):
        # A code that the peer's client knows: it asks again, and finds the server after its restart.
        error = LeaderNotAvailable("the server is going down")
    elif not isinstance(error, StromError):
        logger.error("a call on a bucket failed", exc_info=error)
    return {"error_code": code_of(error), "error_message": message_of(error)}
