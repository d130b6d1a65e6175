"""What servers, services and readers of the lake share: where it is, and up to which offset it holds a bucket.

LakeConfig      the warehouse and its catalog, as every server announces it; never contains secrets
LakeKey         one bucket of one table
Tiered          the lake holds every offset of a bucket below ``offset``; ``epoch`` is that of ``offset - 1``
Bounds          per column id, lower and upper bound of all rows ever committed; readers may skip the lake by it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from strom.errors import InvalidSetting
from strom.model.document import Document
from strom.model.file_uri import local_path
from strom.model.lake.lake_owner import LakeOwner

CATALOGS = ("sqlite", "rest")

S3_ENDPOINT = "s3.endpoint"
S3_REGION = "s3.region"
S3_PATH_STYLE = "s3.path-style"
OPTIONS = (S3_ENDPOINT, S3_REGION, S3_PATH_STYLE)
"""What a server may announce about the storage. Keys and tokens come from the reader's environment or options."""

BoundValues = tuple[str, str] | None
"""(lowest, highest) as texts; None: the column was NULL in every row."""
UNKNOWN = "?"
"""Instead of a column's bounds: there are rows, but nothing is known about their values."""
Bounds = Mapping[int, "BoundValues | str"]
"""By column id. A missing column did not exist when the rows were written, so it is NULL in all of them."""


Place = tuple[str | None, int]
"""A bucket as the lake's files name it: the partition's name (None without partitions), and the bucket's number."""


class LakeKey(NamedTuple):
    """One bucket of a table (of one partition, where the table has partitions)."""

    partition_id: int | None
    bucket: int


class Tiered(NamedTuple):
    """The lake holds a bucket below ``offset``; ``epoch`` wrote the record before it (-1: there is none)."""

    offset: int
    epoch: int


@dataclass(frozen=True)
class LakeConfig:
    """One warehouse: a folder (``file:///…``) or a bucket's prefix (``s3://…``), and the catalog that names its tables.

    ``uri`` is the SQLite file (``sqlite``) or the address (``rest``) of the catalog.
    """

    warehouse: str
    catalog: str = "sqlite"
    uri: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    owner: LakeOwner | None = None
    """The only cluster that may write to it. None: not checked."""
    home: bool = False
    """Whether it lies inside the cluster's data folder, with its catalog, and is copied with it."""

    def __post_init__(self) -> None:
        if self.catalog not in CATALOGS:
            raise InvalidSetting(
                f"lake.catalog is {self.catalog!r}, and must be one of {', '.join(CATALOGS)}",
                found=self.catalog,
            )
        if not self.warehouse.startswith(("file:///", "s3://")):
            raise InvalidSetting(
                f"lake.warehouse is {self.warehouse!r}; write file:///a/folder or s3://bucket/prefix",
                found=self.warehouse,
            )
        object.__setattr__(self, "warehouse", self.warehouse.rstrip("/"))
        if self.catalog == "rest" and not (self.uri or "").startswith(("http://", "https://")):
            raise InvalidSetting(
                "A REST catalog needs lake.catalog.uri, for example http://localhost:8181", found=self.uri
            )
        if self.catalog == "sqlite" and self.uri is None and not self.local:
            raise InvalidSetting(
                "A SQLite catalog of an S3 warehouse needs lake.catalog.uri, the path of its file"
            )

    @property
    def local(self) -> bool:
        """Whether the warehouse is a local folder (or one that all machines mount)."""
        return self.warehouse.startswith("file://")

    @property
    def catalog_uri(self) -> str:
        """The catalog's address: as given, or the file ``catalog.db`` in a local warehouse."""
        return self.uri if self.uri is not None else f"{local_path(self.warehouse)}/catalog.db"

    def to_json(self) -> dict[str, Any]:
        """The JSON form; ``from_json`` reads it."""
        found: dict[str, Any] = {
            "warehouse": self.warehouse,
            "catalog": self.catalog,
            "options": dict(self.options),
        }
        if self.uri is not None:
            found["uri"] = self.uri
        if self.owner is not None:
            found["owner"] = self.owner.to_json()
        if self.home:
            found["home"] = True
        return found

    @classmethod
    def from_json(cls, value: object) -> LakeConfig:
        """From the JSON form; InvalidSetting when it is malformed."""
        doc = Document(value, "lake", InvalidSetting)
        return cls(
            doc.text("warehouse"),
            doc.text("catalog"),
            doc.text_or_none("uri"),
            doc.mapping("options"),
            LakeOwner.from_document(doc.document("owner")) if doc.has("owner") else None,
            doc.flag("home", default=False),
        )


def bounds_to_json(bounds: Bounds) -> dict[str, Any]:
    """``{"0": ["1", "99"], "1": null, "2": "?"}``."""
    return {
        str(column): list(found) if isinstance(found, tuple) else found
        for column, found in sorted(bounds.items())
    }


def bounds_from_json(doc: Document, key: str) -> dict[int, BoundValues | str]:
    """The bounds under a key; the document's error when they are not bounds."""
    inner = doc.document(key) if doc.has(key) else None
    found: dict[int, BoundValues | str] = {}
    for name, value in (inner.value if inner is not None else {}).items():
        assert inner is not None
        if not name.isdecimal() or len(name) > 10:
            inner.refuse(name, "is not a column id")
        if value is None or value == UNKNOWN:
            found[int(name)] = value
            continue
        pair = inner.texts(name)
        if len(pair) != 2:
            inner.refuse(name, "must be two texts")
        found[int(name)] = (pair[0], pair[1])
    return found
