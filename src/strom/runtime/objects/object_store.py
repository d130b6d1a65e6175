"""The port to object stores: whole values under keys. On a folder here, in S3 (``s3_objects.py``), in memory (tests).

The contract (``tests/contracts/objects_contract.py``) runs on every implementation:

    an object is there whole and durable when ``put`` returns, and before that not at all
    ``put_if_absent`` has one winner however many try at once: the fence that commits rest on
    ``list`` sees every object that was put before it was called, sorted

A key is made of parts joined with ``/``; each part is letters, digits and ``. _ = -``, does not begin with a dot
and does not end in ``.tmp``. Other keys are a ``ValueError``, so that a key can never leave the folder it
belongs to. A missing object is a ``FileNotFoundError``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Protocol

from strom.runtime.files import TEMPORARY_SUFFIX, Bytes, Files

KEY_LENGTH_MAX = 900  # S3 allows 1,024 bytes; a prefix needs room too

_KEY = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*(/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*", re.ASCII)


def check_key(key: str) -> None:
    """Refuse what is not a key."""
    parts = key.split("/")
    if (
        len(key) > KEY_LENGTH_MAX
        or not _KEY.fullmatch(key)
        or any(part.endswith(TEMPORARY_SUFFIX) for part in parts)
    ):
        raise ValueError(f"{key!r} is not a key for an object")


class Objects(Protocol):
    """A store of objects."""

    def put(self, key: str, content: Bytes) -> None:
        """Store an object, replacing one of the same key."""

    def put_if_absent(self, key: str, content: Bytes) -> bool:
        """Store an object unless the key is taken; whether it was stored."""

    def get(self, key: str) -> bytes:
        """The whole object."""

    def get_range(self, key: str, position: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``position``; fewer only at the object's end."""

    def list(self, prefix: str = "") -> list[str]:
        """All keys that start with ``prefix``, sorted."""

    def delete(self, key: str) -> None:
        """Remove an object; fine when it is gone."""


class LocalObjects:
    """Objects as files below one folder of a disk."""

    def __init__(self, folder: str, files: Files) -> None:
        self._folder = folder.rstrip("/")
        self._files = files

    def put(self, key: str, content: Bytes) -> None:
        self._files.write_whole(self._prepared(key), content)

    def put_if_absent(self, key: str, content: Bytes) -> bool:
        return self._files.write_whole_if_absent(self._prepared(key), content)

    def get(self, key: str) -> bytes:
        return self._files.read_whole(self._path(key))

    def get_range(self, key: str, position: int, length: int) -> bytes:
        file = self._files.open(self._path(key))
        try:
            return file.read_at(position, length)
        finally:
            file.close()

    def list(self, prefix: str = "") -> list[str]:
        parent, slash, _ = prefix.rpartition("/")
        if parent:
            check_key(parent)
        return sorted(key for key in self._keys_below(parent + slash) if key.startswith(prefix))

    def delete(self, key: str) -> None:
        path = self._path(key)
        if self._files.exists(path):
            self._files.remove(path)
            self._files.sync_folder(posixpath.dirname(path))

    def _path(self, key: str) -> str:
        check_key(key)
        return f"{self._folder}/{key}"

    def _prepared(self, key: str) -> str:
        path = self._path(key)
        self._files.make_folder(posixpath.dirname(path))
        return path

    def _keys_below(self, start: str) -> Iterator[str]:
        for name in self._files.list(f"{self._folder}/{start}".rstrip("/")):
            key = start + name
            if self._files.is_folder(f"{self._folder}/{key}"):
                yield from self._keys_below(key + "/")
            elif not name.endswith(TEMPORARY_SUFFIX):
                yield key
