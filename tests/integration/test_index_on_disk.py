"""A server with hardly any memory for indexes tells the same as one with enough, through restart and kill -9."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import strom
from cli.command import strom as run
from strom.testing.process import ServerProcess
from waiting import until_blocking

KEYS = 60_000
"""More than an index that is small enough to stay in memory."""
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.int64())])


def metric(server: ServerProcess, name: str) -> float:
    page = urllib.request.urlopen(f"http://{server.http_address}/metrics", timeout=30).read().decode()
    return sum(
        float(line.split()[-1]) for line in page.splitlines() if line.startswith((name + "{", name + " "))
    )


def rows(ids: np.ndarray[Any, Any], score: int) -> pa.Table:
    return pa.table([ids, [f"n{number}" for number in ids], np.full(len(ids), score)], schema=SCHEMA)


def written(table: Any, seed: int) -> None:
    """Whole rows, parts of rows, and deletes, of old keys and new ones."""
    chance = np.random.default_rng(seed)
    table.upsert(rows(chance.integers(0, 2 * KEYS, 3_000), seed))
    ids = chance.integers(0, KEYS, 2_000)
    table.upsert(pa.table({"id": ids, "score": ids + seed}), columns=["id", "score"])
    table.delete(chance.integers(0, KEYS, 500).tolist())
    table.flush()


def told(table: Any, seed: int) -> dict[str, Any]:
    """Everything a reader can ask."""
    chance = np.random.default_rng(seed)
    asked = chance.integers(0, 2 * KEYS, 2_000).tolist()
    changes = table.changelog().to_arrow().drop_columns(["_commit_timestamp"])
    return {
        "scan": table.scan().to_arrow().sort_by("id"),
        "count": table.count(),
        "many": table.lookup_many(asked),
        "one": [table.lookup(number) for number in asked[:30]],
        "changelog": changes.sort_by("_log_offset"),
    }


def story(folder: Path, settings: dict[str, object], *, on_disk: bool) -> list[dict[str, Any]]:
    """What readers are told at some moments of a server's life."""
    settings = {**settings, "kv.snapshot.bytes": "64 kb", "durability": "os"}
    chapters = []
    with ServerProcess(folder, settings=settings) as server:

        def opened() -> Any:
            return strom.connect(server.address)

        with opened() as database:
            table = database.create_table("users", SCHEMA, primary_key=["id"], buckets=1)
            table.upsert(rows(np.arange(KEYS), 0))
            table.flush()
            if on_disk:
                until_blocking(lambda: metric(server, "strom_key_index_disk_bytes") > 0, 60)
                assert metric(server, "strom_key_index_disk_keys") > KEYS / 2
            for turn in range(3):
                written(table, turn)
            chapters.append(told(table, 1))
            if on_disk:
                assert metric(server, "strom_key_index_misses_total") > 1_000
                assert metric(server, "strom_key_index_read_bytes_total") > 0
                assert "of its index lie on disk" in run("doctor", server=server.address).out
        server.stop()
        server.start()
        with opened() as database:
            table = database.table("users")
            chapters.append(told(table, 2))
            written(table, 10)
        server.kill()
        server.start()
        with opened() as database:
            table = database.table("users")
            chapters.append(told(table, 3))
            if on_disk:
                assert metric(server, "strom_key_index_disk_bytes") > 0
    return chapters


def test_a_server_short_of_memory_tells_the_same_story(tmp_path: Path) -> None:
    short = story(tmp_path / "short", {"kv.index.memory": 1}, on_disk=True)
    enough = story(tmp_path / "enough", {}, on_disk=False)
    for chapter, (mine, theirs) in enumerate(zip(short, enough, strict=True)):
        for name, found in mine.items():
            assert found == theirs[name], f"chapter {chapter}: {name}"
    assert enough[0]["count"] > KEYS - 5_000
