"""The bucket's entry in the metadata: who has copies, who leads, and whose copies are in sync.

Whoever changes it requires the version that it read (R1). Reading checks the JSON: the metadata may be damaged.
The format is in docs/formats/metadata.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from strom.errors import MetadataCorrupt
from strom.model.document import canonical
from strom.replication.member import CopyIdentity, Member

SERVER_MAX = 2**31 - 1
EPOCH_MAX = 2**31 - 1
NUMBER_MAX = 2**63 - 1
DISK_CHARACTERS_MAX = 64
_read_json = json.JSONDecoder().decode
"""As ``json.loads``, without its guess of an encoding, which takes a third as long as reading does."""
REPLICAS_MAX = 256
"""During a move a bucket has its old replicas and its new ones."""


_PATTERN_COPIES_MAX = 8


class Assignment(NamedTuple):
    """A server that has a copy, and the placement drawn when it was added (R19)."""

    server_id: int
    placement: int


@dataclass(frozen=True, slots=True)
class BucketEntry:
    """One bucket. ``in_sync`` is sorted, so that equal sets are equal entries."""

    replicas: tuple[Assignment, ...]
    wanted: tuple[int, ...]
    """Who shall have the copies, the preferred leader first; a move is under way while ``replicas`` differ."""
    leader: int
    incarnation: int
    """Of the leader's process: a restarted server leads nothing (R3)."""
    epoch: int
    in_sync: tuple[Member, ...]
    losses: int = 0
    """How often committed rows may have been given up (R10)."""
    drawn: int = 1
    """The highest placement drawn so far: none is drawn twice."""

    def placement_of(self, server_id: int) -> int:
        """The placement of a server's copy; 0 if it has none."""
        return next((one.placement for one in self.replicas if one.server_id == server_id), 0)

    def member_of(self, server_id: int) -> Member | None:
        """The copy of this server that is in sync; None if none is."""
        return next((one for one in self.in_sync if one.server_id == server_id), None)

    @property
    def servers(self) -> tuple[int, ...]:
        """Who has copies."""
        return tuple(one.server_id for one in self.replicas)

    @property
    def moving(self) -> bool:
        """Whether copies are still to be added or removed."""
        return set(self.servers) != set(self.wanted)

    def with_in_sync(self, members: Iterable[Member]) -> BucketEntry:
        """The same entry with another in-sync set."""
        return replace(self, in_sync=tuple(sorted(members)))


class BucketOutline(NamedTuple):
    """Of an entry what is looked for among all of them."""

    leader: int
    incarnation: int
    servers: Sequence[int]
    lacking: bool
    """Whether the entry alone says that copies are lacking or on the move, or that rows were given up."""


def encode_bucket(entry: BucketEntry) -> bytes:
    """The value under ``replicas/``. Nobody could read an impossible one, so none is written."""
    document: dict[str, Any] = {
        "replicas": [list(one) for one in entry.replicas],
        "wanted": list(entry.wanted),
        "leader": entry.leader,
        "incarnation": entry.incarnation,
        "epoch": entry.epoch,
        "in_sync": [[one.server_id, *one.identity] for one in entry.in_sync],
        "losses": entry.losses,
        "drawn": entry.drawn,
    }
    complaint = _complaint(document)
    assert not complaint, complaint
    return canonical(document).encode()


def decode_bucket(key: str, value: bytes) -> BucketEntry:
    """Decode a bucket's entry."""
    found = _checked(key, value)
    return BucketEntry(
        tuple([Assignment(server, placement) for server, placement in found["replicas"]]),
        tuple(found["wanted"]),
        found["leader"],
        found["incarnation"],
        found["epoch"],
        tuple(
            [
                Member(server, CopyIdentity(disk, placement, lineage))
                for server, disk, placement, lineage in found["in_sync"]
            ]
        ),
        found["losses"],
        found["drawn"],
    )


def outline_bucket(key: str, value: bytes) -> BucketOutline:
    """Check a bucket's entry as ``decode_bucket`` does, and tell only its outline: there may be a million of them."""
    whole = _whole_outline(value)
    if whole is not None:
        return whole
    found = _checked(key, value)
    servers, wanted = [server for server, _ in found["replicas"]], found["wanted"]
    lacking = len(found["in_sync"]) < len(wanted) or set(servers) != set(wanted) or found["losses"] > 0
    return BucketOutline(found["leader"], found["incarnation"], servers, lacking)


def _whole_outline(value: bytes) -> BucketOutline | None:
    """The outline of an entry that lacks nothing, as nearly all do; None: it must be looked at more closely.

    It finds nothing right that ``_checked`` refuses, and takes a third of its time: numbers are equal if their digits
    are, so most of them are never read as numbers.
    """
    copies = (value.count(b"[") - 3) // 2
    match = _whole_entry(copies).fullmatch(value) if 0 < copies <= _PATTERN_COPIES_MAX else None
    if match is None:
        return None
    drawn, epoch, *found = match.groups()
    ids, rest = {one: int(one) for one in found[:copies]}, found[copies:]
    servers, placements, wanted = rest[2:-copies:2], rest[3:-copies:2], rest[-copies:]
    members, incarnation, leader = list(ids.values()), int(rest[0]), ids.get(rest[1])
    if leader is None or not ids.keys() == set(servers) == set(wanted):
        return None
    if len(members) != copies or members != sorted(members) or members[-1] > SERVER_MAX:
        return None
    given = [int(one) for one in set(placements)]
    if min(given) < 1 or max(given) > int(drawn):
        return None
    if int(epoch) > EPOCH_MAX or incarnation > NUMBER_MAX:
        return None
    return BucketOutline(leader, incarnation, [ids[one] for one in servers], False)


@lru_cache(maxsize=_PATTERN_COPIES_MAX)
def _whole_entry(copies: int) -> re.Pattern[bytes]:
    """What ``encode_bucket`` writes of an entry with so many copies that lacks nothing. Numbers have at most 18 digits,
    which are below ``NUMBER_MAX``; the incarnation may have 19."""
    number, uncaught = rb"(0|[1-9][0-9]{0,17})", rb"(?:0|[1-9][0-9]{0,17})"
    member = rb'\[%b,"[!#-\[\]-~]{1,%d}",%b,%b\]' % (number, DISK_CHARACTERS_MAX, uncaught, uncaught)
    parts = {
        b"drawn": number,
        b"epoch": number,
        b"in_sync": rb"\[%b\]" % b",".join([member] * copies),
        b"incarnation": rb"(0|[1-9][0-9]{0,18})",
        b"leader": number,
        b"losses": b"0",
        b"replicas": rb"\[%b\]" % b",".join([rb"\[%b,%b\]" % (number, number)] * copies),
        b"wanted": rb"\[%b\]" % b",".join([number] * copies),
    }
    return re.compile(rb"\{%b\}" % b",".join(b'"%b":%b' % one for one in parts.items()))


def may_name(value: bytes, server_id: int) -> bool:
    """Whether an entry may give a copy to this server; False is certain. Looks at the bytes as ``encode_bucket`` makes
    them, and believes nothing of others."""
    return b"[%d," % server_id in value or b" " in value


def _checked(key: str, value: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = _read_json(value.decode())
        complaint = _complaint(found)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MetadataCorrupt(f"{key} is not the entry of a bucket: {error!r}", key=key) from error
    if complaint:
        raise MetadataCorrupt(f"{key}: {complaint}", key=key)
    return found


def _complaint(found: dict[str, Any]) -> str:
    """What is wrong with an entry; nothing: an empty text. All of it is checked at once."""
    replicas, wanted, in_sync = found["replicas"], found["wanted"], found["in_sync"]
    leader, epoch, drawn = found["leader"], found["epoch"], found["drawn"]
    if not replicas or not wanted or not in_sync:
        return "it has no replica, wants none, or the leader and the members in sync are missing"
    servers, placements = zip(*replicas, strict=True)
    members, disks, member_placements, lineages = zip(*in_sync, strict=True)
    numbers = [leader, found["incarnation"], epoch, found["losses"], drawn, *wanted]
    numbers += servers + placements + members + member_placements + lineages
    if set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) > NUMBER_MAX:
        return "it holds numbers that are none, or out of range"
    for disk in disks:
        if type(disk) is not str or not 0 < len(disk) <= DISK_CHARACTERS_MAX or not disk.isascii():
            return f"{disk!r} is no disk"
    replicated, synced = set(servers), set(members)
    if (
        not len(replicated) == len(servers) <= REPLICAS_MAX
        or not len(set(wanted)) == len(wanted) <= REPLICAS_MAX
    ):
        return "it names a server twice, or too many"
    if not synced <= replicated or leader not in synced or len(synced) != len(members):
        return "the leader and the members in sync must be among the replicas, each once"
    if list(members) != sorted(members):
        return "the members in sync are not in order"
    if epoch > EPOCH_MAX or max(max(servers), max(wanted)) > SERVER_MAX:
        return "an epoch or a server id is out of range"
    if min(placements) < 1 or max(placements) > drawn:
        return "a placement was never drawn"
    return ""
