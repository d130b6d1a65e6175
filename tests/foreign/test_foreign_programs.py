"""Programs on the peer's own clients, in Java and in Rust, on tables with three copies: while every bucket gets another
leader again and again, and while servers are killed, each row they were told is written is there once, and in order.

The clients are fetched when a test needs them: the jar from Maven Central by Apache Ivy, the crate by cargo.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from benchmarks import peer_jars

import strom
from foreign.program import ForeignProgram
from strom.errors import InvalidRequest
from strom.testing.cluster_process import ClusterProcess
from waiting import until_blocking

HERE = Path(__file__).parent
CLIENT = peer_jars.Peer(
    "fluss-client",
    (peer_jars.Module("org.apache.fluss", "fluss-client", "0.9.1-incubating"), peer_jars.LOGGING),
)
ROWS_A_ROUND = 50
KEYS = 20
MOVES = 20

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3_600)]


def java_program(folder: Path) -> Sequence[str | Path]:
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("NOT TRIED: there is no javac; install a JDK of 17")
    jars = peer_jars.class_path(CLIENT)
    subprocess.run(
        [compiler, "-cp", jars, "-d", folder / "classes", HERE / "java" / "SurvivingProgram.java"], check=True
    )
    return [
        *(peer_jars.java(), "--add-opens=java.base/java.nio=ALL-UNNAMED", "-Xmx256m"),
        *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{folder / 'classes'}:{jars}"),
        "SurvivingProgram",
    ]


def rust_program(folder: Path) -> Sequence[str | Path]:
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("NOT TRIED: there is no cargo; install Rust from 1.85 on")
    target = peer_jars.home() / "surviving-program"
    crate = shutil.copytree(HERE / "rust", folder / "crate")  # cargo writes a file beside the source
    manifest = crate / "Cargo.toml"
    subprocess.run(
        [cargo, "build", "--quiet", "--manifest-path", manifest, "--target-dir", target], check=True
    )
    return [target / "debug" / "surviving-program"]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    settings = {"leader.return.interval": 0}
    # The patience of the programs, a minute, is for what happens to the cluster.
    subprocess.run([sys.executable, "-m", "strom.kv.kernels.compile"], check=True)
    with ClusterProcess(
        tmp_path_factory.mktemp("foreign"), tablets=3, coordinators=2, settings=settings
    ) as running:
        yield running


@pytest.mark.parametrize("made", [java_program, rust_program], ids=["java", "rust"])
def test_a_program_of_the_peer_loses_and_doubles_nothing_while_leaders_move_and_servers_die(
    machines: ClusterProcess, tmp_path: Path, made: Callable[[Path], Sequence[str | Path]]
) -> None:
    word = made.__name__
    program = ForeignProgram([*made(tmp_path), machines.address, word], tmp_path / "output.txt")
    try:
        program.goes_on()
        with strom.connect(machines.address) as db:
            tables = [f"{word}_log", f"{word}_keys"]
            for table in tables:
                assert all(len(one.servers) == 3 for one in db.bucket_copies(table)), "three copies"
            for _ in range(MOVES):
                for table in tables:
                    _lead_elsewhere(db, table)
                program.goes_on()
            for number, killed in machines.tablets.items():
                for table in tables:
                    _all_led_by(db, table, number)
                killed.kill()
                program.goes_on()
                killed.start()
                program.goes_on()
            rounds = program.end()
            assert rounds >= 2 * MOVES
            _check(db, tables, rounds)
            print(f"{word}: {rounds} rounds, {rounds * ROWS_A_ROUND} rows")
    finally:
        program.close()


def _lead_elsewhere(db: strom.Database, table: str) -> None:
    """Let the next of its copies in sync lead every bucket."""
    for one in db.bucket_copies(table):
        others = [server for server in one.in_sync if server != one.leader]
        following = [server for server in others if one.leader is not None and server > one.leader]
        if others:
            _led_by(db, table, one.bucket, (following or others)[0])


def _led_by(db: strom.Database, table: str, bucket: int, server: int) -> None:
    """Let a server lead a bucket as soon as it can: on a busy machine its copy may leave the set for a moment."""

    def leads() -> bool:
        try:
            db.move_bucket(table, bucket, leader=server)
        except InvalidRequest:
            return False
        return True

    until_blocking(leads)


def _all_led_by(db: strom.Database, table: str, server: int) -> None:
    """Let one server lead every bucket, as soon as its copies are in sync."""
    until_blocking(lambda: all(server in one.in_sync for one in db.bucket_copies(table)))
    for one in db.bucket_copies(table):
        _led_by(db, table, one.bucket, server)


def _check(db: strom.Database, tables: Sequence[str], rounds: int) -> None:
    """What our own client finds of it."""
    log, keys = (db.table(one) for one in tables)
    rows = log.scan().to_arrow().to_pylist()
    assert sorted(row["number"] for row in rows) == list(range(rounds * ROWS_A_ROUND))
    found = {row["number"]: row["text"] for row in keys.scan().to_arrow().to_pylist()}
    assert found == dict.fromkeys(range(KEYS), f"round {rounds - 1}")
