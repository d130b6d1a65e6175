"""What every object store does. A runner gives one fixture: ``objects``, empty."""

from __future__ import annotations

import threading

import pytest

from strom.runtime.objects.object_store import KEY_LENGTH_MAX, Objects

TOO_LONG = "x" * (KEY_LENGTH_MAX + 1)


class ObjectsContract:
    """Inherit, and give the fixture ``objects``."""

    def test_an_object_is_read_back_as_it_was_put(self, objects: Objects) -> None:
        objects.put("tables/1/a.parquet", b"\x00\xff")
        objects.put("empty", memoryview(b""))
        assert objects.get("tables/1/a.parquet") == b"\x00\xff"
        assert objects.get("empty") == b""

    def test_a_put_replaces_the_object_of_that_key(self, objects: Objects) -> None:
        objects.put("a", b"first, and longer")
        objects.put("a", b"second")
        assert objects.get("a") == b"second"

    def test_the_bytes_are_the_callers_again_after_a_put(self, objects: Objects) -> None:
        content = bytearray(b"abc")
        objects.put("a", content)
        content[:] = b"xyz"
        assert objects.get("a") == b"abc"

    def test_a_missing_object_is_not_found(self, objects: Objects) -> None:
        with pytest.raises(FileNotFoundError):
            objects.get("a")
        with pytest.raises(FileNotFoundError):
            objects.get_range("a", 0, 1)
        assert objects.list() == []

    def test_a_range_stops_at_the_end_of_the_object(self, objects: Objects) -> None:
        objects.put("a", b"abcdef")
        assert objects.get_range("a", 2, 3) == b"cde"
        assert objects.get_range("a", 4, 100) == b"ef"
        assert objects.get_range("a", 6, 1) == b""
        assert objects.get_range("a", 60, 1) == b""

    def test_a_prefix_selects_by_the_beginning_of_the_key(self, objects: Objects) -> None:
        keys = ["a", "a1/x", "a1/y/z", "a12/x", "b"]
        for key in reversed(keys):
            objects.put(key, b"")
        assert objects.list() == sorted(keys)
        assert objects.list("a1") == ["a1/x", "a1/y/z", "a12/x"]
        assert objects.list("a1/") == ["a1/x", "a1/y/z"]
        assert objects.list("a1/y/") == ["a1/y/z"]
        assert objects.list("a1/y/zz") == []
        assert objects.list("none/") == []

    def test_a_deleted_object_is_gone_and_deleting_nothing_is_fine(self, objects: Objects) -> None:
        objects.put("x/a", b"1")
        objects.put("x/b", b"2")
        objects.delete("x/a")
        objects.delete("x/a")
        objects.delete("never/there")
        assert objects.list() == ["x/b"]

    def test_put_if_absent_keeps_what_is_there(self, objects: Objects) -> None:
        assert objects.put_if_absent("a", b"first")
        assert not objects.put_if_absent("a", b"second")
        assert objects.get("a") == b"first"
        objects.delete("a")
        assert objects.put_if_absent("a", b"third")
        assert objects.get("a") == b"third"

    def test_of_many_who_put_if_absent_one_wins(self, objects: Objects) -> None:
        won: list[int] = []

        def race(number: int) -> None:
            if objects.put_if_absent("commits/1", b"%d" % number):
                won.append(number)

        racers = [threading.Thread(target=race, args=(number,)) for number in range(8)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        assert len(won) == 1
        assert objects.get("commits/1") == b"%d" % won[0]
        assert objects.list() == ["commits/1"]

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
    def test_what_could_leave_the_store_is_not_a_key(self, objects: Objects, key: str) -> None:
        for use in (
            lambda: objects.put(key, b""),
            lambda: objects.put_if_absent(key, b""),
            lambda: objects.get(key),
            lambda: objects.get_range(key, 0, 1),
            lambda: objects.delete(key),
        ):
            with pytest.raises(ValueError):
                use()
        assert objects.list() == []

    def test_a_prefix_cannot_leave_the_store_either(self, objects: Objects) -> None:
        objects.put("a", b"")
        for prefix in ("../", "/etc/", "a/../../"):
            with pytest.raises(ValueError):
                objects.list(prefix)
        assert objects.list("a") == ["a"]
