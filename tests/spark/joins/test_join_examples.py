"""The examples of joins do what they say."""

from __future__ import annotations

import importlib.util
import random
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import strom
import strom.spark
from guides.pages import Left, Page
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[3] / "examples"
PAGE = (EXAMPLES / "README.md").read_text()


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_shops_wide_table_is_sparks_join_of_all_three(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    module = example("shop")
    with strom.connect(server.address) as db:
        try:
            shop = module.Shop(db)
            shop.day(300)
            wide = module.wide_table(spark)
            for _ in range(2):
                wide.start(str(tmp_path), trigger={"availableNow": True}).wait()
                shop.day(100)
            wide.start(str(tmp_path), trigger={"availableNow": True}).wait()
            frames = {
                name: strom.spark.table(spark, f"store.{name}") for name in ("orders", "payments", "parcels")
            }
            joined = frames["orders"].join(frames["payments"], "order_id", "left")
            joined = joined.join(frames["parcels"].where("carrier <> 'ship'"), "order_id", "left")
            kept = strom.spark.table(spark, "store.wide").select(*joined.columns)
            assert kept.count() == joined.count() > 100
            assert kept.exceptAll(joined).count() == 0
        finally:
            db.drop_database("store", cascade=True)


def test_the_fraud_rule_finds_what_is_known_of_a_card_now(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    module = example("fraud")
    chance = random.Random(1)
    with strom.connect(server.address) as db:
        try:
            payments, cards, alarms = module.tables(db)
            cards.upsert(
                [{"card": f"c{n}", "home": "NL", "credit": 100.0, "stolen": n == 3} for n in range(5)]
            )
            cards.flush()
            rows = [
                {"payment_id": 1, "card": "c1", "amount": 10.0, "country": "NL"},
                {"payment_id": 2, "card": "c2", "amount": 110.0, "country": "NL"},
                {"payment_id": 3, "card": "c3", "amount": 10.0, "country": "NL"},
                {"payment_id": 4, "card": "c4", "amount": 10.0, "country": "DE"},
                {"payment_id": 5, "card": "c9", "amount": 10.0, "country": "NL"},
            ]
            chance.shuffle(rows)
            payments.append(rows)
            payments.flush()
            query = strom.spark.merge(module.suspicious(spark), "bank.alarms", checkpoint=str(tmp_path))
            try:
                query.processAllAvailable()
                cards.upsert([{"card": "c1", "home": "NL", "credit": 100.0, "stolen": True}])
                cards.flush()
                payments.append([{"payment_id": 6, "card": "c1", "amount": 10.0, "country": "NL"}])
                payments.flush()
                query.processAllAvailable()
            finally:
                query.stop()
            found = {row["payment_id"]: row["reason"] for row in alarms.scan().to_arrow().to_pylist()}
            assert found == {
                2: "above the limit",
                3: "stolen card",
                4: "from another country",
                5: "unknown card",
                6: "stolen card",
            }
        finally:
            db.drop_database("bank", cascade=True)


@pytest.mark.parametrize(
    ("folder", "name"), re.findall(r"^python examples/(\w+)/(\w+)\.py$", PAGE, re.MULTILINE)
)
def test_a_program_prints_what_its_page_shows(
    folder: str, name: str, spark: SparkSession, server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert folder == name
    with Left(server.address):
        example(name).run(spark, server.address)
    told = re.search(rf"examples/{name}/{name}\.py\n```\n.*?```text\n(.*?)```", PAGE, re.DOTALL)
    assert told is not None
    assert capsys.readouterr().out.endswith(told[1])


def test_the_commands_of_the_page_run(server: ServerProcess, tmp_path: Path) -> None:
    with Left(server.address) as db:
        ran = Page("examples/README.md", server.address, tmp_path).run("shell")
        assert len(ran.commands) >= 3
        assert db.tables("shop") == ["large_orders", "orders"]
