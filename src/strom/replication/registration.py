"""What a server says of itself when its process starts.

A registration is new with every start, and required by every decision that rests on it (R1): elections, recoveries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from strom.model.properties import Durability
from strom.replication.member import CopyIdentity


class DataDisk(NamedTuple):
    """A data folder: its id, drawn when it was made, and how often it may have lost what was not synced."""

    disk: str
    lineage: int


@dataclass(frozen=True, slots=True)
class Registration:
    """A server's process, the data folders it found in order, and where it stands. A failed disk is left out (R24)."""

    server_id: int
    incarnation: int
    """One per process start: an epoch is led by one process (R3)."""
    disks: tuple[DataDisk, ...]
    rack: str = ""

    def has_disk(self, disk: str) -> bool:
        """Whether the disk is still there, whatever it lost."""
        return any(one.disk == disk for one in self.disks)

    def holds(self, identity: CopyIdentity, durability: Durability) -> bool:
        """Whether a copy on one of these disks still is the one named (R4). The placement is the entry's part."""
        lineages = [one.lineage for one in self.disks if one.disk == identity.disk]
        return bool(lineages) and (durability == "group" or lineages[0] == identity.lineage)


Registrations = Mapping[int, Registration]
"""By server id, as somebody read them; some may be older than others."""
