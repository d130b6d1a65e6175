"""Announcements whose requests get lost on the way: they are made, whatever the answer was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from metadata.zookeeper.conftest import OpenStore
from strom.errors import Disconnected
from strom.metadata.zookeeper.operations import NodeFacts, Operation
from strom.metadata.zookeeper.session import Deadline, ZooKeeperSession


@pytest.mark.parametrize("arrives", [False, True], ids=["the request was lost", "the answer was lost"])
def test_an_announcement_whose_outcome_is_unknown_is_looked_for(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    store, other = open_store(), open_store()
    multi, lost = ZooKeeperSession.multi, [False]

    def loses_the_first(
        session: ZooKeeperSession, operations: Sequence[Operation], deadline: Deadline
    ) -> list[NodeFacts]:
        found = multi(session, operations, deadline) if lost[0] or arrives else []
        if not lost[0]:
            lost[0] = True
            raise Disconnected("the connection was lost")
        return found

    monkeypatch.setattr(ZooKeeperSession, "multi", loses_the_first)
    announcement = store.announce("alive/1", b"x")
    found = other.read().entries["alive/1"]
    assert (lost, announcement.stands, found.value) == ([True], True, b"x")
