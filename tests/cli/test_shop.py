"""The demo's shop knows what its tables hold, and counts no change that it did not make."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from strom.cli.demo import shop as shops
from strom.cli.demo.shop import Shop


class Kept:
    """A table in memory that counts what is changed."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.rows: dict[int, dict[str, Any]] = {}
        self.changes = 0

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, *error: object) -> None:
        """Its writer keeps nothing back."""

    def writer(self) -> Kept:
        return self

    def upsert(self, given: list[dict[str, Any]] | pa.RecordBatch) -> None:
        rows = given if isinstance(given, list) else given.to_pylist()
        assert len({row[self.key] for row in rows}) == len(rows), "a key is written once in a step"
        self.rows.update({row[self.key]: row for row in rows})
        self.changes += len(rows)

    def delete(self, keys: list[int]) -> None:
        for key in keys:
            del self.rows[key]
        self.changes += len(keys)

    def flush(self) -> None:
        """All is there already."""


class Tables:
    """A database of two tables."""

    def __init__(self) -> None:
        self.kept = {name: Kept(f"{name[:-1]}_id") for name in ("orders", "payments", "customers")}

    def table(self, name: str) -> Kept:
        return self.kept[name.rpartition(".")[2]]


def test_a_shop_knows_its_customers_however_many_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shops, "BATCH_ROWS", 50)
    tables = Tables()
    shop = Shop(tables)  # type: ignore[arg-type]
    customers = tables.kept["customers"]
    assert shop.welcome(130) == customers.changes == 2 * 130 + 13
    assert customers.rows == shop.customers
    assert len(shop.customers) == 117


@pytest.mark.parametrize("seed", range(5))
def test_a_shop_counts_the_changes_that_it_made(seed: int) -> None:
    tables = Tables()
    shop = Shop(tables)  # type: ignore[arg-type]
    shop.open(60)
    for table in tables.kept.values():
        table.changes = 0
    made = shop.trade(20, seed)
    assert made == sum(table.changes for table in tables.kept.values())
    assert tables.kept["orders"].rows == shop.orders
    assert tables.kept["payments"].rows == shop.payments
    assert any(number not in shop.orders for number in range(60)), "some orders are cancelled"
    assert any(row["payment_id"] not in shop.orders for row in shop.payments.values())
