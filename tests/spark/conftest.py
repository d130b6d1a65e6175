"""One real Spark for all tests of this folder, in a time zone that is not UTC, against the tests' server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIME_ZONE = "America/St_Johns"
"""Three and a half hours behind UTC, two and a half in summer: nothing comes out right by accident."""

SETTINGS = {
    "spark.sql.session.timeZone": TIME_ZONE,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.task.maxFailures": "2",
    "spark.sql.streaming.stopTimeout": "30s",
}


@pytest.fixture(scope="session")
def spark(server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session, as ``strom.spark.session`` makes it."""
    import strom.spark

    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [os.path.dirname(os.path.dirname(__file__)), os.environ.get("PYTHONPATH")])
    )
    settings = SETTINGS | {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
    }
    # maxFailures counts in local mode only when the master says so: a task may fail once.
    session = strom.spark.session(server.address, master="local[2,2]", config=settings)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
