"""A program that spark-submit runs finds the SQL catalog, keeps its jars, and starts its processes quickly."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from strom.runtime.java.java_home import prepare
from strom.testing.process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PROGRAM = """
import sys

import strom.spark

spark = strom.spark.session(sys.argv[1])
spark.sql("CREATE DATABASE strom.submitted")
spark.sql("CREATE TABLE strom.submitted.users (id BIGINT, PRIMARY KEY (id))")
print("tables:", [row.tableName for row in spark.sql("SHOW TABLES IN strom.submitted").collect()])
print("jars:", spark.conf.get("spark.jars"))
rows = spark.sparkContext.parallelize([0], 1)
print("a worker imports", *rows.map(lambda _: __import__("pyspark").__file__).collect())
spark.stop()
"""


def test_a_submitted_program_has_the_catalog_its_jars_and_workers_that_start_quickly(
    server: ServerProcess, tmp_path: Path
) -> None:
    program, other = tmp_path / "program.py", tmp_path / "other.jar"
    program.write_text(PROGRAM)
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("anything.txt", "")
    home = prepare()
    ran = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "spark-submit"), "--master", "local[1]"),
            *("--jars", str(other), "--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
            *("--conf", "spark.driver.extraJavaOptions=-XX:+UseSerialGC -XX:TieredStopAtLevel=1"),
            *(str(program), server.address),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable} | ({} if home is None else {"JAVA_HOME": home}),
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-5000:]
    said = dict(line.split(":", 1) for line in ran.stdout.splitlines() if line.startswith(("tables", "jars")))
    assert said["tables"].strip() == "['users']"
    assert "other.jar" in said["jars"], "what it was given goes to the executors too"
    assert "strom-spark.jar" in said["jars"]
    (imported,) = (line for line in ran.stdout.splitlines() if line.startswith("a worker imports"))
    assert ".zip" not in imported, "a zip holds no bytecode: every process would compile all it imports"
