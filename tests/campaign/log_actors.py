"""Rows that are appended to a log, and followed."""

from __future__ import annotations

import strom
from campaign.actor import Actor
from strom.errors import Retry

LOG = "events"
SIZES = (1, 1, 3, 40, 300)
BURST = 4
FOLLOW_S = 2.0

Row = tuple[int, int]
"""(writer, number)."""


def make_log(db: strom.Database, durability: str, buckets: int) -> None:
    """The table."""
    db.create_table(
        LOG,
        {"writer": "BIGINT", "number": "BIGINT", "text": "STRING"},
        buckets=buckets,
        properties={
            "table.durability": durability,
            "table.datalake.enabled": "true",
            "table.datalake.freshness": "5 s",
        },
    )


class LogWriter(Actor):
    """Appends numbered rows, several batches at a time, and waits for their acknowledgement."""

    def __init__(self, number: int, address: str, seed: object) -> None:
        super().__init__(f"log-writer-{number}", address, seed)
        self.number = number
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.tried: set[int] = set()
        """Numbers whose acknowledgement never came: they may be there or not."""

    def begin(self, db: strom.Database) -> None:
        self._table = db.table(LOG)

    def step(self) -> None:
        first = self.sent
        try:
            for _ in range(self.chance.randint(1, BURST)):
                self._append(self.chance.choice(SIZES))
            self._table.flush()
        except Retry:
            self.tried |= set(range(first, self.sent))
            raise
        self.acknowledged |= set(range(first, self.sent))

    def _append(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        self.sent += count
        self._table.append(
            [{"writer": self.number, "number": one, "text": f"row {one} of {self.number}"} for one in numbers]
        )


class LogTail(Actor):
    """Follows the log from its beginning; stops and goes on from where it was again and again."""

    def __init__(self, number: int, address: str, seed: object) -> None:
        super().__init__(f"log-tail-{number}", address, seed)
        self.seen: dict[int, list[Row]] = {}
        """What came from each bucket, in order of arrival; its index is its offset."""
        self._positions: dict[tuple[str | None, int], int] | str = "earliest"

    def begin(self, db: strom.Database) -> None:
        self._table = db.table(LOG)

    def step(self) -> None:
        with self._table.tail(start=self._positions, timeout=FOLLOW_S) as tail:
            for batch in tail:
                self._take(batch)
                self._positions = tail.positions
                if self.over.is_set():
                    return

    def _take(self, batch: strom.TailBatch) -> None:
        seen = self.seen.setdefault(batch.bucket.bucket, [])
        assert batch.offsets.tolist() == list(range(len(seen), len(seen) + batch.num_rows)), (
            f"{self.name}: after offset {len(seen) - 1} of bucket {batch.bucket} came {batch.offsets.tolist()[:3]}"
        )
        seen += zip(batch.data["writer"].to_pylist(), batch.data["number"].to_pylist(), strict=True)
