"""Transactions over buckets and tables, and a reader who must never see a part of one."""

from __future__ import annotations

from collections import Counter

import strom
from campaign.actor import Actor
from strom.api.transaction import Transaction as Staged

ENTRIES = "entries"
BALANCES = "balances"
ROWS = 12
"""Of each transaction, in each of the two tables."""

Transaction = tuple[int, int]
"""(writer, version)."""


def make_transaction_tables(db: strom.Database, buckets: int) -> None:
    """A log and a table with keys, both written by every transaction."""
    columns = {"writer": "BIGINT", "version": "BIGINT", "line": "BIGINT"}
    db.create_table(ENTRIES, columns, buckets=buckets)
    db.create_table(BALANCES, columns, primary_key=["writer", "line"], buckets=buckets)


class TransactionWriter(Actor):
    """Publishes version after version, each until it is certain that it is published; some it gives up before."""

    def __init__(self, number: int, address: str, seed: object) -> None:
        super().__init__(f"transaction-writer-{number}", address, seed)
        self.number = number
        self.published: set[int] = set()
        self.given_up: set[int] = set()
        self.version = 1
        """The one that is being published; it is certain only when it is in ``published``."""

    def begin(self, db: strom.Database) -> None:
        self._db = db

    def step(self) -> None:
        if self.chance.random() < 0.1:
            self._give_up()
            return
        with self._db.transaction(self.name, version=self.version) as tx:
            self._write(tx)
        self.published.add(self.version)
        self.version += 1

    def _write(self, tx: Staged) -> None:
        rows = [{"writer": self.number, "version": self.version, "line": line} for line in range(ROWS)]
        tx.append(ENTRIES, rows)
        tx.upsert(BALANCES, rows)

    def _give_up(self) -> None:
        """A transaction without an id, so that its version never is that of another one."""
        number = -1 - len(self.given_up)
        tx = self._db.transaction()
        tx.append(ENTRIES, [{"writer": self.number, "version": number, "line": 0}])
        tx.abort()
        self.given_up.add(number)


class WholeReader(Actor):
    """Scans, and counts the rows of each transaction: all of them or none."""

    def begin(self, db: strom.Database) -> None:
        self._db = db
        self.seen: set[Transaction] = set()

    def step(self) -> None:
        self.seen |= whole_transactions(self._db)


def whole_transactions(db: strom.Database) -> set[Transaction]:
    """The transactions that are visible now; raises if one of them is not whole."""
    rows = db.table(ENTRIES).scan().to_arrow()
    counts = Counter(zip(rows["writer"].to_pylist(), rows["version"].to_pylist(), strict=True))
    torn = {one: count for one, count in counts.items() if count != ROWS}
    assert not torn, f"transactions in part, doubled or given up: {torn}"
    balances = db.table(BALANCES).scan().to_arrow()
    versions = Counter(zip(balances["writer"].to_pylist(), balances["version"].to_pylist(), strict=True))
    torn = {one: count for one, count in versions.items() if count != ROWS}
    assert not torn, f"balances of several transactions: {torn}"
    return set(counts)
