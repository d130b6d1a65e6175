"""A shop: orders, payments and shipments into one wide table that is always right.

    strom up &
    python examples/shop/shop.py localhost:9123

Three tables change all the time: orders are placed, changed and cancelled, payments arrive late and in parts, parcels
are sent, lost and sent again. Two delta joins in a chain keep ``shop.wide``: a row for every order with every payment
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

    from strom.spark.joins.delta import DeltaJoin

ORDERS = {"order_id": "BIGINT", "customer": "BIGINT", "price": "DECIMAL(10, 2)", "status": "STRING"}
PAYMENTS = {"payment_id": "BIGINT", "order_id": "BIGINT", "amount": "DECIMAL(10, 2)"}
PARCELS = {"parcel_id": "STRING", "order_id": "BIGINT", "carrier": "STRING", "delivered": "BOOLEAN"}


class Shop:
    """The three tables, and what happens to them."""

    def __init__(self, db: strom.Database, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        self._last = 0
        db.create_database("shop", if_exists="ignore")
        made = {"if_exists": "ignore", "buckets": 2}
        self.orders = db.create_table("shop.orders", ORDERS, primary_key="order_id", **made)  # type: ignore[arg-type]
        by_order = {"by_order_id": "order_id"}
        self.payments = db.create_table(
            "shop.payments", PAYMENTS, primary_key="payment_id", indexes=by_order, **made  # type: ignore[arg-type]
        )  # fmt: skip
        self.parcels = db.create_table(
            "shop.parcels", PARCELS, primary_key="parcel_id", indexes=by_order, **made  # type: ignore[arg-type]
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
        "shop.orders", "shop.payments", on="order_id", how="left", into="shop.paid_orders", spark=spark
    )
    return strom.spark.delta_join(
        paid,
        strom.spark.Side("shop.parcels", where="carrier <> 'ship'"),
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
        into="shop.wide",
        spark=spark,
    )


def main(address: str) -> None:
    with strom.connect(address) as db:
        shop = Shop(db)
        shop.day(500)
        spark = strom.spark.session(address, master="local[2]", config={"spark.ui.enabled": "false"})
        wide = wide_table(spark)
        print(wide.explain())
        query = wide.start(tempfile.mkdtemp(prefix="shop-"), rebuild=True)
        try:
            for day in range(1, 6):
                shop.day(300)
                for one in (*query.before, query):
                    one.query.processAllAvailable()
                rows = db.table("shop.wide").scan(["order_id"]).count()
                print(f"day {day}: {rows} rows in shop.wide, {query.lag()} changes behind")
        finally:
            query.stop()
            spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9123")
