"""The catalog's jar: the same as its sources, the same bytes every time, found by name."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from cli.command import strom
from strom.spark.engine import jar

MANIFEST = "META-INF/MANIFEST.MF"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no javac")
def test_the_jar_holds_what_its_sources_compile_to(tmp_path: Path) -> None:
    made = jar.compiled(jar.spark_jars(), tmp_path)
    packed = jar.contents(jar.path())
    assert sorted(made) == sorted(packed), "python -m strom.spark.engine.jar makes it anew"
    if made[MANIFEST] != packed[MANIFEST]:
        pytest.skip(f"another javac wrote the jar: {packed[MANIFEST]!r}")
    assert made == packed, "python -m strom.spark.engine.jar makes it anew"


def test_a_jar_of_the_same_classes_is_the_same_bytes(tmp_path: Path) -> None:
    files = jar.contents(jar.path())
    backwards = dict(reversed(files.items()))
    jar.write(backwards, tmp_path / "again.jar")
    assert (tmp_path / "again.jar").read_bytes() == jar.path().read_bytes()


def test_the_jar_is_small_and_for_every_java_that_spark_4_runs_on() -> None:
    assert jar.path().stat().st_size < 40_000
    with zipfile.ZipFile(jar.path()) as archive:
        classes = [archive.read(name) for name in archive.namelist() if name.endswith(".class")]
    assert {int.from_bytes(one[6:8]) for one in classes} == {44 + jar.JAVA}


def test_the_command_line_tells_where_the_jar_is() -> None:
    ran = strom("spark", "jar")
    assert ran.code == 0
    assert Path(ran.out.strip()) == jar.path()


def test_the_shim_stays_small() -> None:
    """It delegates, and knows no protocol."""
    sources = Path(jar.__file__).parent.joinpath("java").rglob("*.java")
    lines = [line.strip() for source in sources for line in source.read_text().splitlines()]
    code = [
        one for one in lines if one not in ("", "}") and not one.startswith(("import", "package", "*", "/*"))
    ]
    assert len(code) <= 550
    assert not [line for line in code if "socket" in line.lower()]
