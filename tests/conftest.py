"""Real servers for tests: one process, and a coordinator with three tablet servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strom.testing.process import ServerProcess

LISTENERS = {
    "bind.listeners": "CLIENT://127.0.0.1:0,SASL://127.0.0.1:0",
    "security.protocol.map": "SASL:sasl",
    "security.sasl.plain.credentials": "admin=admin-secret,alice=alice-secret",
}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One process with every role; shared by all tests, so use table names of your own."""
    with ServerProcess(tmp_path_factory.mktemp("server") / "data", settings=LISTENERS) as running:
        yield running


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A coordinator with three tablet servers; shared as ``server`` is."""
    with ServerProcess(tmp_path_factory.mktemp("cluster") / "data", tablets=3, settings=LISTENERS) as running:
        yield running


@pytest.fixture(params=["one tablet", "three tablets"])
def either(request: pytest.FixtureRequest) -> ServerProcess:
    """Both of them, one after the other."""
    running: ServerProcess = request.getfixturevalue("server" if request.param == "one tablet" else "cluster")
    return running
