"""Spark's Python processes import the PySpark that is installed, and whatever else somebody runs at their start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from strom.spark.engine.sessions import STARTUP
from strom.spark.startup.sitecustomize import without_copies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def installation(folder: Path, *packages: str) -> tuple[Path, Path, Path]:
    """A folder of packages with PySpark's zips in it: the folder, the zip of PySpark, the one of Py4J."""
    for name in packages:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "__init__.py").touch()
    zips = folder / "pyspark" / "python" / "lib"
    zips.mkdir(parents=True, exist_ok=True)
    return folder, zips / "pyspark.zip", zips / "py4j-0.10.9.9-src.zip"


def test_a_zip_goes_where_its_modules_lie_unpacked_behind_it(tmp_path: Path) -> None:
    site, spark_zip, py4j_zip = installation(tmp_path / "site", "pyspark", "py4j")
    path = ["", str(spark_zip), str(py4j_zip), "/else", str(site)]
    assert without_copies(path) == ["", "/else", str(site)]


def test_a_zip_goes_when_the_environment_is_reached_by_another_name(tmp_path: Path) -> None:
    site, spark_zip, _ = installation(tmp_path / "site", "pyspark", "py4j")
    link = tmp_path / "link"
    link.symlink_to(site)
    assert without_copies([str(spark_zip), str(link)]) == [str(link)]


def test_a_zip_stays_that_is_the_only_copy(tmp_path: Path) -> None:
    site, spark_zip, py4j_zip = installation(tmp_path / "site", "pyspark")
    home, other_zip, _ = installation(tmp_path / "home")
    path = [str(spark_zip), str(py4j_zip), str(other_zip), "/else/one.zip", str(site), str(home)]
    assert without_copies(path) == [str(py4j_zip), str(other_zip), "/else/one.zip", str(site), str(home)]


def test_a_zip_stays_when_another_installation_is_imported(tmp_path: Path) -> None:
    _, spark_zip, _ = installation(tmp_path / "site", "pyspark", "py4j")
    assert without_copies([str(spark_zip), "/other/site-packages"]) == [
        str(spark_zip),
        "/other/site-packages",
    ]


@pytest.mark.parametrize("other", [True, False])
def test_what_somebody_runs_at_the_start_of_python_is_run(tmp_path: Path, *, other: bool) -> None:
    if other:
        (tmp_path / "sitecustomize.py").write_text("print('the other one ran')\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([STARTUP, str(tmp_path)])}
    done = subprocess.run(
        [sys.executable, "-c", "print('started')"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split("\n")[:-1] == (["the other one ran"] if other else []) + ["started"]
    assert done.stderr == ""


RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
ENDED = """
try:
    raise {first}
except Exception:
    raise {last}
"""


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("EOFError()", "BrokenPipeError()", False),
        ("EOFError()", "ConnectionResetError()", False),
        ("BrokenPipeError()", "BrokenPipeError()", False),
        ("EOFError()", "ValueError()", True),
        ("ValueError('a wrong offset')", "BrokenPipeError()", True),
    ],
)
def test_a_source_whose_query_was_stopped_ends_without_a_word(
    tmp_path: Path, first: str, last: str, said: bool
) -> None:
    """Stands in for Spark's own module: when Spark closes a connection is up to Spark."""
    folder = tmp_path.joinpath(*RUNNER.split(".")[:-1])
    folder.mkdir(parents=True)
    for package in (folder, *folder.parents[:2]):
        (package / "__init__.py").touch()
    (folder / "python_streaming_source_runner.py").write_text(ENDED.format(first=first, last=last))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([STARTUP, str(tmp_path)])}
    done = subprocess.run(
        [sys.executable, "-m", RUNNER], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) is said


def test_workers_import_the_pyspark_that_is_installed(spark: SparkSession) -> None:
    def files(_: object) -> list[str]:
        import py4j  # type: ignore[import-untyped]
        import pyspark

        return [pyspark.__file__, py4j.__file__]

    import py4j
    import pyspark

    found = spark.sparkContext.parallelize([0], 1).map(files).collect()
    assert found == [[pyspark.__file__, py4j.__file__]]


def test_the_environment_is_as_it_was(spark: SparkSession) -> None:
    inside = spark._jvm.System.getenv("PYTHONPATH")  # type: ignore[union-attr]
    assert STARTUP in inside.split(os.pathsep)
    assert STARTUP not in os.environ.get("PYTHONPATH", "").split(os.pathsep)
