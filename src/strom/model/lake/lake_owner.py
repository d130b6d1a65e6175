"""Who owns a warehouse: one cluster, in one data folder. A file at the warehouse's root names the owner.

Two folders may hold the same cluster, such as a copy or a restored backup. Each is an *incarnation* of it, and only one
may write to a warehouse; otherwise the copy would commit to the original's tables and remove the original's files.

    {"cluster": "…", "incarnation": "…", "location": "file:///…", "moved-from": ["file:///…"]}

``location`` is where a local warehouse lies according to the paths in its own files (Iceberg's paths are absolute).
``moved-from``: former locations whose paths have not been rewritten yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from strom.errors import LakeCorrupt
from strom.model.document import Document, canonical

OWNER_FILE = "strom-owner.json"


@dataclass(frozen=True)
class LakeOwner:
    """One incarnation of a cluster."""

    cluster: str
    incarnation: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.incarnation}"

    @classmethod
    def of_text(cls, text: str) -> LakeOwner:
        """From ``str(owner)``; other text gives an owner that matches nobody."""
        cluster, _, incarnation = text.partition("/")
        return cls(cluster, incarnation)

    def to_json(self) -> dict[str, str]:
        """The plain form."""
        return {"cluster": self.cluster, "incarnation": self.incarnation}

    @classmethod
    def from_document(cls, doc: Document) -> LakeOwner:
        """From the plain form."""
        return cls(doc.text("cluster"), doc.text("incarnation"))


@dataclass(frozen=True)
class WarehouseOwner:
    """The content of the file at a warehouse's root."""

    owner: LakeOwner
    location: str | None = None
    """None: not known yet, as in warehouses older than this file."""
    moved_from: tuple[str, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether the paths in the warehouse's files match its location."""
        return self.location is not None and not self.moved_from

    def to_json(self) -> bytes:
        """The file's content."""
        found: dict[str, object] = dict(self.owner.to_json())
        if self.location is not None:
            found["location"] = self.location
        if self.moved_from:
            found["moved-from"] = list(self.moved_from)
        return canonical(found).encode() + b"\n"

    @classmethod
    def from_json(cls, content: bytes, uri: str) -> WarehouseOwner:
        """From the file's content; LakeCorrupt when it is malformed."""
        doc = Document.parse(content, uri, LakeCorrupt)
        moved = tuple(doc.texts("moved-from")) if doc.has("moved-from") else ()
        return cls(LakeOwner.from_document(doc), doc.text_or_none("location"), moved)

    def at(self, owner: LakeOwner, location: str) -> WarehouseOwner:
        """The same warehouse, taken over at a location by an owner, possibly the same."""
        moved = (*self.moved_from, *([] if self.location is None else [self.location]))
        left = tuple(dict.fromkeys(one for one in moved if one != location))
        known = self.location is not None or bool(self.moved_from)
        return WarehouseOwner(owner, location if known else None, left)
