"""Who can be in sync: a server together with the identity of its copy.

A server that lost its disk, or was removed from a bucket and added again, holds another copy than the one that was in
sync, under the same server id. So the in-sync set names copies, not servers (R4, R19).
"""

from __future__ import annotations

from typing import NamedTuple

from strom.model.properties import Durability


class CopyPromise(NamedTuple):
    """What a table promises of a row that all in-sync copies acknowledged."""

    durability: Durability
    min_insync: int


class CopyIdentity(NamedTuple):
    """What must not change for a copy to be the one that was in sync.

    ``disk`` is drawn when a data folder is made, ``placement`` when the server is assigned to the bucket. The
    ``lineage`` of a data folder rises when its machine went down without a clean stop, which loses what was not synced;
    it is 0 where the table promises only what is synced (``group``). Build identities with ``identity_of``.
    """

    disk: str
    placement: int
    lineage: int = 0


class Member(NamedTuple):
    """A server, and the copy that it has."""

    server_id: int
    identity: CopyIdentity


def identity_of(disk: str, placement: int, lineage: int, durability: Durability) -> CopyIdentity:
    """The identity of a copy under a promise (R4): under ``group`` an unclean end loses nothing that was counted."""
    return CopyIdentity(disk, placement, lineage if durability == "os" else 0)
