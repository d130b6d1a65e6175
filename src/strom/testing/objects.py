"""An object store in memory, which can fail before and, worse, after it has stored something."""

from __future__ import annotations

import errno
import os
import threading
from typing import Literal

from strom.runtime.files import Bytes
from strom.runtime.objects.object_store import check_key


class MemoryObjects:
    """A :class:`strom.runtime.objects.object_store.Objects` in memory."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._mutex = threading.Lock()
        self._put_to_fail: Literal["before", "after"] | None = None

    def fail_next_put(self, when: Literal["before", "after"]) -> None:
        """The next put raises ``OSError``, with nothing stored, or although the object is stored."""
        self._put_to_fail = when

    def put(self, key: str, content: Bytes) -> None:
        self._put(key, content, replace=True)

    def put_if_absent(self, key: str, content: Bytes) -> bool:
        return self._put(key, content, replace=False)

    def _put(self, key: str, content: Bytes, *, replace: bool) -> bool:
        check_key(key)
        with self._mutex:
            failing, self._put_to_fail = self._put_to_fail, None
            if failing == "before":
                raise OSError(errno.EIO, os.strerror(errno.EIO), key)
            if key in self._objects and not replace:
                return False
            self._objects[key] = bytes(content)
            if failing == "after":
                raise OSError(errno.EIO, os.strerror(errno.EIO), key)
            return True

    def get(self, key: str) -> bytes:
        check_key(key)
        content = self._objects.get(key)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        return content

    def get_range(self, key: str, position: int, length: int) -> bytes:
        assert position >= 0
        assert length >= 0
        return self.get(key)[position : position + length]

    def list(self, prefix: str = "") -> list[str]:
        parent = prefix.rpartition("/")[0]
        if parent:
            check_key(parent)
        with self._mutex:
            return sorted(key for key in self._objects if key.startswith(prefix))

    def delete(self, key: str) -> None:
        check_key(key)
        with self._mutex:
            self._objects.pop(key, None)
