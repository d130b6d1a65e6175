"""Streams, joins, tiering and Spark's reads on a cluster of three servers, also while its parts fail: exactly once."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.cluster.running import Pipeline, Troubles
from strom.testing.cluster_process import ClusterProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_everything_arrives_exactly_once_while_parts_of_the_cluster_fail(
    machines: ClusterProcess, spark: SparkSession, tmp_path: Path
) -> None:
    with Pipeline(machines, spark, tmp_path, "bounded") as pipeline:
        for trouble in Troubles(machines).all:
            trouble(pipeline.goes_on)
        pipeline.check()
        assert pipeline.rounds > 0


@pytest.mark.torture
@pytest.mark.timeout(7_200)
def test_everything_arrives_exactly_once_through_many_failures(
    machines: ClusterProcess, spark: SparkSession, tmp_path: Path
) -> None:
    seed = int(os.environ.get("STROM_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"again: STROM_TEST_SEED={seed}")
    chance = random.Random(seed)
    with Pipeline(machines, spark, tmp_path, "long") as pipeline:
        for _ in range(60):
            chance.choice(Troubles(machines).all)(lambda: pipeline.goes_on(chance.randrange(1, 8)))
        pipeline.check()
        assert pipeline.rounds > 0
        print(
            f"{pipeline.written} rows, {pipeline.changes} changes of each side, {pipeline.rounds} calls of tiering"
        )
