"""A lookup's request, encoded once except for the keys: the rest is the same for all keys of a bucket."""

from __future__ import annotations

from copy import copy

from strom.client.cluster.written import WrittenUpTo
from strom.protocol.codec import encode
from strom.protocol.messages.own_keys import LookupRowRequest, LookupRowsBucketRequest, LookupRowsRequest
from strom.protocol.varint import encode_varint
from strom.runtime.files import Bytes

_BUCKET = bytes([LookupRowsRequest.fields["buckets_req"].tag])
_SHORT = [bytes([length]) for length in range(128)]
"""Lengths of one byte: those of nearly all single keys."""


class RequestTemplate:
    """``keyed`` is the message that holds the keys, here empty; ``around`` the one that holds ``keyed``, if any."""

    def __init__(
        self, keyed: LookupRowRequest | LookupRowsBucketRequest, around: LookupRowsRequest | None = None
    ) -> None:
        self._keyed = keyed
        self._empty = b"".join(encode(keyed))
        self._head = self._empty[:-1]
        """``keyed`` up to the length of the keys."""
        self._around = around is not None
        self._before = self._behind = b""
        if around is not None:
            everything = b"".join(encode(around))
            before = copy(around)
            before.timeout_ms = None
            self._before = b"".join(encode(before))
            self._behind = everything[len(self._before) :]
            self._before += _BUCKET

    def fill(self, keys: Bytes, at_least: WrittenUpTo | None) -> bytes:
        """The request for these keys; ``at_least``: what the answer has to include."""
        length = len(keys)
        head = self._head + (_SHORT[length] if length < len(_SHORT) else encode_varint(length))
        bound = b"" if at_least is None else self._bound(at_least)
        if not self._around:
            return b"".join((head, keys, bound))
        size = encode_varint(len(head) + length + len(bound))
        return b"".join((self._before, size, head, keys, bound, self._behind))

    def _bound(self, at_least: WrittenUpTo) -> bytes:
        """The fields after the keys."""
        bounded = copy(self._keyed)
        bounded.at_least_offset, bounded.at_least_epoch = at_least
        return b"".join(encode(bounded))[len(self._empty) :]
