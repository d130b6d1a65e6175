"""A chain of delta joins as one query: it runs while all of them do, fails with any, and ends them all."""

from __future__ import annotations

from typing import Any, cast

import pytest

from strom.spark.joins.delta import join_query
from strom.spark.joins.delta.join_query import JoinQuery


@pytest.fixture(autouse=True)
def _no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far a query is stands in its checkpoint, and these have none."""
    monkeypatch.setattr(join_query, "FollowedSides", lambda query, sides: None)


class Query:
    """Stands for one of Spark's."""

    def __init__(self, name: str, stopped: list[str]) -> None:
        self.name = name
        self.isActive = True
        self.failure: Exception | None = None
        self.ends = False
        self._stopped = stopped

    def stop(self) -> None:
        self.isActive = False
        self._stopped.append(self.name)

    def exception(self) -> Exception | None:
        return self.failure

    def awaitTermination(self, timeout: float) -> bool:
        return self.ends

    def fail(self) -> None:
        self.isActive, self.failure = False, RuntimeError(f"{self.name} failed")


class Metrics:
    def __init__(self) -> None:
        self.followed: Any = None

    def follow(self, missing: Any) -> None:
        self.followed = missing


class Chain:
    """Four joins: the last one reads what two others write, which both read the first one's."""

    def __init__(self) -> None:
        self.stopped: list[str] = []
        self.queries = {name: Query(name, self.stopped) for name in ("first", "left", "right", "last")}
        first = self._join("first")
        self.last = self._join("last", self._join("left", first), self._join("right", first))

    def _join(self, name: str, *before: JoinQuery) -> JoinQuery:
        metrics = Metrics()
        made = JoinQuery(cast(Any, self.queries[name]), name, [], cast(Any, metrics), [], before)
        assert metrics.followed is not None
        return made


def test_everything_before_it_belongs_to_it_once_the_first_one_first() -> None:
    assert [one.table for one in Chain().last.all] == ["first", "left", "right", "last"]


def test_a_stop_ends_all_of_them_the_last_one_first() -> None:
    chain = Chain()
    assert chain.last.active
    chain.last.stop()
    assert chain.stopped == ["last", "right", "left", "first"]
    assert not chain.last.active


@pytest.mark.parametrize("name", ["first", "left", "right", "last"])
def test_it_is_active_while_all_of_them_are(name: str) -> None:
    chain = Chain()
    chain.queries[name].isActive = False
    assert not chain.last.active


@pytest.mark.parametrize("name", ["first", "left", "right"])
def test_a_failure_of_one_before_is_raised_and_stops_all(name: str) -> None:
    chain = Chain()
    chain.queries[name].fail()
    with pytest.raises(RuntimeError, match=f"{name} failed"):
        chain.last.wait(60)
    assert chain.stopped == ["last", "right", "left", "first"]


def test_a_wait_tells_whether_it_has_ended() -> None:
    chain = Chain()
    assert not chain.last.wait(0.0)
    chain.queries["first"].isActive = False  # it ended without a failure: all there was is written
    assert not chain.last.wait(0.0)
    chain.queries["last"].ends = True
    assert chain.last.wait(0.0)
    assert chain.last.wait()
    assert chain.stopped == []
