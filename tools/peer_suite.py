"""Run the test-suite that the pyfluss client publishes with its source against a Strom server.

    make peer                        every test, none left out
    make peer TABLETS=3 ARGS="-k admin"

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
from pathlib import Path

from strom.testing.process import ServerProcess

ROOT = Path(__file__).parent.parent
ENVIRONMENT = ROOT / ".venv-peer"
NEEDS = ["pyfluss==1.0.0", "maturin", "pytest", "pytest-asyncio", "filelock", "pyarrow", "pandas"]


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server below is stopped too
    options = _options()
    python = _environment()
    with tempfile.TemporaryDirectory(prefix="strom-peer-") as scratch:
        suite = _source(python, Path(scratch)) / "bindings" / "python" / "test"
        settings = {
            "bind.listeners": "CLIENT://127.0.0.1:0,SASL://127.0.0.1:0",
            "security.protocol.map": "SASL:sasl",
            "security.sasl.plain.credentials": "admin=admin-secret,alice=alice-secret",
        }
        with ServerProcess(Path(scratch) / "data", tablets=options.tablets, settings=settings) as server:
            environment = os.environ | {
                "FLUSS_BOOTSTRAP_SERVERS": server.addresses["CLIENT"],
                "FLUSS_SASL_BOOTSTRAP_SERVERS": server.addresses["SASL"],
            }
            command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *options.words]
            return subprocess.run(command, cwd=suite, env=environment, check=False).returncode


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tablets", type=int, default=1)
    parser.add_argument("words", nargs="*", help="more words for pytest")
    return parser.parse_args()


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
