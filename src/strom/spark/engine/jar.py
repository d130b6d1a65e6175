"""The catalog's jar: its path, and how it is built from the Java sources in ``java/``.

The jar is part of the package, so users need no compiler. The same javac builds the same bytes: entries in order, one
fixed time, nothing about the machine. ``python -m strom.spark.engine.jar`` rebuilds it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from strom.errors import InvalidSetting

CATALOG = "strom.spark.StromCatalog"
"""The value of ``spark.sql.catalog.<name>``."""

JAVA = 17
"""The oldest Java that Spark 4 runs on."""

_HERE = Path(__file__).parents[1]
_SOURCES = _HERE / "java"
_JAR = _HERE / "strom-spark.jar"
_MANIFEST = "META-INF/MANIFEST.MF"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time in a zip file."""


def path() -> Path:
    """Where the jar is."""
    if not _JAR.is_file():
        raise InvalidSetting(
            f"{_JAR} is missing: install strom again, or run python -m strom.spark.engine.jar"
        )
    return _JAR


def compiled(classpath: Path, folder: Path) -> dict[str, bytes]:
    """Compile the sources into a folder; the files of the jar by name."""
    javac = shutil.which("javac")
    if javac is None:
        raise InvalidSetting(
            f"there is no javac: install a JDK {JAVA} or newer, e.g. openjdk-{JAVA}-jdk-headless"
        )
    sources = sorted(str(source) for source in _SOURCES.rglob("*.java"))
    options = ["--release", str(JAVA), "-g:none", "-proc:none", "-nowarn", "-Xlint:-deprecation"]
    command = [javac, *options, "-classpath", f"{classpath}/*", "-d", str(folder), *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise InvalidSetting(f"javac refuses the catalog's sources: {done.stderr[-2000:]}")
    found = {_MANIFEST: f"Manifest-Version: 1.0\r\nCreated-By: {_version(javac)}\r\n\r\n".encode()}
    return found | {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*.class")}


def _version(javac: str) -> str:
    """``javac 17``: another version may write other classes."""
    done = subprocess.run([javac, "-version"], capture_output=True, text=True, check=True, timeout=60)
    return (done.stdout or done.stderr).strip().partition(".")[0]


def contents(jar: Path) -> dict[str, bytes]:
    """The files in a jar."""
    with zipfile.ZipFile(jar) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(files: dict[str, bytes], jar: Path) -> None:
    """A jar of these files, the manifest first."""
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)


def spark_jars() -> Path:
    """The jars of the installed PySpark, to compile against."""
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def main() -> None:
    """Rebuild the jar."""
    with tempfile.TemporaryDirectory() as folder:
        write(compiled(spark_jars(), Path(folder)), _JAR)
    print(f"{_JAR}: {_JAR.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
