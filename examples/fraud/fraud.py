"""A fraud rule by a lookup join: every payment is looked at beside what is known of its card, right now.

    strom up --data /tmp/strom-examples          # in another terminal
    python examples/fraud/fraud.py

Payments arrive in a log. What is known of a card (its country, its limit, whether it was reported stolen) lies in a
table that others change at any moment. A payment is suspicious when its card is stolen or unknown, when it is above
the card's limit, or when it comes from another country. Suspicious ones go to a table of alarms, each once.
"""

from __future__ import annotations

import random
import sys
import tempfile
from typing import TYPE_CHECKING

import strom
import strom.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAYMENTS = {"payment_id": "BIGINT", "card": "STRING", "amount": "DOUBLE", "country": "STRING"}
CARDS = {"card": "STRING", "home": "STRING", "credit": "DOUBLE", "stolen": "BOOLEAN"}
ALARMS = {**PAYMENTS, "reason": "STRING"}
REASON = """
    CASE WHEN stolen IS NULL THEN 'unknown card'
         WHEN stolen THEN 'stolen card'
         WHEN amount > credit THEN 'above the limit'
         WHEN country <> home THEN 'from another country' END"""


def tables(db: strom.Database) -> tuple[strom.Table, strom.Table, strom.Table]:
    """Payments (a log), cards, alarms."""
    db.create_database("bank", if_exists="ignore")
    payments = db.create_table("bank.payments", PAYMENTS, buckets=2, if_exists="ignore")
    cards = db.create_table("bank.cards", CARDS, primary_key="card", buckets=2, if_exists="ignore")
    alarms = db.create_table("bank.alarms", ALARMS, primary_key="payment_id", buckets=1, if_exists="ignore")
    return payments, cards, alarms


def suspicious(spark: SparkSession) -> DataFrame:
    """The rule. Cards are looked up with every batch; a card that was reported is known to the next payment."""
    payments = spark.readStream.format("strom").option(
        "bootstrap.servers", spark.conf.get("spark.sql.catalog.strom.bootstrap.servers")
    )
    known = strom.spark.lookup_join(payments.load("bank.payments"), "bank.cards", on="card", how="left")
    judged = known.selectExpr(*PAYMENTS, f"{REASON} AS reason")
    return judged.where("reason IS NOT NULL")


def arriving(hour: int, chance: random.Random) -> list[dict[str, object]]:
    """A thousand payments; one card in a hundred is unknown, one payment in twenty comes from elsewhere."""
    return [
        {
            "payment_id": hour * 1000 + number,
            "card": f"c{chance.randrange(101)}",
            "amount": chance.expovariate(1 / 100),
            "country": chance.choice(["NL"] * 20 + ["??"]),
        }
        for number in range(1000)
    ]


def run(spark: SparkSession, address: str) -> None:
    """Three hours at the bank, a card stolen in each."""
    chance = random.Random(7)
    with strom.connect(address) as db:
        payments, cards, alarms = tables(db)
        cards.upsert([{"card": f"c{n}", "home": "NL", "credit": 500.0, "stolen": False} for n in range(100)])
        cards.flush()
        query = strom.spark.merge(
            suspicious(spark), "bank.alarms", checkpoint=tempfile.mkdtemp(prefix="fraud-")
        )
        assert query is not None
        try:
            for hour in range(3):
                cards.upsert([{"card": f"c{hour}", "home": "NL", "credit": 500.0, "stolen": True}])
                cards.flush()
                payments.append(arriving(hour, chance))
                payments.flush()
                query.processAllAvailable()
                reasons = alarms.scan(["reason"]).to_arrow().column("reason").to_pylist()
                told = (f"{reasons.count(one)} {one}" for one in sorted(set(reasons)))
                print(f"hour {hour}:", ", ".join(told), flush=True)
        finally:
            query.stop()


def main(address: str) -> None:
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = strom.spark.session(address, master="local[2]", config=quiet)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        run(spark, address)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9123")
