"""Objects in S3, or in a store that speaks its protocol, by way of obstore.

A conditional put whose answer was lost is sent again, and then finds its own object: it returns False, although this
call stored it. A caller that must know compares contents.

Trouble is an ``OSError`` with the store's own text, which may name keys: explain it before a person sees it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any

from strom.errors import NotInstalled
from strom.runtime.files import Bytes
from strom.runtime.objects.object_store import check_key

CONNECT_TIMEOUT_S = 5
REQUEST_TIMEOUT_S = 30
ATTEMPTS = 3


@dataclass(frozen=True)
class S3Bucket:
    """A bucket, and how to reach it."""

    name: str
    endpoint: str | None = None
    """None: AWS."""
    region: str | None = None
    path_style: bool = False
    """Whether the bucket is named in the path: what stores other than AWS expect."""
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """``aws_access_key_id``, ``aws_secret_access_key``, ``aws_session_token``; none: the role of the machine."""

    @cached_property
    def store(self) -> Any:
        """The bucket as obstore opens it."""
        try:
            from obstore.store import S3Store
        except ImportError:
            raise NotInstalled(
                "an S3 warehouse needs obstore: pip install 'strom[lake]'", extra="lake"
            ) from None
        settings = {
            **self.keys,
            "aws_region": self.region,
            "aws_endpoint": self.endpoint,
            "aws_virtual_hosted_style_request": "false" if self.path_style else "true",
        }
        config: Any = {name: value for name, value in settings.items() if value is not None}
        client: Any = {
            "allow_http": (self.endpoint or "").startswith("http://"),
            "timeout": f"{REQUEST_TIMEOUT_S}s",
            "connect_timeout": f"{CONNECT_TIMEOUT_S}s",
        }
        retry: Any = {"max_retries": ATTEMPTS, "retry_timeout": timedelta(seconds=REQUEST_TIMEOUT_S)}
        return S3Store(self.name, config=config, client_options=client, retry_config=retry)


class S3Objects:
    """A :class:`strom.runtime.objects.Objects` below a prefix of a bucket."""

    def __init__(self, bucket: S3Bucket, prefix: str = "") -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    def put(self, key: str, content: Bytes) -> None:
        with self._object(key) as (obstore, store, path):
            obstore.put(store, path, bytes(content))

    def put_if_absent(self, key: str, content: Bytes) -> bool:
        with self._object(key) as (obstore, store, path):
            try:
                obstore.put(store, path, bytes(content), mode="create")
            except obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def get(self, key: str) -> bytes:
        with self._object(key) as (obstore, store, path):
            return bytes(obstore.get(store, path).bytes())

    def get_range(self, key: str, position: int, length: int) -> bytes:
        with self._object(key) as (obstore, store, path):
            try:
                return bytes(obstore.get_range(store, path, start=position, length=length))
            except obstore.exceptions.NotFoundError:
                raise
            except obstore.exceptions.BaseError:
                if length and position < obstore.head(store, path)["size"]:
                    raise
                return b""  # S3 refuses a range that begins behind the end, or is empty

    def list(self, prefix: str = "") -> list[str]:
        parent = prefix.rpartition("/")[0]
        if parent:
            check_key(parent)
        store = self._bucket.store
        import obstore

        skipped = len(self._prefix)
        with _translated():  # the store lists whole folders; a key may begin with a part of a name
            found = obstore.list(store, f"{self._prefix}{parent}" or None)
            keys = [item["path"][skipped:] for page in found for item in page]
        return sorted(key for key in keys if key.startswith(prefix))

    def delete(self, key: str) -> None:
        with self._object(key) as (obstore, store, path):
            try:
                obstore.delete(store, path)
            except FileNotFoundError:
                return

    @contextmanager
    def _object(self, key: str) -> Iterator[tuple[Any, Any, str]]:
        """The library, the store and the place in it of one object."""
        check_key(key)
        store = self._bucket.store
        import obstore

        with _translated():
            yield obstore, store, f"{self._prefix}{key}"


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of obstore as those of the system, with the same text."""
    from obstore.exceptions import (
        BaseError,
        NotFoundError,
        PermissionDeniedError,
        UnauthenticatedError,
    )

    try:
        yield
    except NotFoundError as problem:
        raise FileNotFoundError(str(problem)) from None
    except (PermissionDeniedError, UnauthenticatedError) as problem:
        raise PermissionError(str(problem)) from None
    except BaseError as problem:
        raise OSError(str(problem)) from None
