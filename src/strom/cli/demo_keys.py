"""The demo's second chapter: a table with a key. What it shows is checked against a dict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strom.cli.output import print_table
from strom.cli.watch import Watch

if TYPE_CHECKING:
    import pyarrow as pa

    from strom.api import Database, Table

NAME = "demo_users"
LOOKUPS = 500
BATCH_ROWS = 10_000
CITIES = ("Berlin", "Lagos", "Lima", "Oslo", "Pune")


def show_keys(database: Database, rows: int, watch: Watch) -> None:
    """Upsert, look up, index, go back in time, replay."""
    database.drop_table(NAME, if_missing="ignore")
    users = database.create_table(
        NAME,
        {"user_id": "BIGINT", "name": "STRING", "city": "STRING", "visits": "INT", "spent": "DOUBLE"},
        primary_key="user_id",
        indexes={"by_city": "city"},
    )
    print()
    watch.say(f"table {NAME} (5 columns, primary key user_id, an index on city) is created")
    expected = _write(users, rows, watch)
    _look_up(users, expected, watch)
    _go_back(users, expected, watch)
    _replay(users, expected, watch)
    database.drop_table(NAME)


def _users(start: int, count: int, round_: int) -> pa.RecordBatch:
    import numpy as np
    import pyarrow as pa

    ids = np.arange(start, start + count, dtype=np.int64)
    mixed = (ids * 2_654_435_761 + round_) % 1_000_003
    return pa.RecordBatch.from_pydict(
        {
            "user_id": pa.array(ids),
            "name": pa.array([f"user {number}" for number in ids]),
            "city": pa.array(np.array(CITIES)[mixed % len(CITIES)]),
            "visits": pa.array((mixed % 100).astype(np.int32)),
            "spent": pa.array(mixed / 7.0),
        }
    )


def _write(users: Table, rows: int, watch: Watch) -> dict[int, dict[str, Any]]:
    """Everybody twice, then some gone; the dict that the table must equal."""
    expected: dict[int, dict[str, Any]] = {}
    print(
        "           the first upsert: a new installation compiles its kernels now, once (a minute or two)",
        flush=True,
    )
    users.upsert(_users(0, 1, 0))
    users.flush()
    watch.say("the server is ready for keys")
    with users.writer() as writer:
        for round_ in range(2):
            for start in range(0, rows, BATCH_ROWS):
                writer.upsert(_users(start, min(BATCH_ROWS, rows - start), round_))
        gone = list(range(0, rows, 10))
        writer.delete(gone)
    seconds = watch.lap()
    written = 2 * rows + len(gone)
    print(
        f"[{seconds:6.2f} s] {written:,} upserts and deletes, synced to disk ({written / seconds:,.0f} a second)"
    )
    for row in _users(0, rows, 1).to_pylist():
        expected[row["user_id"]] = row
    for number in gone:
        del expected[number]
    assert users.count() == len(expected)
    found = {row["user_id"]: row for row in users.scan().to_arrow().to_pylist()}
    assert found == expected, "the table is not what was written"
    watch.say(f"the table holds {len(expected):,} rows and equals a dict that took the same changes")
    return expected


def _look_up(users: Table, expected: dict[int, dict[str, Any]], watch: Watch) -> None:
    keys = [number * 7919 % (max(expected) + 1) for number in range(LOOKUPS)]
    took = []
    for key in keys:
        began = watch.now()
        row = users.lookup(key)
        took.append((watch.now() - began) * 1e6)
        assert row == expected.get(key), f"lookup of {key}"
    took.sort()
    watch.say(
        f"{LOOKUPS} single lookups: median {took[len(took) // 2]:,.0f} µs, p99 {took[len(took) * 99 // 100]:,.0f} µs"
    )
    began = watch.now()
    many = users.lookup_many(keys)
    milliseconds = (watch.now() - began) * 1e3
    missing = dict.fromkeys(users.schema.names)
    assert many.to_pylist() == [expected.get(key, missing) for key in keys]
    watch.say(
        f"the same {LOOKUPS} keys in one call: {milliseconds:.1f} ms, in the order asked, misses as NULLs"
    )
    found = users.lookup_index("by_city", CITIES[0], columns=["user_id"]).column("user_id").to_pylist()
    assert sorted(found) == [key for key, row in sorted(expected.items()) if row["city"] == CITIES[0]]
    watch.say(f"by the index: {len(found):,} users live in {CITIES[0]}")


def _go_back(users: Table, expected: dict[int, dict[str, Any]], watch: Watch) -> None:
    instant = users.scan().plan().offsets
    key = max(expected)
    users.upsert({"user_id": [key], "visits": [1_000_000]}, columns=["user_id", "visits"])
    assert users.lookup(key) == expected[key] | {"visits": 1_000_000}
    then = users.scan(["visits"], where="visits = 1000000", at=instant).to_arrow()
    assert then.num_rows == 0
    expected[key] = expected[key] | {"visits": 1_000_000}
    watch.say("updated one column of one user; a scan at the instant before still shows the table without it")


def _replay(users: Table, expected: dict[int, dict[str, Any]], watch: Watch) -> None:
    log = users.changelog(columns=["user_id", "visits"]).to_arrow()
    replayed: dict[int, int] = {}
    kinds = log.column("_change_type").to_pylist()
    for kind, key, visits in zip(
        kinds, log.column("user_id").to_pylist(), log.column("visits").to_pylist(), strict=True
    ):
        if kind in ("+I", "+U"):
            replayed[key] = visits
        elif kind == "-D":
            del replayed[key]
    assert replayed == {key: row["visits"] for key, row in expected.items()}, (
        "the changelog does not give the table"
    )
    watch.say(f"the changelog ({log.num_rows:,} changes) replayed gives the same table; its end:")
    end = log.slice(log.num_rows - 2).to_pylist()
    print_table(
        ["change", "offset", "user_id", "visits"],
        [
            [row["_change_type"], str(row["_log_offset"]), str(row["user_id"]), str(row["visits"])]
            for row in end
        ],
    )
    watch.lap()
