"""The warehouse's bytes: files on a disk or objects in S3, by URI. Counts its requests.

A file written here is durable when it is closed: on a disk it is synced, with its folder, because servers may drop rows
once the lake holds them. ``counters`` tell how often the storage was used, so that a test can prove that a query did
not touch it. Credentials are the reader's: from ``secrets`` or, as with AWS' tools, from the environment; no message
shows them.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from strom.errors import LakeCorrupt, LakeError, LakeUnavailable, LakeUnsupported
from strom.lake.files.object_store import ObjectStore
from strom.model.file_uri import file_uri, local_path
from strom.model.lake.lake import LakeConfig
from strom.runtime import trees

READ_MAX = 1 << 30
"""The largest file that is read whole."""
UNFINISHED = ".tmp"
"""Suffix of a folder in which a file is being written."""


@dataclass
class Counters:
    """Requests to the storage since it was opened."""

    requests: int = 0
    opened: list[str] = field(default_factory=list)
    written: int = 0
    """Bytes of whole files written here (data files are counted by their writer)."""


class ListedFile(NamedTuple):
    """A file that was found."""

    uri: str
    size: int
    modified_ms: int


class Storage:
    """Access to one warehouse. Pickles as its settings; the copy opens its own connections."""

    def __init__(self, config: LakeConfig, secrets: Mapping[str, str] | None = None) -> None:
        self._config = config
        self._secrets = dict(secrets or {})
        self._filesystem: fs.FileSystem | None = None
        self._objects = None if config.local else ObjectStore(config, self._secrets)
        self.counters = Counters()

    @property
    def warehouse(self) -> str:
        """The warehouse's URI."""
        return self._config.warehouse

    @property
    def config(self) -> LakeConfig:
        """The settings it was opened with, without secrets."""
        return self._config

    def __reduce__(self) -> tuple[Any, ...]:
        return (Storage, (self._config, self._secrets))

    def __repr__(self) -> str:
        return f"Storage({self._config.warehouse!r})"

    def filesystem(self) -> fs.FileSystem:
        """The underlying Arrow file system; it takes what ``path`` returns."""
        if self._filesystem is None:
            self._filesystem = fs.LocalFileSystem() if self._objects is None else self._objects.filesystem()
        return self._filesystem

    def path(self, uri: str) -> str:
        """The path of a URI within the file system.

        Every character stands for itself, as in all engines we know. Hadoop writes ``file:/a/file``.
        """
        if (found := local_path(uri)) is not None:
            return found
        if uri.startswith(("s3://", "s3a://")):
            return uri.partition("://")[2]
        raise LakeUnsupported(f"{uri[:200]!r} is not in a warehouse of files or of S3", uri=uri[:200])

    def paths(self, uris: Iterable[str]) -> set[str]:
        """The paths of files. Engines write URIs differently, so files are compared by path."""
        found = set()
        for uri in uris:
            with suppress(LakeUnsupported):  # elsewhere: not in this storage
                found.add(self.path(uri))
        return found

    def inside(self, folder: str, uri: str) -> bool:
        """Whether a URI names a file in a folder, however it is written."""
        try:
            path = self.path(uri)
        except LakeUnsupported:
            return False
        return posixpath.normpath(path) == path and path.startswith(self.path(folder) + "/")

    def open_input(self, uri: str) -> pa.NativeFile:
        """Open a file for reading at any position."""
        self._ask(uri)
        with self.translated(uri):
            return self.filesystem().open_input_file(self.path(uri))

    def open_output(self, uri: str) -> pa.NativeFile:
        """Create a file; ``sync`` makes it durable after it was closed."""
        self.counters.requests += 1
        path = self.path(uri)
        with self.translated(uri):
            if self._config.local:
                trees.make_folders(os.path.dirname(path))
            return self.filesystem().open_output_stream(path)

    def sync(self, uri: str) -> None:
        """Make a closed file durable. S3 objects already are."""
        if not self._config.local:
            return
        path = self.path(uri)
        with self.translated(uri):
            for name in (path, os.path.dirname(path)):
                handle = os.open(name, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)

    def read(self, uri: str) -> bytes:
        """Read a whole file."""
        with self.open_input(uri) as file, self.translated(uri):
            size = file.size()
            if size > READ_MAX:
                raise LakeCorrupt(
                    f"{uri} has {size} bytes; a file of its kind has at most {READ_MAX}", uri=uri
                )
            return bytes(file.read(size))

    def write(self, uri: str, content: bytes) -> None:
        """Write a whole file; durable when this returns."""
        with self.translated(uri), self.open_output(uri) as file:  # S3 reports errors on close
            file.write(content)
        self.sync(uri)
        self.counters.written += len(content)

    def write_new(self, uri: str, content: bytes) -> None:
        """Write a whole file under a unique name; LakeCorrupt when it exists with other content."""
        if not self.write_if_absent(uri, content) and self.read(uri) != content:
            raise LakeCorrupt(f"{uri} is there already, with other content", uri=uri)

    def write_if_absent(self, uri: str, content: bytes) -> bool:
        """Create a whole file unless it exists; whether it was created. Of many at once, one wins."""
        self.counters.requests += 1
        path = self.path(uri)
        if self._objects is not None:
            return self._objects.put_if_absent(path.partition("/")[2], content)
        with self.translated(uri):
            trees.make_folders(os.path.dirname(path))
            # Other users read the warehouse. So not by ``LocalObjects`` or a temporary file, which only their owner
            # may read, but by a new file in a temporary folder.
            with tempfile.TemporaryDirectory(dir=os.path.dirname(path), suffix=UNFINISHED) as place:
                with open(f"{place}/new", "xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(file.name, path)
                except FileExistsError:
                    return False
        self.sync(uri)
        return True

    def remove_unfinished(self, uri: str, before_ms: int) -> int:
        """Remove what a killed ``write_if_absent`` left in a folder, if it is old enough; the number of leftovers."""
        if self._objects is not None:
            return 0  # an object exists whole or not at all
        removed = 0
        with self.translated(uri):
            try:
                found = list(os.scandir(self.path(uri)))
            except FileNotFoundError:
                return 0
            for one in found:
                named = one.name.startswith("tmp") and one.name.endswith(UNFINISHED)
                if not named or not one.is_dir(follow_symlinks=False):
                    continue
                try:
                    modified_ms = one.stat(follow_symlinks=False).st_mtime_ns // 1_000_000
                except FileNotFoundError:
                    continue  # its writer has just finished, or another service was faster
                if modified_ms <= before_ms:
                    shutil.rmtree(one.path, ignore_errors=True)
                    removed += 1
        return removed

    def exists(self, uri: str) -> bool:
        """Whether the file exists."""
        self.counters.requests += 1
        with self.translated(uri):
            return bool(self.filesystem().get_file_info(self.path(uri)).is_file)

    def delete(self, uri: str) -> None:
        """Remove a file; fine when it is gone."""
        self.counters.requests += 1
        with self.translated(uri):
            try:
                self.filesystem().delete_file(self.path(uri))
            except FileNotFoundError:
                return

    def list(self, uri: str) -> Iterator[ListedFile]:
        """Every file below a URI."""
        self.counters.requests += 1
        selector = fs.FileSelector(self.path(uri), allow_not_found=True, recursive=True)
        with self.translated(uri):
            found = self.filesystem().get_file_info(selector)
        for item in found:
            if item.is_file:
                modified = int(item.mtime_ns or 0) // 1_000_000
                uri = file_uri(item.path) if self._config.local else f"s3://{item.path}"
                yield ListedFile(uri, int(item.size or 0), modified)

    def folders(self, uri: str) -> tuple[str, ...]:
        """The names of the folders right below a URI; empty when it does not exist."""
        self.counters.requests += 1
        selector = fs.FileSelector(self.path(uri), allow_not_found=True, recursive=False)
        with self.translated(uri):
            found = self.filesystem().get_file_info(selector)
        return tuple(sorted(item.base_name for item in found if not item.is_file))

    def delete_folder(self, uri: str) -> None:
        """Remove a folder with everything in it; fine when it is gone."""
        self.counters.requests += 1
        with self.translated(uri):
            try:
                self.filesystem().delete_dir(self.path(uri))
            except FileNotFoundError:
                return

    def properties(self) -> dict[str, str]:
        """The settings as PyIceberg's properties, with credentials."""
        return {} if self._objects is None else self._objects.properties()

    def check(self) -> None:
        """LakeUnavailable when a file is missing because the whole bucket is."""
        if self._objects is not None:
            self._objects.check_bucket(self.filesystem())

    def told(self, problem: BaseException) -> str:
        """A storage error in one line that says what to change, without credentials."""
        if self._objects is not None:
            return self._objects.explained(problem)
        lines = str(problem).splitlines()
        return f"{type(problem).__name__}: {lines[0][:300] if lines else ''}"

    def failed(self, problem: BaseException) -> bool:
        """Whether an error is the object store's, not damage of what was read."""
        theirs = isinstance(problem, PermissionError) or "AWS Error" in str(problem)
        return self._objects is not None and theirs

    def damaged(self, uri: str, problem: BaseException, what: str = "cannot be read") -> LakeError:
        """The error of a file that could not be decoded: damage, unless the store failed meanwhile."""
        if self.failed(problem):
            return LakeUnavailable(f"{uri} cannot be reached: {self.told(problem)}", uri=uri)
        return LakeCorrupt(f"{uri} {what}: {problem}", uri=uri)

    @contextmanager
    def translated(self, uri: str) -> Iterator[None]:
        """Translate storage errors: a missing file is corruption of the table that names it, anything else may pass."""
        try:
            yield
        except FileNotFoundError as problem:
            self.check()
            raise LakeCorrupt(f"{uri} is missing from the warehouse", uri=uri) from problem
        except OSError as problem:
            raise LakeUnavailable(f"{uri} cannot be reached: {self.told(problem)}", uri=uri) from problem

    def _ask(self, uri: str) -> None:
        self.counters.requests += 1
        self.counters.opened.append(uri)
