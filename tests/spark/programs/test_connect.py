"""Spark Connect: the client talks to a server of Spark's over gRPC, and Strom works all the same.

Declarative Pipelines run over it too; here is their example, run as its readme line says. Both are in one file, so that
they come one after the other: every server of Spark's takes the same port.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import strom
from api.place import events
from spark.place import table_on, write
from strom.testing.process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CLIENT = Path(__file__).with_name("connect_client.py")
EXAMPLE = Path(__file__).parents[3] / "examples" / "pipelines"
COLUMNS = {"id": "BIGINT", "customer": "STRING", "price": "DOUBLE"}


def test_batches_streams_and_errors_over_connect(server: ServerProcess, tmp_path: Path) -> None:
    with table_on(server, buckets=2) as table:
        write(table, events(*range(50)))
        command = [sys.executable, str(CLIENT), server.address, table.name, str(tmp_path / "checkpoint")]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        told = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280
        )
        lines = [line for line in told.stdout.splitlines() if line.startswith("ANSWER ")]
        assert lines, told.stdout + told.stderr
        answer = json.loads(lines[0].removeprefix("ANSWER "))
        assert answer["rows"] == list(range(50))
        assert answer["streamed"] == 50
        assert answer["catalog"] == [0, 1, 2, 3, 4]
        assert "there is no table" in answer["refused"]
        assert "Traceback" not in answer["refused"]


def test_the_example_pipeline_fills_a_view_a_table_and_a_sink(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(EXAMPLE, project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("file:///tmp/strom-pipeline", f"file://{tmp_path / 'storage'}"))
    with ServerProcess(tmp_path / "data") as own, strom.connect(own.address) as db:
        db.create_database("shop")
        orders = db.create_table("shop.orders", COLUMNS, primary_key="id", buckets=1)
        large = db.create_table("shop.large_orders", COLUMNS, primary_key="id", buckets=1)
        orders.upsert([{"id": n, "customer": f"c{n % 2}", "price": n * 50.0} for n in range(6)])
        orders.delete([5])
        orders.flush()
        environment = {
            **os.environ,
            "STROM_SERVERS": own.address,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = str(Path(sys.executable).with_name("spark-pipelines"))
        run = subprocess.run(
            [command, "run"], cwd=project, env=environment, capture_output=True, text=True, timeout=280
        )
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
        (view,) = (project / "spark-warehouse").rglob("spending")
        spent = {row["customer"]: row["spent"] for row in pq.read_table(view).to_pylist()}
        assert spent == {"c0": 300.0, "c1": 200.0}
        (changes,) = (project / "spark-warehouse").rglob("order_changes")
        assert sorted(row["id"] for row in pq.read_table(changes).to_pylist()) == [0, 1, 2, 3, 4]
        assert sorted(row["id"] for row in large.scan().to_arrow().to_pylist()) == [3, 4]
