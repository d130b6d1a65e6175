"""A cluster of real processes for the tests of this folder: three tablet servers, three ZooKeepers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strom.testing.cluster_process import ClusterProcess


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    folder = tmp_path_factory.mktemp("pipeline")
    settings = {"lake.warehouse": f"file://{folder / 'warehouse'}"}
    with ClusterProcess(folder, tablets=3, coordinators=2, zookeepers=3, settings=settings) as running:
        yield running
