"""``strom zookeeper``: one process that is ZooKeeper, private, alone on its folder, and gone when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from strom.errors import InvalidSetting, NotInstalled
from strom.server.zookeeper.class_path import JARS, jars_in
from strom.server.zookeeper.ensemble import EnsembleMember, check_member, configuration, members_of
from strom.testing.process import alive
from strom.testing.zookeeper import ZooKeeperProcess, free_ports
from waiting import until_blocking


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    with ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), free_ports(1)[0]) as zookeeper:
        yield zookeeper


def processes_of(zookeeper: ZooKeeperProcess) -> set[int]:
    """Every process that has this ZooKeeper's folder in its command line."""
    found = set()
    for process in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue  # it has just ended
        if str(zookeeper.folder).encode() in words and process != os.getpid():
            found.add(process)
    return {process for process in found if alive(process)}


def command(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "strom.cli.main", "zookeeper", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_it_serves_once_it_says_so_and_lasts_over_a_restart(tmp_path: Path) -> None:
    zookeeper = ZooKeeperProcess(tmp_path, free_ports(1)[0]).start()
    assert f"ZooKeeper is ready at {zookeeper.address}" in zookeeper.output()
    client = KazooClient(zookeeper.address, timeout=2.0)
    client.start()
    client.create("/kept", b"x")
    client.stop()
    client.close()
    assert zookeeper.stop() == 143, "ended by SIGTERM, as Java reports it"
    zookeeper.start()
    client = KazooClient(zookeeper.address)
    client.start()
    assert client.get("/kept")[0] == b"x"
    client.stop()
    client.close()
    os.kill(zookeeper.pid, signal.SIGKILL)  # and nobody lets go of the leash
    until_blocking(lambda: processes_of(zookeeper) == set())
    zookeeper.kill()


def test_its_folder_is_private_and_it_listens_on_this_machine_alone(zookeeper: ZooKeeperProcess) -> None:
    assert (zookeeper.folder / "data").stat().st_mode & 0o777 == 0o700
    configured = (zookeeper.folder / "data" / "zoo.cfg").read_text().splitlines()
    assert "clientPortAddress=127.0.0.1" in configured
    assert "tickTime=500" in configured
    assert "admin.enableServer=false" in configured


def test_a_folder_has_one_zookeeper_at_a_time(zookeeper: ZooKeeperProcess) -> None:
    refused = command("--data", zookeeper.folder / "data", "--port", free_ports(1)[0])
    assert refused.returncode == 1
    assert "another ZooKeeper runs on" in refused.stderr
    assert zookeeper.mode() == "standalone"


def test_a_port_in_use_is_said_in_words(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    refused = command("--data", tmp_path / "other", "--port", zookeeper.port)
    assert refused.returncode == 1
    assert f"another program listens on 127.0.0.1:{zookeeper.port}" in refused.stderr


def test_a_folder_that_cannot_be_made_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = command("--data", tmp_path / "file" / "data", "--port", free_ports(1)[0])
    assert refused.returncode == 1
    assert "cannot be the folder of a ZooKeeper" in refused.stderr


def test_whoever_starts_it_and_dies_takes_it_along(tmp_path: Path) -> None:
    """The starter is killed, so that it cannot stop anything: the leash does."""
    zookeeper = ZooKeeperProcess(tmp_path, free_ports(1)[0])
    starter = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import sys; from pathlib import Path; from strom.testing.zookeeper import ZooKeeperProcess\n"
            "ZooKeeperProcess(Path(sys.argv[1]), int(sys.argv[2])).start(); print('ready', flush=True)\n"
            "import signal; signal.pause()",
            *(str(tmp_path), str(zookeeper.port)),
        ],
        stdout=subprocess.PIPE,
    )
    assert starter.stdout is not None
    assert starter.stdout.readline() == b"ready\n"
    assert len(processes_of(zookeeper) - {starter.pid}) >= 1
    starter.kill()
    starter.wait()
    starter.stdout.close()
    until_blocking(lambda: not processes_of(zookeeper))


@pytest.mark.parametrize(
    "peers", ["1", "1=a", "1=a:1", "0=a:1:2", "300=a:1:2", "1=a:1:70000", "1=a:1:2;3", "1=a :1:2"]
)
def test_a_server_that_is_none_is_refused(peers: str) -> None:
    with pytest.raises(InvalidSetting, match="ID=HOST:PORT:ELECTION_PORT"):
        members_of(peers)


def test_servers_have_ids_of_their_own_and_know_which_one_they_are() -> None:
    members = members_of("1=a:2888:3888, 2=[::1]:2889:3889")
    assert members == {1: EnsembleMember(1, "a", 2888, 3888), 2: EnsembleMember(2, "[::1]", 2889, 3889)}
    with pytest.raises(InvalidSetting, match="two servers"):
        members_of("1=a:1:2,1=b:1:2")
    check_member(1, members)
    check_member(None, {})
    with pytest.raises(InvalidSetting, match="not among"):
        check_member(3, members)
    with pytest.raises(InvalidSetting, match="both --id and --peers"):
        check_member(None, members)
    with pytest.raises(InvalidSetting, match="both --id and --peers"):
        check_member(1, {})
    lines = configuration("/data", "0.0.0.0", 2181, list(members.values())).splitlines()
    assert lines[-2:] == ["server.1=a:2888:3888", "server.2=[::1]:2889:3889"]


def test_jars_that_are_missing_are_named(tmp_path: Path) -> None:
    for name in JARS[:-1]:
        (tmp_path / f"{name}-1.2.3.jar").touch()
    with pytest.raises(NotInstalled, match=f"{JARS[-1]}.*pip install"):
        jars_in(tmp_path)
    (tmp_path / f"{JARS[-1]}-4.jar").touch()
    (tmp_path / "zookeeper-extras-9.jar").touch()
    assert [Path(path).name for path in jars_in(tmp_path)][:2] == [
        "zookeeper-1.2.3.jar",
        "zookeeper-jute-1.2.3.jar",
    ]
