"""A cluster gets another version, one process after the other, while somebody writes and looks up.

``STROM_OTHER_VERSION`` names the other one: a commit of this repository, 30 commits ago unless it says so. Its source
is taken from git, and the environment is this one's.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import strom
from cli.command import strom as command
from integration.busy import Busy
from strom.testing.cluster_process import ClusterProcess, RoleProcess
from waiting import until_blocking

ROOT = Path(__file__).parents[2]
OTHER = os.environ.get("STROM_OTHER_VERSION", "HEAD~30")
THERE_S = 120.0


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the other version; the kernels of both are compiled, as operating.md says."""
    folder = tmp_path_factory.mktemp("other")
    taken = subprocess.run(
        ["git", "archive", "--format=tar", OTHER, "src"], cwd=ROOT, capture_output=True, check=False
    )
    if taken.returncode:
        pytest.skip(f"NOT TRIED: git has no {OTHER}: {taken.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(taken.stdout)) as source:
        source.extractall(folder, filter="data")
    for source in (folder / "src", ROOT / "src"):
        subprocess.run(
            [sys.executable, "-m", "strom.kv.kernels.compile"],
            env=os.environ | {"PYTHONPATH": str(source)},
            check=True,
            cwd=folder,
        )
    return folder / "src"


def running_from(machines: ClusterProcess, source: Path | None) -> ClusterProcess:
    """Their next starts are of this source."""
    for one in machines.roles:
        one.environment = {"PYTHONPATH": str(ROOT / "src" if source is None else source)}
    return machines


def version_of(one: RoleProcess, source: Path) -> bool:
    """Whether it runs from this source: the kernel knows what it was started with."""
    assert one.pid is not None
    begun_with = Path(f"/proc/{one.pid}/environ").read_bytes().split(b"\0")
    return f"PYTHONPATH={source}".encode() in begun_with


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[ClusterProcess]:
    """Three tablet servers and two coordinators."""
    made = ClusterProcess(tmp_path, tablets=3, coordinators=2, settings={"default.replication.factor": 3})
    try:
        yield made
    finally:
        made.close()


@pytest.mark.torture
@pytest.mark.parametrize("forward", [True, False], ids=["there", "back"])
def test_another_version_is_brought_in_without_a_failed_request(
    machines: ClusterProcess, other: Path, *, forward: bool
) -> None:
    running_from(machines, other if forward else None).start()
    with strom.connect(machines.address) as db, Busy(db, machines.address) as busy:
        assert all(version_of(one, other) is forward for one in machines.roles)
        running_from(machines, None if forward else other)
        for one in machines.roles:
            busy.goes_on()
            assert one.stop() == 0
            busy.goes_on()
            one.start()
            assert version_of(one, other) is not forward
            for said in ("all there", "all copies in sync"):
                until_blocking(lambda said=said: said in status(machines), THERE_S)
        busy.goes_on()
        busy.end()
        assert busy.errors == []
        assert busy.rows() == list(range(busy.written))


def status(machines: ClusterProcess) -> str:
    return command("cluster", "status", server=machines.address).out
