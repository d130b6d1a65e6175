"""An object store that fails before it stores something, and after."""

from __future__ import annotations

import pytest

from strom.testing.objects import MemoryObjects


def test_a_put_can_fail_with_nothing_stored() -> None:
    objects = MemoryObjects()
    objects.fail_next_put("before")
    with pytest.raises(OSError):
        objects.put("a", b"x")
    assert objects.list() == []
    objects.put("a", b"x")
    assert objects.get("a") == b"x"


def test_a_put_can_fail_although_the_object_is_stored() -> None:
    objects = MemoryObjects()
    objects.fail_next_put("after")
    with pytest.raises(OSError):
        objects.put_if_absent("a", b"x")
    assert objects.get("a") == b"x"
    assert not objects.put_if_absent("a", b"y")
