"""``python -m benchmarks.peer_jars``: fetch the brokers that Strom is measured beside, as jars from Maven Central.

Apache Ivy resolves them: PySpark carries it, and its own settings say where the central repository is. Whoever has a
mirror names a settings file in ``IVY_SETTINGS``; Java's proxies go into ``JAVA_TOOL_OPTIONS``. The jars lie beside the
environment's other packages (``.venv/peers``), one folder for each version: what is there is not fetched again.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from strom.runtime.java import java_home

FETCH_TIMEOUT_S = 600
PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


@dataclass(frozen=True)
class Module:
    """One artifact of the repository, with everything it needs at run time."""

    group: str
    name: str
    version: str


@dataclass(frozen=True)
class Peer:
    """A system to be measured beside, and what must be on its class path."""

    name: str
    modules: tuple[Module, ...]

    @property
    def version(self) -> str:
        """Of the broker."""
        return self.modules[0].version

    @property
    def title(self) -> str:
        """As people say it."""
        return f"{self.name.capitalize()} {self.version}"


LOGGING = Module("org.slf4j", "slf4j-simple", "1.7.36")
"""So that a broker that does not start says why."""
KAFKA = Peer("kafka", (Module("org.apache.kafka", "kafka_2.13", "4.3.1"), LOGGING))
FLUSS = Peer("fluss", (Module("org.apache.fluss", "fluss-server", "0.9.1-incubating"), LOGGING))
PEERS = (KAFKA, FLUSS)


class NotFetched(RuntimeError):
    """The repository was not reached, or does not have it."""


def home() -> Path:
    """Where the jars lie: in the environment, which ``make clean`` removes."""
    return Path(sys.prefix) / "peers"


def class_path(peer: Peer, folder: Path | None = None) -> str:
    """Every jar of a peer, fetched where it is missing."""
    return str(fetched(peer, folder) / "*")


def fetched(peer: Peer, folder: Path | None = None) -> Path:
    """The folder of a peer's jars; complete or not there at all."""
    where = folder or home()
    target = where / f"{peer.name}-{peer.version}"
    if target.is_dir():
        return target
    where.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{peer.name}-", dir=where) as scratch:
        _resolve(peer, Path(scratch))
        (Path(scratch) / "jars").rename(target)
    return target


def _resolve(peer: Peer, scratch: Path) -> None:
    wanted = scratch / "ivy.xml"
    wanted.write_text(ivy_file(peer))
    done = subprocess.run(
        command(wanted, scratch / "jars", scratch / "cache"),
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
    )
    main = peer.modules[0]
    if done.returncode or not list((scratch / "jars").glob(f"{main.name}-{main.version}.jar")):
        told = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise NotFetched(
            f"{peer.title} could not be fetched from Maven Central. Is it reached from here? A mirror is named by a "
            f"settings file of Ivy in IVY_SETTINGS, a proxy in JAVA_TOOL_OPTIONS.\n{told}"
        )


def command(wanted: Path, jars: Path, cache: Path) -> list[str]:
    """How Ivy is asked."""
    settings = os.environ.get("IVY_SETTINGS")
    return [
        *(java(), "-jar", str(_ivy()), "-cache", str(cache), "-ivy", str(wanted), "-confs", "default"),
        *("-retrieve", f"{jars}/{PATTERN}"),
        *(("-settings", settings) if settings else ()),
    ]


def ivy_file(peer: Peer) -> str:
    """What Ivy is to find: the modules, each with what it needs to run."""
    lines = [
        f"    <dependency org={quoteattr(one.group)} name={quoteattr(one.name)} rev={quoteattr(one.version)} "
        'conf="default->default"/>'
        for one in peer.modules
    ]
    return "\n".join(
        [
            '<ivy-module version="2.0">',
            f'  <info organisation="strom" module={quoteattr(peer.name)}/>',
            '  <configurations><conf name="default"/></configurations>',
            "  <dependencies>",
            *lines,
            "  </dependencies>",
            "</ivy-module>\n",
        ]
    )


def java() -> str:
    """The Java that Spark would be started with."""
    given = java_home.prepare() or os.environ.get("JAVA_HOME")
    found = str(Path(given) / "bin" / "java") if given else shutil.which("java")
    if found is None:
        raise java_home.NoJava(java_home.ADVICE)
    return found


def _ivy() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise NotFetched("PySpark, whose Apache Ivy fetches the brokers, is not installed: make setup")
    return found[-1]


def main(peers: Sequence[Peer] = PEERS) -> int:
    for peer in peers:
        if not (home() / f"{peer.name}-{peer.version}").is_dir():
            print(f"==> fetching {peer.title} from Maven Central", flush=True)
        try:
            fetched(peer)
        except (NotFetched, subprocess.TimeoutExpired, java_home.NoJava) as problem:
            print(problem, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
