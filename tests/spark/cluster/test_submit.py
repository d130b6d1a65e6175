"""spark-submit to a Spark cluster (executors in processes of their own) that works on a cluster of Strom."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

import strom
from spark.cluster.running import EVENTS, ORDERS, PAYMENTS, TIERED
from strom.runtime.java.java_home import prepare
from strom.testing.cluster_process import ClusterProcess

BIN = Path(sys.executable).parent
HERE = Path(__file__).parent
ROWS = 300
CONF = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}

pytestmark = [pytest.mark.slow, pytest.mark.torture, pytest.mark.timeout(1_800)]


def submit(program: str | Path, *words: str) -> str:
    """Run it with two executors; returns what it said."""
    conf = [part for key, value in CONF.items() for part in ("--conf", f"{key}={value}")]
    home = prepare()
    more = {"PYSPARK_PYTHON": sys.executable} | ({} if home is None else {"JAVA_HOME": home})
    ran = subprocess.run(
        [str(BIN / "spark-submit"), "--master", "local-cluster[2,1,1024]", *conf, str(program), *words],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | more,
        check=False,
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said[-5000:]
    return said


def test_a_delta_join_is_kept_on_executors_and_read_by_sql(machines: ClusterProcess, tmp_path: Path) -> None:
    with strom.connect(machines.address) as db:
        for name, columns in (("orders", ORDERS), ("payments", PAYMENTS)):
            db.create_table(name, columns, primary_key="id", buckets=2, indexes={"by_k": "k"})
        checkpoint = str(tmp_path / "wide")
        for first in (0, 60):  # the first result, and a batch of changes
            db.table("orders").upsert(
                [{"id": one, "k": one % 7, "price": 1} for one in range(first, first + 60)]
            )
            db.table("payments").upsert(
                [{"id": one, "k": one % 9, "paid": 2} for one in range(first, first + 20)]
            )
            db.flush()
            said = submit(HERE / "submitted_join.py", machines.address, checkpoint)
            assert f"the join holds {_joined(first + 60, [*range(20), *range(60, first + 20)])}" in said


def _joined(orders: int, payments: Sequence[int]) -> str:
    """Rows, prices and payments in the full join of both tables."""
    left = Counter(one % 7 for one in range(orders))
    right = Counter(one % 9 for one in payments)
    pairs = sum(left[k] * right[k] for k in left)
    alone = [sum(one[k] for k in one if k not in other) for one, other in ((left, right), (right, left))]
    return f"{pairs + sum(alone)} {pairs + alone[0]} {2 * (pairs + alone[1])}"


def test_the_tiering_service_brings_tables_to_the_lake_from_executors(machines: ClusterProcess) -> None:
    program = subprocess.run(
        [str(BIN / "strom"), "spark", "tiering"], capture_output=True, text=True, check=True
    )
    with strom.connect(machines.address) as db:
        events = db.create_table("events", EVENTS, buckets=2, properties=TIERED)
        events.append([{"id": one, "text": f"event {one}"} for one in range(ROWS)])
        db.flush()
        said = submit(
            program.stdout.strip(), "--bootstrap-servers", machines.address, "--once", "--table", events.name
        )
        assert f"{events.name}: {ROWS} rows" in said
        assert sorted(events.scan(["id"], tier="lake").to_arrow()["id"].to_pylist()) == list(range(ROWS))
