"""The metadata contract, on every store there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.metadata_contract import MetadataContract
from strom.metadata.embedded import EmbeddedStore
from strom.metadata.memory import MemoryStore
from strom.runtime.files import LocalFiles


class TestMemoryStore(MetadataContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    @pytest.fixture
    def other(self, store: MemoryStore) -> MemoryStore:
        return store


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
