"""The example for Spark Declarative Pipelines, run as its readme line says, against a real server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import strom
from strom.testing.process import ServerProcess

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipelines"
COLUMNS = {"id": "BIGINT", "customer": "STRING", "price": "DOUBLE"}


@pytest.mark.slow
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
            [command, "run"], cwd=project, env=environment, capture_output=True, text=True, timeout=170
        )
        assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
        (view,) = (project / "spark-warehouse").rglob("spending")
        spent = {row["customer"]: row["spent"] for row in pq.read_table(view).to_pylist()}
        assert spent == {"c0": 300.0, "c1": 200.0}
        (changes,) = (project / "spark-warehouse").rglob("order_changes")
        assert sorted(row["id"] for row in pq.read_table(changes).to_pylist()) == [0, 1, 2, 3, 4]
        assert sorted(row["id"] for row in large.scan().to_arrow().to_pylist()) == [3, 4]
