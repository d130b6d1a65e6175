"""The blocking face of an object store, for threads that have no event loop: Spark's workers, commits into the lake."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from strom.runtime import loops
from strom.runtime.files import Bytes
from strom.runtime.objects.object_store import ObjectFacts, Objects, PutOutcome


class BlockingObjects:
    """The calls of an :class:`~strom.runtime.objects.object_store.Objects`, each of which returns when it is done.

    ``run`` runs a coroutine to its end; by itself each call gets a loop of its own, so any number of threads may call.
    """

    def __init__(self, objects: Objects, run: Callable[[Coroutine[Any, Any, Any]], Any] = loops.run) -> None:
        self._objects = objects
        self._run = run

    def put(self, key: str, content: Bytes) -> None:
        self._run(self._objects.put(key, content))

    def put_if_absent(self, key: str, content: Bytes) -> PutOutcome:
        outcome: PutOutcome = self._run(self._objects.put_if_absent(key, content))
        return outcome

    def get(self, key: str) -> bytes:
        return bytes(self._run(self._objects.get(key)))

    def get_range(self, key: str, position: int, length: int) -> bytes:
        return bytes(self._run(self._objects.get_range(key, position, length)))

    def head(self, key: str) -> ObjectFacts:
        found: ObjectFacts = self._run(self._objects.head(key))
        return found

    def list(self, prefix: str = "", after: str = "") -> list[ObjectFacts]:
        found: list[ObjectFacts] = self._run(self._objects.list(prefix, after))
        return found

    def delete(self, keys: Sequence[str]) -> None:
        self._run(self._objects.delete(keys))
