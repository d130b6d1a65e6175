"""Keys that are written and looked up: some by several writers, judged as a whole; some by one, whose versions rise."""

from __future__ import annotations

import time

import strom
from campaign.actor import Actor
from strom.testing.linearizability import Operation

KEYS = "accounts"
COPIED = "accounts_copied"
"""What a stream of Spark makes of their changes."""
SHARED = range(6)
"""Keys that everybody writes."""
OWN_FROM = 1000
"""Writer n alone writes the keys from 1000 n on."""
OWN_COUNT = 5

Value = tuple[int, int] | None
"""(writer, number), or no row."""


def make_keys(db: strom.Database, durability: str, buckets: int) -> None:
    """The table and the one it is copied to."""
    for name in (KEYS, COPIED):
        db.create_table(
            name,
            {"id": "BIGINT", "writer": "BIGINT", "number": "BIGINT"},
            primary_key="id",
            buckets=buckets,
            properties={"table.durability": durability},
        )


class KeyWriter(Actor):
    """Writes one key at a time, a value that was never written before, or deletes it."""

    def __init__(self, number: int, address: str, seed: object) -> None:
        super().__init__(f"key-writer-{number}", address, seed)
        self.number = number
        self.operations: dict[int, list[Operation]] = {key: [] for key in SHARED}
        self.own: dict[int, int] = {}
        """The last acknowledged version of each key of its own."""
        self.tried: dict[int, int] = {}
        """The last version that was sent."""
        self._numbers = 0

    def begin(self, db: strom.Database) -> None:
        self._table = db.table(KEYS)

    def step(self) -> None:
        if self.chance.random() < 0.5:
            self._write_shared(self.chance.choice(SHARED))
        else:
            self._write_own()

    def _write_shared(self, key: int) -> None:
        self._numbers += 1
        value: Value = None if self.chance.random() < 0.15 else (self.number, self._numbers)
        began = time.monotonic()
        ended = None
        try:
            self._put(key, value)
            ended = time.monotonic()
        finally:
            self.operations[key].append(Operation(True, value, began, ended, self.name))

    def _put(self, key: int, value: Value) -> None:
        if value is None:
            self._table.delete([key])
        else:
            self._table.upsert([{"id": key, "writer": value[0], "number": value[1]}])
        self._table.flush()

    def _write_own(self) -> None:
        self._numbers += 1
        first = OWN_FROM * self.number
        keys = range(first, first + OWN_COUNT)
        self.tried |= dict.fromkeys(keys, self._numbers)
        self._table.upsert([{"id": one, "writer": self.number, "number": self._numbers} for one in keys])
        self._table.flush()
        self.own |= dict.fromkeys(keys, self._numbers)


class StrongReader(Actor):
    """Looks shared keys up so that each answer counts: it is what the key held at some moment of the call."""

    def __init__(self, number: int, address: str, seed: object) -> None:
        super().__init__(f"strong-reader-{number}", address, seed)
        self.operations: dict[int, list[Operation]] = {key: [] for key in SHARED}

    def begin(self, db: strom.Database) -> None:
        self._table = db.table(KEYS)

    def step(self) -> None:
        key = self.chance.choice(SHARED)
        began = time.monotonic()
        row = self._table.lookup(key, strong=True)
        value = None if row is None else (row["writer"], row["number"])
        self.operations[key].append(Operation(False, value, began, time.monotonic(), self.name))


class PlainReader(Actor):
    """Looks keys of single writers up: no version may be older than one that this connection saw."""

    def __init__(self, number: int, address: str, seed: object, writers: int) -> None:
        super().__init__(f"plain-reader-{number}", address, seed)
        self._keys = [OWN_FROM * one + i for one in range(1, writers + 1) for i in range(OWN_COUNT)]
        self.newest: dict[int, int] = {}

    def begin(self, db: strom.Database) -> None:
        self._table = db.table(KEYS)

    def step(self) -> None:
        key = self.chance.choice(self._keys)
        row = self._table.lookup(key)
        before = self.newest.get(key, 0)
        version = 0 if row is None else int(row["number"])
        assert version >= before, f"{self.name}: key {key} had version {before}, and then {version}"
        self.newest[key] = version
