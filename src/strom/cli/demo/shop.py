"""A made-up shop: clicks that are only appended; customers, orders and payments that come, change and go.

Every change is made twice: in the tables, and in plain dicts of this process. What Strom answers is checked against the
dicts, so the demo fails where Strom is wrong.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from strom.api import Database, Table

DATABASE = "shop"
DAYS = ("2026-11-13", "2026-11-14", "2026-11-15")
CITIES = ("Berlin", "Lagos", "Lima", "Oslo", "Pune")
STATES = ("placed", "paid", "shipped")
METHODS = ("card", "invoice", "transfer")
CLICK_COLUMNS = {
    "click_id": "BIGINT NOT NULL",
    "customer_id": "BIGINT",
    "page": "STRING",
    "country": "STRING",
    "price": "DOUBLE",
    "took_ms": "DOUBLE",
    "at": "TIMESTAMP(3)",
    "day": "STRING",
}
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "5 s"}
BATCH_ROWS = 10_000


def mixed(numbers: Any, seed: int = 0) -> Any:
    """Pseudo-random numbers that are the same in every run."""
    return (numbers * 2_654_435_761 + 97 * seed) % 1_000_003


@dataclass
class Shop:
    """The tables, and what must be in them."""

    database: Database
    customers: dict[int, dict[str, Any]] = field(default_factory=dict)
    orders: dict[int, dict[str, Any]] = field(default_factory=dict)
    payments: dict[int, dict[str, Any]] = field(default_factory=dict)
    clicks: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while a change is made in a table and in the dicts, so that no comparison sees half of it."""

    def create(self) -> None:
        """The database and its tables, those of an earlier demo gone."""
        self.create_log()
        self.create_keyed()

    def create_log(self) -> None:
        """The database, those tables of an earlier demo gone, and the one without a key."""
        self.database.create_database(DATABASE, if_exists="ignore")
        for name in reversed(self.database.tables(DATABASE)):
            self.database.drop_table(f"{DATABASE}.{name}")
        self.database.create_table(
            f"{DATABASE}.clicks", CLICK_COLUMNS, partition_by=["day"], buckets=2, properties=TIERED
        )

    def create_keyed(self) -> None:
        """The tables with a key."""
        self.database.create_table(
            f"{DATABASE}.customers",
            {"customer_id": "BIGINT", "name": "STRING", "city": "STRING", "spent": "DOUBLE"},
            primary_key="customer_id",
            indexes={"by_city": "city"},
        )
        self.database.create_table(
            f"{DATABASE}.orders",
            {"order_id": "BIGINT", "customer_id": "BIGINT", "state": "STRING", "amount": "DOUBLE"},
            primary_key="order_id",
            buckets=2,
            properties=TIERED,
        )
        self.database.create_table(
            f"{DATABASE}.payments",
            {"payment_id": "BIGINT", "order_id": "BIGINT", "method": "STRING", "paid": "DOUBLE"},
            primary_key="payment_id",
            buckets=2,
            indexes={"by_order": "order_id"},
        )

    def table(self, name: str) -> Table:
        """One of the tables."""
        return self.database.table(f"{DATABASE}.{name}")

    # --- clicks -----------------------------------------------------------------------------------------------

    def click(self, rows: int) -> None:
        """Append clicks, spread over the days."""
        with self.table("clicks").writer() as writer:
            for day in DAYS:
                left = rows // len(DAYS)
                while left:
                    count = min(left, BATCH_ROWS)
                    writer.append(clicks(self.clicks, count, day))
                    self.clicks += count
                    left -= count

    # --- customers --------------------------------------------------------------------------------------------

    def welcome(self, rows: int) -> int:
        """Customers twice each, then every tenth gone; returns how many changes that were."""
        gone = list(range(0, rows, 10))
        with self.table("customers").writer() as writer:
            for seed in range(2):
                for start in range(0, rows, BATCH_ROWS):
                    writer.upsert(customers(start, min(BATCH_ROWS, rows - start), seed))
            writer.delete(gone)
        self.customers = {row["customer_id"]: row for row in customers(0, rows, 1).to_pylist()}
        for number in gone:
            del self.customers[number]
        return 2 * rows + len(gone)

    # --- orders and payments ----------------------------------------------------------------------------------

    def open(self, rows: int) -> None:
        """Orders to begin with, most of them paid."""
        with self.lock:
            self._put("orders", [order(number, 0) for number in range(rows)])
            self._put("payments", [payment(number, 0) for number in range(rows) if number % 4])

    def trade(self, steps: int, seed: int) -> int:
        """New orders, changes of state, cancelled ones, payments that come and are taken back; how many changes."""
        made = 0
        for step in range(steps):
            with self.lock:
                made += self._step(seed * 1000 + step)
        return made

    def _step(self, seed: int) -> int:
        high = max(self.orders, default=-1) + 1
        chosen = [int(mixed(number, seed)) % high for number in range(high, high + 20)]
        changed = {number: order(number, seed) for number in chosen if number in self.orders}
        fresh = {number: order(number, seed) for number in range(high, high + 10)}
        made = self._put("orders", [*changed.values(), *fresh.values()])
        made += self._drop("orders", list(changed)[:2])
        made += self._put("payments", [payment(number, seed) for number in list(fresh)[::2]])
        return made + self._drop("payments", [number for number in chosen[::7] if number in self.payments])

    def _put(self, name: str, rows: list[dict[str, Any]]) -> int:
        table, key = self.table(name), f"{name[:-1]}_id"
        table.upsert(rows)
        table.flush()
        getattr(self, name).update({row[key]: row for row in rows})
        return len(rows)

    def _drop(self, name: str, keys: list[int]) -> int:
        table, known = self.table(name), getattr(self, name)
        keys = [key for key in dict.fromkeys(keys) if key in known]
        if keys:
            table.delete(keys)
            table.flush()
        for key in keys:
            del known[key]
        return len(keys)

    # --- what must be -----------------------------------------------------------------------------------------

    def paid_orders(self) -> list[tuple[Any, ...]]:
        """Orders with their payments, as a join of the two has to give them."""
        found = []
        for row in self.payments.values():
            one = self.orders.get(row["order_id"])
            if one is not None:
                found.append((one["order_id"], one["state"], row["payment_id"], row["paid"]))
        return sorted(found)

    def turnover(self) -> dict[str, tuple[int, float]]:
        """By state of the order: how many, and the sum of their amounts."""
        found: dict[str, tuple[int, float]] = {}
        for row in self.orders.values():
            count, total = found.get(row["state"], (0, 0.0))
            found[row["state"]] = (count + 1, total + row["amount"])
        return found


def clicks(start: int, count: int, day: str) -> pa.RecordBatch:
    """Clicks of one day."""
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(start, start + count, dtype=np.int64)
    chance = mixed(numbers)
    pages = np.array([f"/shop/item-{number}" for number in range(500)])
    countries = np.array(["DE", "FR", "IN", "JP", "US"])
    midnight = np.datetime64(day, "ms")
    return pa.RecordBatch.from_pydict(
        {
            "click_id": pa.array(numbers),
            "customer_id": pa.array(chance % 50_000),
            "page": pa.array(pages[chance % 500]),
            "country": pa.array(countries[chance % 5]),
            "price": pa.array((chance % 20_000) / 4.0),
            "took_ms": pa.array((chance % 977) / 8.0),
            "at": pa.array(midnight + (numbers % 86_400_000).astype("timedelta64[ms]")),
            "day": pa.array([day] * count),
        }
    )


def customers(start: int, count: int, seed: int) -> pa.RecordBatch:
    """Customers as they were at some time."""
    import numpy as np
    import pyarrow as pa

    numbers = np.arange(start, start + count, dtype=np.int64)
    chance = mixed(numbers, seed)
    return pa.RecordBatch.from_pydict(
        {
            "customer_id": pa.array(numbers),
            "name": pa.array([f"customer {number}" for number in numbers]),
            "city": pa.array(np.array(CITIES)[chance % len(CITIES)]),
            "spent": pa.array(chance / 4.0),
        }
    )


def order(number: int, seed: int) -> dict[str, Any]:
    """An order; its amounts add up exactly, in whatever order they are added."""
    chance = int(mixed(number, seed))
    return {
        "order_id": number,
        "customer_id": chance % 5_000,
        "state": STATES[chance % len(STATES)],
        "amount": float(chance % 400) / 4,
    }


def payment(number: int, seed: int) -> dict[str, Any]:
    """The payment of an order of the same number."""
    chance = int(mixed(number, seed + 7))
    return {
        "payment_id": number,
        "order_id": number,
        "method": METHODS[chance % len(METHODS)],
        "paid": float(chance % 400) / 4,
    }
