"""A program that goes on while the servers of a cluster are stopped and started."""

from __future__ import annotations

import threading
from collections.abc import Callable

import strom
from waiting import until_blocking


class Busy:
    """A program that writes and looks up without a pause, and counts no error as normal."""

    def __init__(self, db: strom.Database, address: str) -> None:
        """Makes its tables, each with three copies."""
        three = {"table.replication.factor": 3}
        self._rolled = db.create_table("rolled", {"a": "BIGINT"}, buckets=3, properties=three)
        names = db.create_table(
            "looked_up", {"id": "BIGINT", "name": "STRING"}, primary_key="id", buckets=3, properties=three
        )
        names.upsert([{"id": number, "name": f"name {number}"} for number in range(100)])
        names.flush()
        self.written = 0
        self.looked_up = 0
        self.errors: list[BaseException] = []
        self._address = address
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(one,)) for one in (self._append, self._look_up)
        ]

    def _run(self, step: Callable[[strom.Database], None]) -> None:
        try:
            with strom.connect(self._address) as db:
                while not self._ended.is_set():
                    step(db)
        except BaseException as error:
            self.errors.append(error)

    def _append(self, db: strom.Database) -> None:
        rows = [{"a": number} for number in range(self.written, self.written + 10)]
        db.table("rolled").append(rows)
        db.flush()
        self.written += len(rows)

    def _look_up(self, db: strom.Database) -> None:
        key = self.looked_up % 100
        assert db.table("looked_up").lookup(key) == {"id": key, "name": f"name {key}"}
        self.looked_up += 1

    def goes_on(self) -> None:
        """Both get an answer to what they ask from now on."""
        written, looked_up = self.written, self.looked_up
        until_blocking(
            lambda: self.errors or (self.written > written + 10 and self.looked_up > looked_up + 1), 30.0
        )

    def __enter__(self) -> Busy:
        for thread in self._threads:
            thread.start()
        return self

    def end(self) -> None:
        """Stop writing and looking up."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def rows(self) -> list[int]:
        """What the table has of what was written, in order."""
        return sorted(self._rolled.scan().to_arrow()["a"].to_pylist())

    def __exit__(self, *_: object) -> None:
        self.end()
