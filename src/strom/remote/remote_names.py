"""The keys of a bucket's objects in the store, below ``<cluster>/<table>/<partition or ->/<bucket>``.

m/<number>                             a manifest; twenty digits, so that names sort as numbers do
s/<epoch>-<start>-<end>-<random>       a segment; a name is never used twice
"""

from __future__ import annotations

from typing import NamedTuple

NO_PARTITION = "-"
NUMBER_DIGITS = 20


class SegmentName(NamedTuple):
    """What the name of a segment's object says."""

    epoch: int
    start_offset: int
    end_offset: int
    random: str

    def __str__(self) -> str:
        return f"{self.epoch}-{self.start_offset}-{self.end_offset}-{self.random}"

    @classmethod
    def parse(cls, name: str) -> SegmentName | None:
        """None for a name that is none of ours."""
        parts = name.split("-")
        if (
            len(parts) != 4
            or not all(part.isascii() and part.isdigit() for part in parts[:3])
            or not parts[3]
        ):
            return None
        found = cls(int(parts[0]), int(parts[1]), int(parts[2]), parts[3])
        return found if str(found) == name else None


class RemoteNames(NamedTuple):
    """Of one bucket."""

    cluster: str
    table_id: int
    partition_id: int | None
    bucket: int

    @property
    def folder(self) -> str:
        """What all its keys begin with."""
        partition = NO_PARTITION if self.partition_id is None else str(self.partition_id)
        return f"{self.cluster}/{self.table_id}/{partition}/{self.bucket}"

    @property
    def manifests(self) -> str:
        """What the keys of manifests begin with."""
        return f"{self.folder}/m/"

    @property
    def segments(self) -> str:
        """What the keys of segments begin with."""
        return f"{self.folder}/s/"

    def manifest(self, number: int) -> str:
        """The key of a manifest."""
        return f"{self.manifests}{number:0{NUMBER_DIGITS}d}"

    def number_of(self, key: str) -> int | None:
        """The number in a manifest's key; None for another key."""
        text = key.removeprefix(self.manifests)
        if text == key or len(text) != NUMBER_DIGITS or not (text.isascii() and text.isdigit()):
            return None
        return int(text)

    def segment(self, name: str) -> str:
        """The key of a segment."""
        return self.segments + name

    def segment_of(self, key: str) -> SegmentName | None:
        """What the name in a segment's key says; None for another key."""
        text = key.removeprefix(self.segments)
        return None if text == key else SegmentName.parse(text)
