"""Objects in S3, Google's and Azure's stores, or in one that speaks their protocols, by way of obstore.

Every call makes one attempt: obstore's own retries are off, because a conditional put that is sent again finds its
own object and reports it as somebody else's. ``patient_objects.py`` knows what was lost, and says so.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

from strom.errors import NotInstalled, StoreUnavailable, StromError
from strom.runtime.files import Bytes
from strom.runtime.objects.aws_keys import aws_keys
from strom.runtime.objects.object_place import ObjectPlace
from strom.runtime.objects.object_store import ObjectFacts, PutOutcome, check_key, check_prefix
from strom.runtime.objects.store_trouble import explained, is_no_bucket, no_bucket, status_in

CONNECT_TIMEOUT_S = 5
REQUEST_TIMEOUT_S = 30
LISTED_AT_ONCE = 1000
DELETED_AT_ONCE = 1000
"""Per call of obstore; it splits them by what the store takes at once."""

Result = TypeVar("Result")


class ObstoreObjects:
    """An :class:`~strom.runtime.objects.object_store.Objects` below a place's prefix."""

    def __init__(self, place: ObjectPlace) -> None:
        self.place = place
        self._prefix = f"{place.prefix}/" if place.prefix else ""

    def __repr__(self) -> str:
        return f"ObstoreObjects({str(self.place)!r})"

    async def put(self, key: str, content: Bytes) -> None:
        obstore, store, path = self._object(key)
        await self._asked(obstore.put_async(store, path, bytes(content)), key)

    async def put_if_absent(self, key: str, content: Bytes) -> PutOutcome:
        obstore, store, path = self._object(key)
        taken = (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError)
        try:
            await self._asked(obstore.put_async(store, path, bytes(content), mode="create"), key, taken)
        except taken as problem:
            if "ConditionalRequestConflict" in str(
                problem
            ):  # two puts at the same moment: neither may have won
                raise await self._trouble(problem) from None
            return PutOutcome.TAKEN
        return PutOutcome.STORED

    async def get(self, key: str) -> bytes:
        obstore, store, path = self._object(key)

        async def whole() -> bytes:
            return bytes(await (await obstore.get_async(store, path)).bytes_async())

        return await self._asked(whole(), key)

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        assert position >= 0
        obstore, store, path = self._object(key)
        if not length:
            await self.head(key)
            return b""
        generic = obstore.exceptions.GenericError
        try:
            found = await self._asked(
                obstore.get_range_async(store, path, start=position, length=length), key, (generic,)
            )
        except generic as problem:
            if status_in(str(problem)) == 416:
                return b""  # the range begins behind the end
            raise await self._trouble(problem) from None
        return bytes(found)

    async def head(self, key: str) -> ObjectFacts:
        obstore, store, path = self._object(key)
        found = await self._asked(obstore.head_async(store, path), key)
        return ObjectFacts(key, int(found["size"]))

    async def list(self, prefix: str = "", after: str = "") -> list[ObjectFacts]:
        parent = check_prefix(prefix)
        obstore, store = self._library(), self._store
        skipped = len(self._prefix)
        below = f"{self._prefix}{parent}".rstrip("/")  # the store lists whole folders

        async def pages() -> list[ObjectFacts]:
            stream = obstore.list(
                store,
                below or None,
                offset=f"{self._prefix}{after}" if after else None,
                chunk_size=LISTED_AT_ONCE,
            )
            return [
                ObjectFacts(item["path"][skipped:], int(item["size"]))
                async for page in stream
                for item in page
            ]

        found = await self._asked(pages(), prefix)
        return sorted(one for one in found if one.key.startswith(prefix) and one.key > after)

    async def delete(self, keys: Sequence[str]) -> None:
        paths = [self._object(key)[2] for key in keys]
        if not paths:
            return
        obstore, store = self._library(), self._store
        for start in range(0, len(paths), DELETED_AT_ONCE):
            several = paths[start : start + DELETED_AT_ONCE]
            try:
                await self._asked(obstore.delete_async(store, several), several[0])
            except FileNotFoundError:
                await self._delete_each(several)

    async def _delete_each(self, paths: Sequence[str]) -> None:
        """One by one: some stores stop at the first that is missing."""
        obstore, store = self._library(), self._store
        for path in paths:
            try:
                await self._asked(obstore.delete_async(store, path), path)
            except FileNotFoundError:
                continue

    # --- the library -----------------------------------------------------------------------------------------------

    def _object(self, key: str) -> tuple[Any, Any, str]:
        """The library, the store and the place in it of one object."""
        check_key(key)
        return self._library(), self._store, f"{self._prefix}{key}"

    def _library(self) -> Any:
        try:
            import obstore
        except ImportError:
            raise NotInstalled(
                "object stores need obstore: pip install 'strom[lake]'", extra="lake"
            ) from None
        return obstore

    @cached_property
    def _store(self) -> Any:
        self._library()
        return _OPENERS[self.place.kind](self.place)

    async def _asked(
        self, answer: Awaitable[Result], key: str, apart: tuple[type[BaseException], ...] = ()
    ) -> Result:
        """The answer; errors of obstore as ours, except those that the caller looks at himself."""
        from obstore.exceptions import BaseError

        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S + CONNECT_TIMEOUT_S):
                return await answer
        except apart:
            raise
        except TimeoutError:
            raise StoreUnavailable(
                f"no answer of the object store within {REQUEST_TIMEOUT_S} seconds", sent=True
            ) from None
        except FileNotFoundError as problem:
            if is_no_bucket(str(problem)):
                raise no_bucket(self.place) from None
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key) from None
        except BaseError as problem:
            raise await self._trouble(problem) from None

    async def _trouble(self, problem: BaseException) -> StromError:
        """An error of obstore as ours. Stores that hide what one may not see say of a missing bucket that it is
        forbidden: so a refusal is followed by a look at the bucket."""
        obstore = self._library()
        refused = (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError)
        denied = isinstance(problem, refused)
        found = explained(str(problem), self.place, denied=denied)
        if denied and found.facts.get("cause") == "credentials" and await self._bucket_is_missing():
            return no_bucket(self.place)
        return found

    async def _bucket_is_missing(self) -> bool:
        obstore, store = self._library(), self._store
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                async for _ in obstore.list(store, "no-such-folder", chunk_size=1):
                    break
        except FileNotFoundError:
            return True
        except (TimeoutError, obstore.exceptions.BaseError) as problem:
            return is_no_bucket(str(problem))
        return False


def _client(place: ObjectPlace) -> dict[str, Any]:
    return {
        "client_options": {
            "allow_http": (place.endpoint or "").startswith("http://"),
            "timeout": f"{REQUEST_TIMEOUT_S}s",
            "connect_timeout": f"{CONNECT_TIMEOUT_S}s",
        },
        "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=REQUEST_TIMEOUT_S)},
    }


def _set(**settings: str | None) -> dict[str, str]:
    return {name: value for name, value in settings.items() if value is not None}


def _s3(place: ObjectPlace) -> Any:
    from obstore.store import S3Store

    config: Any = {
        **(place.credentials or aws_keys()),
        **_set(
            aws_region=place.region,
            aws_endpoint=place.endpoint,
            aws_virtual_hosted_style_request="false" if place.path_style == "true" else "true",
        ),
    }
    return S3Store(place.bucket, config=config, **_client(place))


def _gcs(place: ObjectPlace) -> Any:
    from obstore.store import GCSStore

    config: Any = {**place.credentials, **_set(google_base_url=place.endpoint)}
    return GCSStore(place.bucket, config=config, **_client(place))


def _azure(place: ObjectPlace) -> Any:
    from obstore.store import AzureStore

    account = _set(azure_storage_account_name=place.options.get("azure.account"))
    config: Any = {**place.credentials, **account, **_set(azure_storage_endpoint=place.endpoint)}
    return AzureStore(place.bucket, config=config, **_client(place))


_OPENERS: dict[str, Callable[[ObjectPlace], Any]] = {"s3": _s3, "gs": _gcs, "az": _azure}
