"""Where the metadata of a data folder are: inside it, in a ZooKeeper, or on the way.

``metadata.place.json`` is there if they moved, or are moving (``server/migration``). While they move, no server may use
the folder. The rest follows from the files: a folder with ``metadata.db`` is that of one machine.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum

from strom.errors import InvalidSetting, MetadataCorrupt
from strom.metadata.layout import COPY_FILE, DATABASE_FILE
from strom.runtime.files import Files

PLACE_FILE = "metadata.place.json"


class MetadataMove(Enum):
    """A direction."""

    TO_ZOOKEEPER = "zookeeper"
    TO_EMBEDDED = "embedded"


@dataclass(frozen=True)
class MetadataPlace:
    """The content of the file."""

    move: MetadataMove
    finished: bool
    addresses: str
    """Of the ZooKeeper they went to, or came from."""
    root: str

    def encode(self) -> bytes:
        """As JSON."""
        return json.dumps({**asdict(self), "move": self.move.value}).encode() + b"\n"

    @classmethod
    def decode(cls, content: bytes, name: str) -> MetadataPlace:
        """The facts, or MetadataCorrupt."""
        try:
            facts = json.loads(content)
            place = cls(**{**facts, "move": MetadataMove(facts["move"])})
            if (
                type(place.finished) is not bool
                or type(place.addresses) is not str
                or type(place.root) is not str
            ):
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise MetadataCorrupt(
                f"{name} is damaged: it says where the metadata of this folder are; repeat strom migrate-metadata, "
                "or write it again from another copy",
                path=name,
                reason="not understood",
            ) from error
        return place


def read_place(files: Files, path: str) -> MetadataPlace | None:
    """Where the metadata of a folder moved, or are moving; None: they never did, or are back."""
    name = f"{path}/{PLACE_FILE}"
    return MetadataPlace.decode(files.read_whole(name), name) if files.exists(name) else None


def write_place(files: Files, path: str, place: MetadataPlace | None) -> None:
    """Write it down, durably."""
    if place is not None:
        files.write_whole(f"{path}/{PLACE_FILE}", place.encode())
    else:
        files.remove(f"{path}/{PLACE_FILE}")
        files.sync_folder(path)


def check_place(files: Files, path: str, *, in_cluster: bool) -> None:
    """Refuse to serve from a folder whose metadata are elsewhere, or on the way."""
    place = read_place(files, path)
    if place is not None and not place.finished:
        raise InvalidSetting(
            f"the metadata of {path} were being moved to {place.move.value} when that was interrupted: repeat "
            f"`strom migrate-metadata --to {place.move.value}`",
            folder=path,
        )
    if place is not None and not in_cluster:
        raise InvalidSetting(
            f"the metadata of {path} were moved to ZooKeeper ({place.addresses}{place.root}): serve it with "
            "`strom tablet`, or move them back with `strom migrate-metadata --to embedded`",
            folder=path,
        )
    if in_cluster and any(files.exists(f"{path}/{name}") for name in (DATABASE_FILE, COPY_FILE)):
        raise InvalidSetting(
            f"{path} is the data folder of one machine (`strom up`), with metadata of its own: move them with "
            "`strom migrate-metadata --to zookeeper`, or choose an empty folder",
            folder=path,
        )
