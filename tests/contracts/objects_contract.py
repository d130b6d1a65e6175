"""What every object store does. A runner gives ``objects``, empty, and ``run``, which runs a coroutine to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from strom.runtime.objects.blocking_objects import BlockingObjects
from strom.runtime.objects.object_store import KEY_LENGTH_MAX, Objects, PutOutcome

TOO_LONG = "x" * (KEY_LENGTH_MAX + 1)
STORED, TAKEN = PutOutcome.STORED, PutOutcome.TAKEN

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def keys(objects: BlockingObjects, prefix: str = "", after: str = "") -> list[str]:
    """The keys that a listing finds."""
    return [one.key for one in objects.list(prefix, after)]


class ObjectsContract:
    """Inherit, and give the fixtures ``objects`` and ``run``."""

    @pytest.fixture
    def store(self, objects: Objects, run: Run) -> BlockingObjects:
        """The same by its blocking face."""
        return BlockingObjects(objects, run)

    def test_an_object_is_read_back_as_it_was_put(self, store: BlockingObjects) -> None:
        store.put("tables/1/a.parquet", b"\x00\xff")
        store.put("empty", memoryview(b""))
        assert store.get("tables/1/a.parquet") == b"\x00\xff"
        assert store.get("empty") == b""

    def test_a_put_replaces_the_object_of_that_key(self, store: BlockingObjects) -> None:
        store.put("a", b"first, and longer")
        store.put("a", b"second")
        assert store.get("a") == b"second"

    def test_the_bytes_are_the_callers_again_after_a_put(self, store: BlockingObjects) -> None:
        content = bytearray(b"abc")
        store.put("a", content)
        content[:] = b"xyz"
        assert store.get("a") == b"abc"

    def test_a_missing_object_is_not_found(self, store: BlockingObjects) -> None:
        for ask in (
            lambda: store.get("a"),
            lambda: store.get_range("a", 0, 1),
            lambda: store.get_range("a", 0, 0),
            lambda: store.head("a"),
        ):
            with pytest.raises(FileNotFoundError):
                ask()
        assert keys(store) == []

    def test_the_head_of_an_object_tells_its_size(self, store: BlockingObjects) -> None:
        store.put("x/a", b"abcdef")
        store.put("x/empty", b"")
        assert store.head("x/a") == ("x/a", 6)
        assert store.head("x/empty") == ("x/empty", 0)

    def test_a_range_stops_at_the_end_of_the_object(self, store: BlockingObjects) -> None:
        store.put("a", b"abcdef")
        assert store.get_range("a", 2, 3) == b"cde"
        assert store.get_range("a", 4, 100) == b"ef"
        assert store.get_range("a", 3, 0) == b""
        assert store.get_range("a", 6, 1) == b""
        assert store.get_range("a", 60, 1) == b""

    def test_a_prefix_selects_by_the_beginning_of_the_key(self, store: BlockingObjects) -> None:
        there = ["a", "a1/x", "a1/y/z", "a12/x", "b"]
        for key in reversed(there):
            store.put(key, key.encode())
        assert keys(store) == sorted(there)
        assert keys(store, "a1") == ["a1/x", "a1/y/z", "a12/x"]
        assert keys(store, "a1/") == ["a1/x", "a1/y/z"]
        assert keys(store, "a1/y/") == ["a1/y/z"]
        assert keys(store, "a1/y/zz") == []
        assert keys(store, "none/") == []
        assert [one.size for one in store.list("a1")] == [4, 6, 5]

    def test_a_listing_goes_on_after_a_key(self, store: BlockingObjects) -> None:
        for number in range(12):
            store.put(f"m/{number:020d}", b"")
        store.put("n", b"")
        assert keys(store, "m/", f"m/{8:020d}") == [f"m/{number:020d}" for number in (9, 10, 11)]
        assert keys(store, "m/", f"m/{11:020d}") == []
        assert keys(store, "", f"m/{11:020d}") == ["n"]
        assert len(keys(store, "m/", "a")) == 12

    def test_deleted_objects_are_gone_and_deleting_nothing_is_fine(self, store: BlockingObjects) -> None:
        for key in ("x/a", "x/b", "x/c", "y"):
            store.put(key, b"1")
        store.delete(["x/a", "never/there", "y"])
        store.delete(["x/a"])
        store.delete([])
        assert keys(store) == ["x/b", "x/c"]

    def test_put_if_absent_keeps_what_is_there(self, store: BlockingObjects) -> None:
        assert store.put_if_absent("a", b"first") is STORED
        assert store.put_if_absent("a", b"second") is not STORED
        assert store.get("a") == b"first"
        store.delete(["a"])
        assert store.put_if_absent("a", b"third") is STORED
        assert store.get("a") == b"third"

    def test_of_many_who_put_if_absent_one_wins(
        self, objects: Objects, store: BlockingObjects, run: Run
    ) -> None:
        async def race() -> list[PutOutcome]:
            racers = (objects.put_if_absent("commits/1", b"%d" % number) for number in range(8))
            return await asyncio.gather(*racers)

        outcomes = run(race())
        winner = int(store.get("commits/1"))
        assert outcomes[winner] is not TAKEN
        assert [one for number, one in enumerate(outcomes) if one is STORED and number != winner] == []
        assert keys(store) == ["commits/1"]

    @pytest.mark.parametrize(
        "key",
        [
            "",
            "/a",
            "a/",
            "a//b",
            "..",
            "a/../b",
            ".hidden",
            "a/.b",
            "a\\b",
            "a b",
            "ä",
            "a\n",
            "a.tmp",
            "a.tmp/b",
            TOO_LONG,
        ],
    )
    def test_what_could_leave_the_store_is_not_a_key(self, store: BlockingObjects, key: str) -> None:
        for use in (
            lambda: store.put(key, b""),
            lambda: store.put_if_absent(key, b""),
            lambda: store.get(key),
            lambda: store.get_range(key, 0, 1),
            lambda: store.head(key),
            lambda: store.delete([key]),
        ):
            with pytest.raises(ValueError):
                use()
        assert keys(store) == []

    def test_a_prefix_cannot_leave_the_store_either(self, store: BlockingObjects) -> None:
        store.put("a", b"")
        for prefix in ("../", "/etc/", "a/../../"):
            with pytest.raises(ValueError):
                store.list(prefix)
        assert keys(store, "a") == ["a"]
