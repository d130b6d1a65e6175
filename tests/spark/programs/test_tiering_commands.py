"""``strom tier`` and spark-submit as a person runs them: processes of their own, what they print, how they end.

The lake is on S3 here, and the keys are in the processes' environment and nowhere else.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import strom
from api.place import events
from lake.s3_place import ENVIRONMENT, KEY, SECRET
from spark.tiering.place import USERS, tiered
from spark.tiering.tiers import facts_of
from strom.lake.iceberg.catalogs import open_catalog
from strom.runtime.java.java_home import prepare
from strom.testing.process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
CONF = [part for key, value in SMALL.items() for part in ("--conf", f"{key}={value}")]
BIN = Path(sys.executable).parent


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """One command, from its start to its end."""
    whole = os.environ | ENVIRONMENT | environment
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=whole, check=False)


def users(*ids: int, score: int = 0) -> list[dict[str, object]]:
    return [{"id": number, "name": f"n{number}", "score": score} for number in ids]


def lake_ids(table: strom.Table) -> list[int]:
    """What the lake alone holds."""
    return sorted(table.scan(["id"], tier="lake").to_arrow().column("id").to_pylist())


def test_strom_tier_brings_tables_to_s3_says_what_it_did_and_ends(
    s3_server: ServerProcess, tmp_path: Path
) -> None:
    with tiered(s3_server, buckets=2) as log, tiered(s3_server, USERS, primary_key="id") as keys:
        log.append(events(*range(500)))
        keys.upsert(users(*range(300)))
        for one in (log, keys):
            one.flush()
        page = tmp_path / "tiering.prom"
        ran = run(
            *(str(BIN / "strom"), "--server", s3_server.address, "tier", "--once", "--master", "local[2,2]"),
            *("--table", log.name, "--table", keys.name, "--metrics-file", str(page), *CONF),
        )
        assert ran.returncode == 0, ran.stderr
        assert re.search(
            rf"^{re.escape(log.name)}: 500 rows, \d+ files?, .* s \(planning", ran.stderr, re.M
        ), ran.stderr
        assert re.search(rf"^{re.escape(keys.name)}: 300 rows, 1 file,", ran.stderr, re.M), ran.stderr
        metrics = page.read_text()
        assert f'strom_tiering_rows_total{{table="{log.name}"}} 500' in metrics
        assert f'strom_tiering_lag_rows{{table="{keys.name}"}} 0' in metrics
        for text in (ran.stdout, ran.stderr, metrics):
            assert SECRET not in text
            assert KEY not in text
        assert lake_ids(log) == list(range(500))
        assert lake_ids(keys) == list(range(300))
        assert (facts_of(s3_server, log).rows, facts_of(s3_server, keys).rows) == (500, 300)


def test_spark_submit_runs_the_service_and_one_wrong_table_fails_it_alone(s3_server: ServerProcess) -> None:
    program = run(str(BIN / "strom"), "spark", "tiering")
    with tiered(s3_server, USERS, primary_key="id") as good, tiered(s3_server, buckets=1) as wrong:
        good.upsert(users(*range(100)))
        wrong.append(events(1))
        for one in (good, wrong):
            one.flush()
        _take_name(s3_server, wrong)
        ran = run(
            *(
                str(BIN / "spark-submit"),
                "--master",
                "local[2]",
                "--conf",
                "spark.scheduler.mode=FAIR",
                *CONF,
            ),
            *(program.stdout.strip(), "--bootstrap-servers", s3_server.address, "--once"),
            *("--table", good.name, "--table", wrong.name),
            PYSPARK_PYTHON=sys.executable,
            **({} if (home := prepare()) is None else {"JAVA_HOME": home}),
        )
        told = ran.stdout + ran.stderr  # spark-submit passes on as output what its program says as errors
        assert ran.returncode == 1, told
        assert f"{good.name}: 100 rows, 1 file," in told
        assert (
            f"{wrong.name}: QUARANTINED: The lake has a table {wrong.name} that Strom did not create" in told
        )
        assert SECRET not in told
        assert lake_ids(good) == list(range(100))
        assert facts_of(s3_server, wrong).state == "quarantined"
        assert wrong.scan(tier="hot").to_arrow().num_rows == 1


def test_a_command_that_cannot_work_says_why_at_once(s3_server: ServerProcess) -> None:
    strom_tier = [str(BIN / "strom"), "--server", s3_server.address, "tier"]
    for given, said in (
        (["--once", "--table", "nobody.knows"], "nobody.knows is not tiered"),
        (["--conf", "memory=4g"], "write --conf spark.executor.memory=4g"),
        (["--round-size", "many"], "--round-size is 'many'"),
    ):
        ran = run(*strom_tier, *given)
        assert ran.returncode == 1, ran.stderr
        assert said in ran.stderr
        assert "Traceback" not in ran.stderr
        assert len(ran.stderr.strip().splitlines()) == 1, ran.stderr
    told = run(*strom_tier, "--help")
    assert told.returncode == 0
    for word in ("--once", "--table", "--master", "--metrics-port", "--round-size", "spark-submit"):
        assert word in told.stdout


def _take_name(server: ServerProcess, table: strom.Table) -> None:
    """Somebody else's Iceberg table under the name that a table's lake would have."""
    config = facts_of(server, table).config
    assert config is not None
    catalog = open_catalog(config)
    path = table.info.path
    with suppress(Exception):
        catalog._catalog.create_namespace((path.database,))
    schema = pa.schema([("id", pa.int64())])
    catalog._catalog.create_table(
        (path.database, path.table), schema, location=f"{config.warehouse}/other/{path.table}"
    )
    catalog.close()
