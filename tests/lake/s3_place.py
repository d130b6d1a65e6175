"""A real S3 server for the tests: SeaweedFS in a process of its own, on loopback, with one bucket and two users.

    with S3Server(folder) as s3:
        s3.settings("some/prefix")      the server settings of a warehouse in its bucket

It comes from PyPI with the `dev` extra. A shell between us and it waits for the end of our pipe: however the tests end,
the server does too.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import pytest
from pyarrow import fs

from strom.lake.files.object_store import ACCESS_KEY, SECRET_KEY
from strom.model.lake.lake import LakeConfig
from waiting import pause_blocking

BUCKET = "lake"
KEY, SECRET = "tests-key", "tests-secret-d41d8cd9"
GUEST = {ACCESS_KEY: "guest-key", SECRET_KEY: "guest-secret"}
"""Somebody who may look into another bucket only."""
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
    "AWS_CONFIG_FILE": "/nonexistent/config",
}
"""Of every test: nobody's own account is ever met."""
PORTS = (
    *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"),
    *("s3.port", "s3.port.grpc", "admin.port", "admin.port.grpc"),
)
LEASH = '"$@" & server=$!; read -r _; kill -9 $server; wait $server'
START_TIMEOUT_S = 60.0


class S3Server:
    """One server."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.endpoint = ""

    def __enter__(self) -> S3Server:
        ports = _free_ports(len(PORTS))
        self.endpoint = f"http://127.0.0.1:{ports[PORTS.index('s3.port')]}"
        self._folder.mkdir(parents=True, exist_ok=True)
        users = self._folder / "users.json"
        users.write_text(json.dumps({"identities": _users()}))
        sockets = [f"-{name}={self._folder / name}" for name in ("filer.localSocket", "s3.localSocket")]
        command = [
            *(_program(), "-logtostderr=true", "mini", f"-dir={self._folder}"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false", "-admin.ui=false"),
            *("-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(f"-s3.config={users}", f"-bucket={BUCKET}", "-s3.autoCreateBucket=false", *sockets),
            *(f"-{name}={port}" for name, port in zip(PORTS, ports, strict=True)),
        ]
        with (self._folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", LEASH, "leash", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def filesystem(self) -> fs.S3FileSystem:
        """Its objects, by Arrow."""
        return fs.S3FileSystem(
            access_key=KEY, secret_key=SECRET, endpoint_override=self.endpoint, region="us-east-1"
        )

    def settings(self, prefix: str) -> dict[str, str]:
        """Of a Strom server whose warehouse is here."""
        return {"lake.warehouse": f"s3://{BUCKET}/{prefix}", "lake.s3.endpoint": self.endpoint}

    def options(self) -> dict[str, str]:
        """The same as settings of an object store."""
        return {"s3.endpoint": self.endpoint, ACCESS_KEY: KEY, SECRET_KEY: SECRET}

    def config(self, prefix: str, catalog: Path | str, **changed: str) -> LakeConfig:
        """The same for who needs no server; ``catalog``: an SQLite file, or the address of a REST catalog."""
        kind = "sqlite" if isinstance(catalog, Path) else "rest"
        options = {"s3.endpoint": changed.get("endpoint", self.endpoint)}
        return LakeConfig(f"s3://{changed.get('bucket', BUCKET)}/{prefix}", kind, str(catalog), options)

    def _wait(self) -> None:
        """Until an object can be written: the bucket is made, and a volume for it."""
        assert self._process is not None
        began = time.monotonic()
        objects = self.filesystem()
        while True:
            try:
                with objects.open_output_stream(f"{BUCKET}/probe") as probe:
                    probe.write(b"hello")
                return
            except OSError as problem:
                late = time.monotonic() - began > START_TIMEOUT_S
                if late or self._process.poll() is not None:
                    told = (self._folder / "output").read_text(errors="replace")[-3000:]
                    raise RuntimeError(f"the S3 server did not start ({problem}):\n{told}") from problem
            pause_blocking(0.02)


def _program() -> str:
    found = shutil.which("weed", path=str(Path(sys.executable).parent))
    if found is None and sys.platform != "linux":
        pytest.skip("the S3 server of the tests has a package for Linux only")
    assert found is not None, "the S3 server is missing: make setup"
    return found


def _users() -> list[dict[str, object]]:
    may = [f"{action}:{BUCKET}" for action in ("Read", "Write", "List", "Tagging")]
    return [
        {
            "name": "tests",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": [*may, "List"],
        },
        {
            "name": "guest",
            "credentials": [{"accessKey": GUEST[ACCESS_KEY], "secretKey": GUEST[SECRET_KEY]}],
            "actions": ["Read:elsewhere"],
        },
    ]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
