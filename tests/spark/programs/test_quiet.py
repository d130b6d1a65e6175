"""A healthy run says nothing on stderr: a session, a stream and a join, from their start to their stop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark.joining import pair_on
from strom.testing.process import ServerProcess

RUN = """
import sys
import strom.spark

server, left, right, copy, wide, folder = sys.argv[1:]
if __name__ == "__main__":
    spark = strom.spark.session(server, master="local[2]", config={"spark.driver.memory": "1g"})
    strom.spark.table(spark, left).show(3)
    query = strom.spark.merge(strom.spark.changes(spark, left), copy, checkpoint=folder + "/copy")
    strom.spark.wait_until_caught_up(query, 120)
    query.stop()
    join = strom.spark.delta_join(left, right, on="k", into=wide).start(folder + "/wide")
    join.wait_until_caught_up(120)
    join.stop()
    print("rows", spark.sql(f"SELECT count(*) FROM strom.{wide}").collect()[0][0])
    spark.stop()
"""
OF_JAVA = "WARNING: Using incubator modules: jdk.incubator.vector"
"""Java's own, for a module that Spark asks for: there is no option against it."""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_session_a_stream_and_a_join_start_and_stop_without_a_word(
    server: ServerProcess, tmp_path: Path
) -> None:
    with pair_on(server, seed=21) as pair:
        pair.change(50)
        copy = pair.new("copy")
        pair.db.create_table(copy, {"id": "BIGINT", "k": "INT", "v": "STRING"}, primary_key="id")
        program = tmp_path / "run.py"
        program.write_text(RUN)
        told = [server.address, *pair.names, copy, pair.new("wide"), str(tmp_path)]
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONWARNINGS"}
        ran = subprocess.run(
            [sys.executable, str(program), *told],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert ran.returncode == 0, ran.stderr
        assert "rows " in ran.stdout
        said = [line for line in ran.stderr.splitlines() if line.strip() and line != OF_JAVA]
        assert not said, ran.stderr
