"""The metadata contract, on every store there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from contracts.metadata_contract import MetadataContract
from strom.metadata.embedded import EmbeddedStore
from strom.metadata.memory import MemoryStore
from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.metadata.zookeeper.store import ZooKeeperStore
from strom.runtime.files import LocalFiles
from strom.testing.mortal import Life
from strom.testing.random import SeededRandomness
from strom.testing.remote_store import RemoteStore, StoreWeather
from strom.testing.zookeeper import ZooKeeperEnsemble

ROOTS = count()


class TestMemoryStore(MetadataContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def other(self, store: MemoryStore) -> MemoryStore:
        return store.another()


class TestRemoteStore(MetadataContract):
    """As the processes of a simulated cluster have it, while all is well."""

    @pytest.fixture
    def shared(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def store(self, shared: MemoryStore) -> RemoteStore:
        return RemoteStore(Life("store"), shared, StoreWeather(SeededRandomness(1), session_s=1.0))

    @pytest.fixture
    def other(self, shared: MemoryStore) -> RemoteStore:
        return RemoteStore(Life("other"), shared, StoreWeather(SeededRandomness(1), session_s=1.0))


class TestEmbeddedStore(MetadataContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[EmbeddedStore]:
        store = EmbeddedStore.open(LocalFiles(), str(tmp_path / "data"), owner=True)
        yield store
        store.close()

    @pytest.fixture
    def other(self, store: EmbeddedStore, tmp_path: Path) -> Iterator[EmbeddedStore]:
        other = EmbeddedStore.open(LocalFiles(), str(tmp_path / "data"), owner=False)
        yield other
        other.close()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper"), size=1) as zookeeper:
        yield zookeeper


class TestZooKeeperStore(MetadataContract):
    @pytest.fixture
    def options(self, zookeeper: ZooKeeperEnsemble) -> ZooKeeperOptions:
        return ZooKeeperOptions(zookeeper.addresses, root=f"/test-{next(ROOTS)}", session_timeout_s=10.0)

    @pytest.fixture
    def store(self, options: ZooKeeperOptions) -> Iterator[ZooKeeperStore]:
        store = ZooKeeperStore.open(options)
        yield store
        store.close()

    @pytest.fixture
    def other(self, store: ZooKeeperStore, options: ZooKeeperOptions) -> Iterator[ZooKeeperStore]:
        other = ZooKeeperStore.open(options, create=False)
        yield other
        other.close()
