"""Real servers for tests: one process, a coordinator with three tablet servers, and an S3 server beside them."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import kazoo.protocol.connection
import kazoo.retry
import pytest

from lake.s3_place import ENVIRONMENT, S3Server
from left_behind import Watch
from strom.testing.loop import VirtualLoop
from strom.testing.process import ServerProcess

os.environ.update(ENVIRONMENT)  # before anything starts a process of its own

QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Sparks of the tests live for seconds: Java that makes its best code of what ran often enough is not worth it."""
os.environ.update(SPARK_SUBMIT_OPTS=QUICK_JAVA, SPARK_LAUNCHER_OPTS=QUICK_JAVA)

TESTS = os.path.dirname(__file__) + os.sep

LISTENERS = {
    "bind.listeners": "CLIENT://127.0.0.1:0,SASL://127.0.0.1:0",
    "security.protocol.map": "SASL:sasl",
    "security.sasl.plain.credentials": "admin=admin-secret,alice=alice-secret",
}


@pytest.fixture(scope="session", autouse=True)
def sessions_draw_by_themselves() -> Iterator[None]:
    """Threads of kazoo draw pauses from the process's generator; Hypothesis, at work in it, takes that for its own."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (kazoo.retry, kazoo.protocol.connection):
            patch.setattr(module, "random", random.Random())
        yield


@pytest.fixture(scope="session", autouse=True)
def no_test_sleeps() -> Iterator[None]:
    """A real sleep makes a test slow when it is right and flaky when it is not: wait with ``waiting`` instead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", refuse_in_tests(time.sleep, lambda: True))
        patch.setattr(asyncio, "sleep", refuse_in_tests(asyncio.sleep, _loop_is_real))
        yield


def refuse_in_tests(sleep: Callable[..., Any], time_is_real: Callable[[], bool]) -> Callable[..., Any]:
    """``sleep``, for everybody but the tests. Virtual time may pass, and so may a turn of the loop (0 seconds)."""

    def sleep_unless_a_test_asks(seconds: float, *result: Any) -> Any:
        if seconds > 0 and _is_a_test(sys._getframe(1).f_code.co_filename) and time_is_real():
            pytest.fail("a test sleeps: wait for what is to happen (tests/waiting.py), or use virtual time")
        return sleep(seconds, *result)

    return sleep_unless_a_test_asks


LEFT_BEHIND = Watch()


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """A module ends what it starts: threads and processes that it leaves would run beside all tests that follow."""
    with LEFT_BEHIND.nothing_left():
        yield


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LEFT_BEHIND)


def _is_a_test(path: str) -> bool:
    return path.startswith(TESTS) and os.path.basename(path) != "waiting.py"


def _loop_is_real() -> bool:
    try:
        return not isinstance(asyncio.get_running_loop(), VirtualLoop)
    except RuntimeError:
        return False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Side by side, the tests of a file stay in one process. Those that ask for a Spark session share two of them: they
    are half of all, and a session waits for much of its time."""
    from xdist.scheduler import LoadScopeScheduling

    class ByProcess(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return _spark_of(file) or file

    return ByProcess(config, log)


SPARK = "tests/spark/"
PROGRAMS = SPARK + "programs/"
"""Their Sparks are in processes of their own, so that they may run anywhere."""


def _spark_of(file: str) -> str | None:
    """Which of the two Sparks a file's tests use. Both are to take about as long: nothing else takes longer."""
    if not file.startswith(SPARK) or file.startswith(PROGRAMS):
        return None
    first = "join" in file or file.startswith((SPARK + "tiering/", SPARK + "cluster/"))
    return "spark 1" if first else "spark 2"


LONG = (
    "api",
    "campaign",
    "cli",
    "cluster_histories",
    "integration",
    "joins",
    "lake",
    "replicas",
    "simulation",
    "stages",
)
"""Rooms with files that take long."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first: in the end every process has something left to do, and none a long file alone."""
    items.sort(key=_place_in_line)


def _place_in_line(item: pytest.Item) -> int:
    """The two Sparks, what starts a Spark of its own, rooms with long files, and all others."""
    if item.nodeid.startswith(SPARK):
        return 1 if item.nodeid.startswith(PROGRAMS) else 0
    return 2 if item.nodeid.split("/")[1] in LONG else 3


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
