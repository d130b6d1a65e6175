"""A shop: orders, payments and shipments into one wide table that is always right.

    strom up --data /tmp/strom-examples          # in another terminal
    python examples/shop/shop.py

Three tables change all the time: orders are placed, changed and cancelled, payments arrive late and in parts, parcels
are sent, lost and sent again. Two delta joins in a chain keep ``store.wide``: a row for every order with every payment
and every parcel of it, NULL where there is none. Nothing is kept in Spark; stop the program when you like and start
it again.
"""

from __future__ import annotations

import random
import sys
import tempfile
from decimal import Decimal
from typing import TYPE_CHECKING

import strom
import strom.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strom.spark.joins.delta.delta_join import DeltaJoin

ORDERS = {"order_id": "BIGINT", "customer": "BIGINT", "price": "DECIMAL(10, 2)", "status": "STRING"}
PAYMENTS = {"payment_id": "BIGINT", "order_id": "BIGINT", "amount": "DECIMAL(10, 2)"}
PARCELS = {"parcel_id": "STRING", "order_id": "BIGINT", "carrier": "STRING", "delivered": "BOOLEAN"}


class Shop:
    """The three tables, and what happens to them."""

    def __init__(self, db: strom.Database, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._last = 0
        db.create_database("store", if_exists="ignore")
        made = {"if_exists": "ignore", "buckets": 2}
        self.orders = db.create_table("store.orders", ORDERS, primary_key="order_id", **made)  # type: ignore[arg-type]
        by_order = {"by_order_id": "order_id"}
        self.payments = db.create_table(
            "store.payments", PAYMENTS, primary_key="payment_id", indexes=by_order, **made  # type: ignore[arg-type]
        )  # fmt: skip
        self.parcels = db.create_table(
            "store.parcels", PARCELS, primary_key="parcel_id", indexes=by_order, **made  # type: ignore[arg-type]
        )  # fmt: skip

    def day(self, events: int) -> None:
        """So much happens."""
        for _ in range(events):
            self._chance.choice([self._order, self._order, self._pay, self._send, self._regret])()
        for table in (self.orders, self.payments, self.parcels):
            table.flush()

    def _known(self) -> int:
        return self._chance.randint(1, max(self._last, 1))

    def _order(self) -> None:
        self._last += 1
        price = Decimal(self._chance.randrange(100, 20_000)) / 100
        row = {
            "order_id": self._last,
            "customer": self._chance.randrange(50),
            "price": price,
            "status": "open",
        }
        self.orders.upsert([row])

    def _pay(self) -> None:
        order = self._known()
        payment = {
            "payment_id": self._chance.randrange(10**9),
            "order_id": order,
            "amount": self._chance.randrange(99),
        }
        self.payments.upsert([payment])
        self.orders.upsert([{"order_id": order, "status": "paid"}], columns=["order_id", "status"])

    def _send(self) -> None:
        parcel = f"parcel-{self._chance.randrange(self._last + 1)}"
        carrier = self._chance.choice(["bike", "van", "ship"])
        row = {"parcel_id": parcel, "order_id": self._known(), "carrier": carrier, "delivered": False}
        self.parcels.upsert([row])  # a parcel that goes to another order changes its join key

    def _regret(self) -> None:
        if self._chance.random() < 0.5:
            self.orders.delete([self._known()])
        else:
            self.parcels.delete([f"parcel-{self._chance.randrange(self._last + 1)}"])


def wide_table(spark: SparkSession) -> DeltaJoin:
    """Orders with payments, and these with parcels: a chain of two joins."""
    paid = strom.spark.delta_join(
        "store.orders", "store.payments", on="order_id", how="left", into="store.paid_orders", spark=spark
    )
    return strom.spark.delta_join(
        paid,
        strom.spark.Side("store.parcels", where="carrier <> 'ship'"),
        on="order_id",
        how="left",
        select=[
            "order_id",
            "customer",
            "price",
            "status",
            "payment_id",
            "amount",
            "parcel_id",
            "carrier",
            "delivered",
        ],
        into="store.wide",
        spark=spark,
    )


def run(spark: SparkSession, address: str) -> None:
    """Five days in the shop."""
    with strom.connect(address) as db:
        shop = Shop(db)
        shop.day(500)
        wide = wide_table(spark)
        print(wide.explain())
        query = wide.start(tempfile.mkdtemp(prefix="shop-"), rebuild=True)
        try:
            for day in range(1, 6):
                shop.day(300)
                query.wait_until_caught_up()
                rows = db.table("store.wide").scan(["order_id"]).count()
                print(f"day {day}: {rows:,} rows in store.wide, {query.lag()} changes behind", flush=True)
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
