"""The connection encrypted: a certificate that fits is accepted, another one is not, and ours is shown if asked for."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from strom.errors import Disconnected
from strom.metadata.changes import Put
from strom.metadata.zookeeper.options import ZooKeeperTls
from strom.metadata.zookeeper.store import ZooKeeperStore
from strom.testing.zookeeper import ZooKeeperEnsemble

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")

OpenStore = Callable[..., ZooKeeperStore]
HOST = "127.0.0.1"


class TlsDoor:
    """Takes TLS connections and forwards what they carry to a ZooKeeper without TLS."""

    def __init__(self, port: int, certificate: Path, key: Path, clients_of: Path) -> None:
        self.seen: list[object] = []
        """The certificates that clients showed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(clients_of)
        context.verify_mode = ssl.CERT_OPTIONAL
        self._context = context
        self._target = port
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(plain,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket) -> None:
        with plain, socket.create_connection((HOST, self._target)) as server:
            try:
                client = self._context.wrap_socket(plain, server_side=True)
            except (ssl.SSLError, OSError):
                return
            with client:
                self.seen.append(client.getpeercert())
                back = threading.Thread(target=_pump, args=(server, client))
                back.start()
                _pump(client, server)
                back.join()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while chunk := source.recv(1 << 16):
            target.sendall(chunk)
    except OSError:
        pass  # the other side is gone
    finally:
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # so it is


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate for this machine that signs itself, and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-keyout", key, "-out", certificate, "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName=IP:{HOST}"),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


@pytest.fixture
def door(zookeeper: ZooKeeperEnsemble, tmp_path: Path) -> Iterator[TlsDoor]:
    own, _ = make_certificate(tmp_path, "strom")
    door = TlsDoor(zookeeper.servers[0].port, *make_certificate(tmp_path, "zookeeper"), own)
    yield door
    door.close()


def test_a_trusted_certificate_lets_metadata_pass_and_ours_is_shown(
    open_store: OpenStore, door: TlsDoor, tmp_path: Path
) -> None:
    tls = ZooKeeperTls(
        ca=str(tmp_path / "zookeeper.pem"),
        certificate=str(tmp_path / "strom.pem"),
        key=str(tmp_path / "strom-key.pem"),
    )
    store = open_store(f"{HOST}:{door.port}", tls=tls)
    version = store.commit([], [Put("a", b"x")])
    assert store.read().entries["a"].version == version
    assert "strom" in str(door.seen[0])
    store.close()


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # kazoo closes no refused socket
def test_a_certificate_of_somebody_else_is_refused_unless_nobody_checks(
    open_store: OpenStore, door: TlsDoor, tmp_path: Path
) -> None:
    address = f"{HOST}:{door.port}"
    with pytest.raises(Disconnected):
        open_store(address, tls=ZooKeeperTls(ca=str(tmp_path / "strom.pem")), request_timeout_s=1.0)
    with pytest.raises(Disconnected):
        open_store(address, request_timeout_s=1.0)
    store = open_store(address, tls=ZooKeeperTls(verify=False))
    store.commit([], [Put("a", b"x")])
    store.close()
