"""Real servers for tests: one process, a coordinator with three tablet servers, and an S3 server beside them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from lake.s3_place import ENVIRONMENT, S3Server
from strom.testing.process import ServerProcess

os.environ.update(ENVIRONMENT)  # before anything starts a process of its own

LISTENERS = {
    "bind.listeners": "CLIENT://127.0.0.1:0,SASL://127.0.0.1:0",
    "security.protocol.map": "SASL:sasl",
    "security.sasl.plain.credentials": "admin=admin-secret,alice=alice-secret",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Side by side, the tests of a file stay in one process, and so do all that share a Spark: they are half of it."""
    from xdist.scheduler import LoadScopeScheduling

    class ByProcess(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return "spark" if file.startswith("tests/spark/") else file

    return ByProcess(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/spark/"))


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


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An object store; shared, so use a prefix of your own."""
    with S3Server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="session")
def s3_server(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One process whose warehouse is in the object store, with an SQLite catalog in its own folder."""
    folder = tmp_path_factory.mktemp("s3-server") / "data"
    with ServerProcess(folder, settings=LISTENERS | s3.settings("warehouse")) as running:
        yield running


@pytest.fixture(params=["one tablet", "three tablets"])
def either(request: pytest.FixtureRequest) -> ServerProcess:
    """Both of them, one after the other."""
    running: ServerProcess = request.getfixturevalue("server" if request.param == "one tablet" else "cluster")
    return running
