"""The demo's shop knows what its tables hold, and counts no change that it did not make."""

from __future__ import annotations

from typing import Any

import pytest

from strom.cli.demo.shop import Shop


class Kept:
    """A table in memory that counts what is changed."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.rows: dict[int, dict[str, Any]] = {}
        self.changes = 0

    def upsert(self, rows: list[dict[str, Any]]) -> None:
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
        self.kept = {name: Kept(f"{name[:-1]}_id") for name in ("orders", "payments")}

    def table(self, name: str) -> Kept:
        return self.kept[name.rpartition(".")[2]]


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
