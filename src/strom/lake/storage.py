"""The warehouse's bytes: files on a disk or objects in S3, by URI. Counts what it asks for.

A file that was written here is durable when it is closed: on a disk it is synced, with its folder, because rows may be
dropped elsewhere once the lake holds them. ``counters`` tell how often the storage was asked, so that a test can
prove that a query did not touch it. Credentials are the reader's own: from ``secrets`` or, as AWS has it, from
the environment; they are in no text that is shown.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from strom.errors import LakeCorrupt, LakeUnavailable, LakeUnsupported
from strom.model.lake import S3_ENDPOINT, S3_PATH_STYLE, S3_REGION, LakeConfig

ACCESS_KEY = "s3.access-key-id"
SECRET_KEY = "s3.secret-access-key"
SESSION_TOKEN = "s3.session-token"
SECRETS = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)

READ_MAX = 1 << 30
"""The largest file that is read whole."""


@dataclass
class Counters:
    """How often the storage was asked since it was opened."""

    requests: int = 0
    opened: list[str] = field(default_factory=list)
    written: int = 0
    """Bytes of whole files written here (data files are counted by their writer)."""


class Listed(NamedTuple):
    """A file that was found."""

    uri: str
    size: int
    modified_ms: int


class Storage:
    """Access to one warehouse. Pickles as its settings and opens again where it arrives."""

    def __init__(self, config: LakeConfig, secrets: Mapping[str, str] | None = None) -> None:
        self._config = config
        self._secrets = dict(secrets or {})
        self._filesystem: fs.FileSystem | None = None
        self.counters = Counters()

    @property
    def warehouse(self) -> str:
        """The warehouse's URI."""
        return self._config.warehouse

    @property
    def config(self) -> LakeConfig:
        """What it was opened with, without secrets."""
        return self._config

    def __reduce__(self) -> tuple[Any, ...]:
        return (Storage, (self._config, self._secrets))

    def __repr__(self) -> str:
        return f"Storage({self._config.warehouse!r})"

    def filesystem(self) -> fs.FileSystem:
        """Arrow's file system under it; use ``path`` for what it is asked for."""
        if self._filesystem is None:
            self._filesystem = fs.LocalFileSystem() if self._config.local else self._s3()
        return self._filesystem

    def path(self, uri: str) -> str:
        """The path of a URI within the file system."""
        if uri.startswith("file://"):
            return urllib.parse.unquote(uri.removeprefix("file://"))
        if uri.startswith(("s3://", "s3a://")):
            return uri.partition("://")[2]
        if uri.startswith("/"):
            return uri
        raise LakeUnsupported(f"{uri[:200]!r} is not in a warehouse of files or of S3", uri=uri[:200])

    def open_input(self, uri: str) -> pa.NativeFile:
        """A file for reading at any place."""
        self._ask(uri)
        with _translated(uri):
            return self.filesystem().open_input_file(self.path(uri))

    def open_output(self, uri: str) -> pa.NativeFile:
        """A new file; ``sync`` makes it durable after it was closed."""
        self.counters.requests += 1
        path = self.path(uri)
        with _translated(uri):
            if self._config.local:
                os.makedirs(os.path.dirname(path), exist_ok=True)
            return self.filesystem().open_output_stream(path)

    def sync(self, uri: str) -> None:
        """Make a closed file durable. Objects in S3 are already."""
        if not self._config.local:
            return
        path = self.path(uri)
        with _translated(uri):
            for name in (path, os.path.dirname(path)):
                handle = os.open(name, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)

    def read(self, uri: str) -> bytes:
        """A whole file."""
        with self.open_input(uri) as file, _translated(uri):
            size = file.size()
            if size > READ_MAX:
                raise LakeCorrupt(
                    f"{uri} has {size} bytes; a file of its kind has at most {READ_MAX}", uri=uri
                )
            return bytes(file.read(size))

    def write(self, uri: str, content: bytes) -> None:
        """A whole file, durable when this returns."""
        with self.open_output(uri) as file, _translated(uri):
            file.write(content)
        self.sync(uri)
        self.counters.written += len(content)

    def write_if_absent(self, uri: str, content: bytes) -> bool:
        """A whole file unless there is one; whether it was written. However many try at once, one wins."""
        self.counters.requests += 1
        if not self._config.local:
            return self._put_if_absent(uri, content)
        path = self.path(uri)
        temporary = f"{path}.{os.getpid()}.tmp"
        with _translated(uri):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(content)
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                os.unlink(temporary)
        self.sync(uri)
        return True

    def exists(self, uri: str) -> bool:
        """Whether there is such a file."""
        self.counters.requests += 1
        with _translated(uri):
            return bool(self.filesystem().get_file_info(self.path(uri)).is_file)

    def delete(self, uri: str) -> None:
        """Remove a file; fine when it is gone."""
        self.counters.requests += 1
        with _translated(uri):
            try:
                self.filesystem().delete_file(self.path(uri))
            except FileNotFoundError:
                return

    def list(self, uri: str) -> Iterator[Listed]:
        """Every file below a URI."""
        self.counters.requests += 1
        scheme = "file://" if self._config.local else "s3://"
        selector = fs.FileSelector(self.path(uri), allow_not_found=True, recursive=True)
        with _translated(uri):
            found = self.filesystem().get_file_info(selector)
        for item in found:
            if item.is_file:
                modified = int(item.mtime_ns or 0) // 1_000_000
                yield Listed(scheme + item.path, int(item.size or 0), modified)

    def properties(self) -> dict[str, str]:
        """The same settings in PyIceberg's words."""
        options = self._config.options
        found = {name: options[name] for name in (S3_ENDPOINT, S3_REGION) if options.get(name)}
        if not self._config.local:
            found["s3.force-virtual-addressing"] = "false" if self._path_style() else "true"
        return {**found, **{name: self._secrets[name] for name in SECRETS if name in self._secrets}}

    def _ask(self, uri: str) -> None:
        self.counters.requests += 1
        self.counters.opened.append(uri)

    def _path_style(self) -> bool:
        default = "true" if self._config.options.get(S3_ENDPOINT) else "false"
        return self._config.options.get(S3_PATH_STYLE, default).lower() == "true"

    def _s3(self) -> fs.FileSystem:
        options = self._config.options
        settings: dict[str, Any] = {
            "access_key": self._secrets.get(ACCESS_KEY),
            "secret_key": self._secrets.get(SECRET_KEY),
            "session_token": self._secrets.get(SESSION_TOKEN),
            "region": options.get(S3_REGION),
            "endpoint_override": options.get(S3_ENDPOINT),
            "force_virtual_addressing": not self._path_style(),
        }
        return fs.S3FileSystem(**{name: value for name, value in settings.items() if value is not None})

    def _put_if_absent(self, uri: str, content: bytes) -> bool:
        import obstore  # slow to import, and only this call of S3 needs it
        from obstore.exceptions import AlreadyExistsError, BaseError
        from obstore.store import S3Store

        bucket, _, key = self.path(uri).partition("/")
        options = self._config.options
        settings: Any = {
            "aws_access_key_id": self._secrets.get(ACCESS_KEY),
            "aws_secret_access_key": self._secrets.get(SECRET_KEY),
            "aws_session_token": self._secrets.get(SESSION_TOKEN),
            "aws_region": options.get(S3_REGION),
            "aws_endpoint": options.get(S3_ENDPOINT),
            "aws_virtual_hosted_style_request": "false" if self._path_style() else "true",
        }
        config: Any = {name: value for name, value in settings.items() if value is not None}
        store = S3Store(bucket, config=config, client_options={"allow_http": True})
        try:
            obstore.put(store, key, content, mode="create")
        except AlreadyExistsError:
            return False
        except BaseError as problem:
            raise LakeUnavailable(
                f"{uri} could not be written: {type(problem).__name__}", uri=uri
            ) from problem
        return True


@contextmanager
def _translated(uri: str) -> Iterator[None]:
    """Storage errors as ours: a missing file is corruption of the table that names it, the rest may pass."""
    try:
        yield
    except FileNotFoundError as problem:
        raise LakeCorrupt(f"{uri} is missing from the warehouse", uri=uri) from problem
    except OSError as problem:
        raise LakeUnavailable(f"{uri} cannot be reached: {problem}", uri=uri) from problem
