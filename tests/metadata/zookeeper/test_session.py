"""One session with ZooKeeper by itself: who waits for its connection, and what ends a wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.protocol.connection import ConnectionHandler

from strom.errors import Disconnected
from strom.metadata.zookeeper import session as session_module
from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.metadata.zookeeper.session import Deadline, ZooKeeperSession
from strom.runtime.clock import SystemClock
from strom.testing.zookeeper import ZooKeeperEnsemble

CLOCK = SystemClock()


@pytest.fixture
def session(zookeeper: ZooKeeperEnsemble) -> Iterator[ZooKeeperSession]:
    made = ZooKeeperSession(ZooKeeperOptions(zookeeper.addresses), CLOCK, lambda: None)
    yield made
    made.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_waits_for_a_connection_starts_the_library_again_that_gave_up(
    session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is being opened has nobody else who would."""
    attempts: list[object] = []
    attempt = ConnectionHandler._connect

    def fails_once(*arguments: object) -> object:
        attempts.append(arguments)
        if len(attempts) == 1:
            raise RuntimeError("a bug")
        return attempt(*arguments)

    monkeypatch.setattr(ConnectionHandler, "_connect", fails_once)
    monkeypatch.setattr(session_module, "REVIVE_S", 0.0)
    session.start(Deadline(CLOCK, 10.0))
    assert (session.connected, session.revivals) == (True, 1)
    assert session.get("/zookeeper", Deadline(CLOCK, 10.0)) is not None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_library_that_gives_up_again_and_again_is_not_started_all_the_time(
    session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object) -> object:
        raise RuntimeError("a bug")

    monkeypatch.setattr(ConnectionHandler, "_connect", fails)
    monkeypatch.setattr(session_module, "LOOK_AGAIN_S", 0.01)
    with pytest.raises(Disconnected, match="there is no connection"):
        session.start(Deadline(CLOCK, 0.3))
    assert session.revivals == 0, "it gave up less than a second ago"
