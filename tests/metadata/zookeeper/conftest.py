"""One ZooKeeper for all tests of this folder, each with a root of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from kazoo.client import KazooClient

from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.metadata.zookeeper.store import ZooKeeperStore
from strom.testing.zookeeper import ZooKeeperEnsemble

ROOTS = count()

OpenStore = Callable[..., ZooKeeperStore]


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper"), size=1) as zookeeper:
        yield zookeeper


@pytest.fixture(scope="module")
def raw(zookeeper: ZooKeeperEnsemble) -> Iterator[KazooClient]:
    """Whoever else may write to a ZooKeeper."""
    client = KazooClient(zookeeper.addresses)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def root() -> str:
    return f"/test-{next(ROOTS)}"


@pytest.fixture
def open_store(zookeeper: ZooKeeperEnsemble, root: str) -> Iterator[OpenStore]:
    """Opens stores, of this test's root unless told otherwise; closed at the end."""
    opened: list[ZooKeeperStore] = []

    def open_one(addresses: str | None = None, *, create: bool = True, **options: object) -> ZooKeeperStore:
        given = {"root": root, "session_timeout_s": 10.0, **options}
        store = ZooKeeperStore.open(
            ZooKeeperOptions(addresses or zookeeper.addresses, **given),  # type: ignore[arg-type]
            create=create,
        )
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()
