"""Many nodes in one request: ZooKeeper answers it (``multiRead``, from 3.6 up), and kazoo does not know it.

One request per node costs several times as much, most of it in Python. A request is a header and a path for each node,
an answer a header and the node, or an error, for each; both end with a header that says so. All of it is big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from strom.metadata.zookeeper.operations import Node, NodeFacts

MULTI_READ = 22
GET_DATA = 4
ERROR = -1

_HEADER = struct.Struct("!iBi")
"""what follows, whether this is the end, an error's number."""
_NUMBER = struct.Struct("!i")
_HEADER_AND_NUMBER = struct.Struct("!iBii")
_FACTS = struct.Struct("!qq16xi8xq8xq")
"""Of a ``Stat`` of ZooKeeper: created, modified, version, owner, when the children changed. Between them two times, two
versions, the length and the number of children."""

_END = _HEADER.pack(-1, 1, -1)
_END_AT = 4
_WITHOUT_WATCH = b"\0"


class MultiRead:
    """A request as kazoo sends it, for the values and facts of nodes."""

    type = MULTI_READ

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        """The request."""
        body = bytearray()
        for path in self._paths:
            name = path.encode()
            body += _HEADER.pack(GET_DATA, 0, -1) + _NUMBER.pack(len(name)) + name + _WITHOUT_WATCH
        return bytes(body + _END)

    def deserialize(self, answer: bytes, at: int) -> list[Node | int]:
        """The nodes, in order; the number of the error for one that could not be read."""
        found: list[Node | int] = []
        while True:
            if answer[at + _END_AT]:
                return found
            kind, _, _, number = _HEADER_AND_NUMBER.unpack_from(answer, at)
            at += _HEADER_AND_NUMBER.size
            if kind == ERROR:
                found.append(number)
                continue
            if kind != GET_DATA:
                raise ValueError(f"an answer of kind {kind} to a read")
            length = max(number, 0)  # -1: there is no value
            value = answer[at : at + length]
            created, modified, version, owner, children_changed = _FACTS.unpack_from(answer, at + length)
            found.append(Node(value, NodeFacts(created, modified, children_changed, version, owner)))
            at += length + _FACTS.size
