"""What a person meets: a refused join names the command that mends it, and a slow server slows it and loses nothing."""

from __future__ import annotations

import os
import re
import shlex
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import strom.spark
from cli.command import strom as command
from spark.joining import expected, keep, kept, pair_on
from spark.place import table_on
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def refusal(**said: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        strom.spark.delta_join(**said)
    return str(caught.value)


def test_the_command_in_the_error_for_a_missing_index_makes_it(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with pair_on(server, seed=4) as pair:
        pair.change(30)
        left, right = pair.names
        said: dict[str, Any] = {
            "left": left, "right": right, "on": {"v": "code"}, "into": pair.new("wide"), "spark": spark,
            "servers": server.address, "select": ["id", "w"],
        }  # fmt: skip
        found = re.search(r"strom (index create \S+ \S+ \S+)", refusal(**said))
        assert found is not None
        done = command(*shlex.split(found[1]), server=server.address)
        assert done.code == 0, done.err
        join = strom.spark.delta_join(**said)
        keep(join, tmp_path / "checkpoint")
        assert "index by_v (v)" in join.explain()


def test_the_commands_in_the_error_for_a_short_changelog_make_a_copy_that_can_be_joined(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "properties": {"table.changelog.image": "WAL"}, "indexes": {"by_k": "k"}, "buckets": 1
    }  # fmt: skip
    with (
        pair_on(server, seed=4) as pair,
        table_on(server, {"id": "BIGINT", "k": "BIGINT"}, primary_key="id", **options) as short,
    ):
        pair.change(30)
        short.upsert([{"id": number, "k": number % 5} for number in range(20)])
        short.flush()
        said: dict[str, Any] = {
            "right": pair.names[1], "on": "k", "into": pair.new("wide"), "spark": spark,
            "servers": server.address,
        }  # fmt: skip
        found = re.search(
            r"(CREATE TABLE .* AS SELECT \* FROM [\w.]+)", refusal(left=str(short.info.path), **said)
        )
        assert found is not None
        copy = f"{short.info.path}_full"
        pair.made.append(copy)
        spark.sql(found[1])
        index = re.search(r"strom (index create \S+ \S+ \S+)", refusal(left=copy, **said))
        assert index is not None
        assert command(*shlex.split(index[1]), server=server.address).code == 0
        join = strom.spark.delta_join(copy, **said)
        keep(join, tmp_path / "checkpoint")
        rows = [strom.spark.table(spark, name, servers=server.address) for name in (copy, pair.names[1])]
        assert pair.db.table(join.table).scan().count() == rows[0].join(rows[1], "k").count() > 0


class Hiccups:
    """A server that stands still most of the time."""

    def __init__(self, server: ServerProcess) -> None:
        self._pids = list(server.pids)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._stop_and_go)
        self.count = 0

    def __enter__(self) -> Hiccups:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _signal(self, number: int) -> None:
        for pid in self._pids:
            os.kill(pid, number)

    def _stop_and_go(self) -> None:
        while not self._over.wait(0.2):
            self._signal(signal.SIGSTOP)
            self._over.wait(0.6)
            self._signal(signal.SIGCONT)
            self.count += 1


def test_a_slow_server_slows_the_query_and_loses_nothing(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with pair_on(server, seed=6) as pair:
        pair.change(100)
        join = pair.join("full")
        keep(join, tmp_path / "checkpoint")
        pair.change(200)
        with Hiccups(server) as hiccups:
            query = keep(join, tmp_path / "checkpoint", rows=60)
        assert hiccups.count > 0
        assert len(query.progress) > 1
        assert query.lag() == 0
        assert kept(pair.db, join.table) == expected(spark, pair, "full")
