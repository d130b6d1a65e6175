"""Spark Connect: the client talks to a server of Spark's over gRPC, and Strom works all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.place import events
from spark.place import table_on, write
from strom.testing.process import ServerProcess

CLIENT = Path(__file__).with_name("connect_client.py")


@pytest.mark.slow
def test_batches_streams_and_errors_over_connect(server: ServerProcess, tmp_path: Path) -> None:
    with table_on(server, buckets=2) as table:
        write(table, events(*range(50)))
        command = [sys.executable, str(CLIENT), server.address, table.name, str(tmp_path / "checkpoint")]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        told = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=170
        )
        lines = [line for line in told.stdout.splitlines() if line.startswith("ANSWER ")]
        assert lines, told.stdout + told.stderr
        answer = json.loads(lines[0].removeprefix("ANSWER "))
        assert answer["rows"] == list(range(50))
        assert answer["streamed"] == 50
        assert answer["catalog"] == [0, 1, 2, 3, 4]
        assert "there is no table" in answer["refused"]
        assert "Traceback" not in answer["refused"]
