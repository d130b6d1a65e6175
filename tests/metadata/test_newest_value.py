from __future__ import annotations

import threading

import pytest

from strom.metadata.newest_value import Newest


def test_each_value_is_made_from_the_one_before() -> None:
    newest = Newest(1)
    assert newest.change(lambda value: value + 1) == (1, 2)
    assert newest.value == 2


def test_a_slow_thread_goes_on_from_what_a_quick_one_made() -> None:
    newest, begun, go = Newest(""), threading.Event(), threading.Event()

    def slowly(value: str) -> str:
        begun.set()
        assert go.wait(10)
        return value + "slow "

    slow = threading.Thread(target=lambda: newest.change(slowly))
    slow.start()
    assert begun.wait(10)
    quick = threading.Thread(target=lambda: newest.change(lambda value: value + "quick"))
    quick.start()
    assert newest.value == ""  # reading does not wait
    go.set()
    slow.join(10)
    quick.join(10)
    assert newest.value == "slow quick"


def test_a_step_that_fails_leaves_the_value() -> None:
    newest = Newest(1)
    with pytest.raises(ZeroDivisionError):
        newest.change(lambda value: value // 0)
    assert newest.change(lambda value: value + 1) == (1, 2)
