"""The jars of ZooKeeper: PySpark brings them, for its own use of ZooKeeper."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

from strom.errors import NotInstalled

JARS = (
    "zookeeper",
    "zookeeper-jute",
    "slf4j-api",
    "log4j-api",
    "log4j-core",
    "log4j-slf4j2-impl",
    "audience-annotations",
    "snappy-java",
    "metrics-core",
    "commons-io",
    "commons-cli",
)
"""What a server needs; all of PySpark's jars would double the time of a start."""


def class_path() -> str:
    """The class path of a server."""
    # Found without importing it: PySpark is large, and only strom.spark may know it.
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise NotInstalled("ZooKeeper comes with PySpark: pip install 'strom[spark]'", extra="spark")
    return ":".join(jars_in(Path(spec.submodule_search_locations[0]) / "jars"))


def jars_in(folder: Path) -> list[str]:
    """The jars of a server among those of a folder."""
    found = {}
    for path in folder.glob("*.jar"):
        match = re.fullmatch(r"(.+?)-\d[^-]*\.jar", path.name)
        if match is not None:
            found[match[1]] = str(path)
    missing = [name for name in JARS if name not in found]
    if missing:
        raise NotInstalled(
            f"{folder} has no {', '.join(missing)}: install a PySpark from 4.1 up (pip install 'strom[spark]')",
            extra="spark",
        )
    return [found[name] for name in JARS]
