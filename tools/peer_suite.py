"""Run the test-suite that the pyfluss client publishes with its source against a Strom server.

    make peer                        every test, none left out
    make peer TABLETS=3 ARGS="-k admin"
    make peer SERVERS=3              against a cluster: ZooKeeper, two coordinators, three copies of every bucket
    make peer SERVERS=3 MOVING=1     the same, and every bucket gets another leader every few seconds

The source package comes from PyPI into a temporary folder and an environment of its own (`.venv-peer`); nothing of it
stays in this repository. Getting at the source package needs `cargo` on the path, because its build system asks for it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import strom
from strom.errors import StromError
from strom.testing.cluster_process import ClusterProcess
from strom.testing.process import ServerProcess

ROOT = Path(__file__).parent.parent
ENVIRONMENT = ROOT / ".venv-peer"
NEEDS = [
    "pyfluss==1.0.0",
    "maturin",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "filelock",
    "pyarrow",
    "pandas",
]
SETTINGS = {
    "bind.listeners": "CLIENT://127.0.0.1:0,SASL://127.0.0.1:0",
    "security.protocol.map": "SASL:sasl",
    "security.sasl.plain.credentials": "admin=admin-secret,alice=alice-secret",
}
COPIES = 3
MOVE_EVERY_S = 3.0
LOOK_EVERY_S = 0.1


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers below are stopped too
    options = _options()
    python = _environment()
    with tempfile.TemporaryDirectory(prefix="strom-peer-") as scratch, ExitStack() as running:
        suite = _source(python, Path(scratch)) / "bindings" / "python" / "test"
        addresses = running.enter_context(_served(Path(scratch) / "data", options))
        copies: Counter[int] = Counter()
        if options.servers is not None:
            running.enter_context(_counting(addresses["CLIENT"], copies))
        if options.moving is not None:
            running.enter_context(_moving(addresses["CLIENT"], options.moving))
        environment = os.environ | {
            "FLUSS_BOOTSTRAP_SERVERS": addresses["CLIENT"],
            "FLUSS_SASL_BOOTSTRAP_SERVERS": addresses["SASL"],
        }
        command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *options.words]
        failed = subprocess.run(command, cwd=suite, env=environment, check=False).returncode
    return failed or _judged(copies, options)


def _judged(copies: Counter[int], options: argparse.Namespace) -> int:
    """Say how many copies the suite's tables had; 1 if none had as many as the cluster gives without being asked."""
    if options.servers is None:
        return 0
    for count, tables in sorted(copies.items()):
        print(f"{tables} tables had {count} copies of every bucket", flush=True)
    return 0 if copies[min(COPIES, options.servers)] else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tablets", type=int, default=1, help="tablet servers that share one folder")
    parser.add_argument("--servers", type=int, help="tablet servers of a cluster, instead")
    parser.add_argument(
        "--moving",
        type=float,
        nargs="?",
        const=MOVE_EVERY_S,
        metavar="SECONDS",
        help=f"give every bucket of the cluster another leader so often (default: {MOVE_EVERY_S:g})",
    )
    parser.add_argument("--logs", type=Path, help="a file for what the servers of the cluster log")
    parser.add_argument("words", nargs="*", help="more words for pytest")
    options = parser.parse_args()
    if options.moving is not None and options.servers is None:
        parser.error("--moving needs a cluster: --servers 3")
    return options


@contextmanager
def _served(folder: Path, options: argparse.Namespace) -> Iterator[Mapping[str, str]]:
    """A server or a cluster; gives the addresses of its listeners."""
    if options.servers is None:
        with ServerProcess(folder, tablets=options.tablets, settings=SETTINGS) as server:
            yield server.addresses
        return
    settings = SETTINGS | {"default.replication.factor": min(COPIES, options.servers)}
    with ClusterProcess(folder, tablets=options.servers, coordinators=2, settings=settings) as cluster:
        try:
            yield cluster.coordinators[0].addresses
        finally:
            if options.logs is not None:
                options.logs.write_text(cluster.output())


@contextmanager
def _counting(address: str, copies: Counter[int]) -> Iterator[None]:
    """Count tables by the copies that their buckets have, until the suite has ended."""
    ended, found = threading.Event(), dict[str, int]()

    def look() -> None:
        with strom.connect(address) as db:
            while not ended.wait(LOOK_EVERY_S):
                for one in db.bucket_copies():
                    found[one.table] = min(len(one.servers), found.get(one.table, COPIES))

    thread = threading.Thread(target=look, name="counting")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        copies.update(found.values())


@contextmanager
def _moving(address: str, every_s: float) -> Iterator[None]:
    """Let other servers lead all buckets, every few seconds."""
    ended = threading.Event()
    moves = 0

    def move() -> None:
        nonlocal moves
        with strom.connect(address) as db:
            while not ended.wait(every_s):
                moves += _move_all(db)

    thread = threading.Thread(target=move, name="moving")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        print(f"{moves} times a bucket got another leader", flush=True)


def _move_all(db: strom.Database) -> int:
    """Give every bucket the next leader among its copies in sync; return how many have another one."""
    moved = 0
    for one in db.bucket_copies():
        others = [server for server in one.in_sync if server != one.leader]
        following = [server for server in others if one.leader is not None and server > one.leader]
        try:
            db.move_bucket(one.table, one.bucket, leader=(following or others)[0], partition=one.partition)
        except (StromError, IndexError):
            continue  # it was dropped, or has no other copy in sync right now
        moved += 1
    return moved


def _environment() -> Path:
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print("==> an environment for the peer's tests (once)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *NEEDS], check=True)
    return python


def _source(python: Path, scratch: Path) -> Path:
    print("==> the peer's source package", flush=True)
    command = [
        str(python),
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-binary",
        ":all:",
    ]
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([*command, "-d", str(scratch), NEEDS[0]], check=True, env=os.environ | {"PATH": path})
    (package,) = scratch.glob("pyfluss-*.tar.gz")
    with tarfile.open(package) as archive:
        archive.extractall(scratch, filter="data")
    return scratch / package.name.removesuffix(".tar.gz")


if __name__ == "__main__":
    sys.exit(main())
