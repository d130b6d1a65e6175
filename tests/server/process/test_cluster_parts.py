"""What the servers of a cluster take from their settings: where they listen, and where the lake is."""

from __future__ import annotations

import pytest

from strom.coordinator.catalog import ListenerAddress
from strom.errors import FolderInUse, InvalidSetting
from strom.runtime.settings import load
from strom.server.process.cluster_parts import ClusterPlace, cluster_lake, lock_place
from strom.server.process.coordinator_node import limits_of
from strom.testing.disk import ForgettingDisk


def place(**flags: str) -> ClusterPlace:
    names = {"inner": "cluster.listener", "shown": "cluster.advertised-listener", "bind": "bind.listeners"}
    return ClusterPlace.of(load(None, {}, {names[name]: value for name, value in flags.items()}))


@pytest.mark.parametrize(
    ("flags", "bound", "address"),
    [
        ({}, ("127.0.0.1", 0), ("127.0.0.1", 4711)),
        ({"inner": "10.0.0.1:9300"}, ("10.0.0.1", 9300), ("10.0.0.1", 9300)),
        ({"inner": "0.0.0.0:9300"}, ("0.0.0.0", 9300), ("127.0.0.1", 9300)),
        ({"inner": "0.0.0.0:9300", "shown": "db1:9300"}, ("0.0.0.0", 9300), ("db1", 9300)),
        ({"inner": "0.0.0.0:9300", "shown": "gate:80"}, ("0.0.0.0", 9300), ("gate", 80)),
        ({"inner": "0.0.0.0:0", "shown": "db1:0"}, ("0.0.0.0", 0), ("db1", 4711)),
        ({"inner": "[::1]:9300"}, ("::1", 9300), ("::1", 9300)),
    ],
)
def test_the_other_servers_get_the_advertised_address(
    flags: dict[str, str], bound: tuple[str, int], address: tuple[str, int]
) -> None:
    found = place(**flags)
    assert found.inner == bound
    assert found.inner_at(bound[1] or 4711) == ListenerAddress(*address)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"inner": "nowhere"}, r"cluster\.listener is 'nowhere'; it is written host:port"),
        ({"inner": ":9300"}, "host:port"),
        ({"inner": "h:99999"}, "host:port"),
        ({"shown": "h:x"}, r"cluster\.advertised-listener is 'h:x'"),
        ({"bind": "INNER://127.0.0.1:0"}, "names a listener INNER"),
        ({"bind": "CLIENT://0.0.0.0:0"}, "without a password"),
    ],
)
def test_what_cannot_be_meant_is_refused(flags: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        place(**flags)


def test_a_cluster_has_one_lake_whichever_server_is_asked() -> None:
    settings = load(
        None,
        {},
        {
            "lake.warehouse": "s3://bucket/lake",
            "lake.catalog": "rest",
            "lake.catalog.uri": "http://c",
            "data.dir": "/here",
        },
    )
    other = load(
        None,
        {},
        {
            "lake.warehouse": "s3://bucket/lake",
            "lake.catalog": "rest",
            "lake.catalog.uri": "http://c",
            "data.dir": "/there",
        },
    )
    assert cluster_lake(settings, "c1") == cluster_lake(other, "c1")
    assert cluster_lake(settings, "c1").owner != cluster_lake(settings, "c2").owner
    inside = cluster_lake(load(None, {}, {"data.dir": "/here"}), "c1")
    assert not inside.home, "no folder of a cluster holds all of it, so none brings the lake along"


def test_one_process_at_a_time_has_a_place() -> None:
    files = ForgettingDisk()
    lock = lock_place(files, "/data/coordinator", "coordinator")
    with pytest.raises(FolderInUse, match="another coordinator runs on /data/coordinator"):
        lock_place(files, "/data/coordinator", "coordinator")
    lock.release()
    lock_place(files, "/data/coordinator", "coordinator").release()


@pytest.mark.parametrize(
    ("flags", "factor", "replicated"),
    [
        ({}, 1, False),
        ({"default.replication.factor": "2"}, 2, False),
        ({"metadata.store": "zookeeper"}, 3, True),
        ({"metadata.store": "zookeeper", "default.replication.factor": "1"}, 1, True),
    ],
)
def test_a_cluster_keeps_three_copies_unless_it_is_told_otherwise(
    flags: dict[str, str], factor: int, replicated: bool
) -> None:
    limits = limits_of(load(None, {}, flags))
    assert (limits.replication_factor_default, limits.replicated) == (factor, replicated)
