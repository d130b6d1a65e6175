"""Primary-key tables on a real server in this process: what is written is found, whichever way one looks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from integration.key_wire import KeyTable
from integration.wire import Wire, encoded
from strom.errors import (
    DeletionDisabled,
    IndexNotFound,
    InvalidAcks,
    InvalidPredicate,
    InvalidProjection,
    InvalidTargets,
    LimitExceeded,
    MalformedBatch,
    NotPrimaryKeyTable,
    NotYetVisible,
    RequestTimeout,
    StaleEpoch,
    StromError,
    TornBatch,
    UnknownBucket,
)
from strom.kv.lookup import many_rows as reading
from strom.model.filters.predicate import col
from strom.model.schema import Schema
from strom.protocol import api_keys as api
from strom.protocol.error_codes import CODES
from strom.protocol.message import whole
from strom.protocol.messages import own_keys
from strom.protocol.predicate_wire import to_wire
from strom.record.batch import split
from strom.record.decode import changes, offsets
from strom.server.process.local import LocalServer
from strom.tablet.key_tablet import KeyTablet
from waiting import until

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.float64())])
KEYED = Schema.from_arrow(SCHEMA, ["id"])
INSERT, BEFORE, AFTER, DELETED = 1, 2, 3, 4


def serve(
    folder: Path, test: Callable[[Wire], Awaitable[None]], settings: dict[str, object] | None = None
) -> None:
    async def main(address: str) -> None:
        async with Wire(address) as wire:
            await asyncio.wait_for(test(wire), 120)

    with LocalServer(folder, settings) as server:
        asyncio.run(main(server.address))


def row(number: int, name: str | None = None, score: float | None = None) -> dict[str, object]:
    return {"id": number, "name": f"name {number}" if name is None else name, "score": score}


async def people(wire: Wire, **more: object) -> KeyTable:
    return await KeyTable.create(wire, "people", SCHEMA, ["id"], **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("durability", ["os", "group"])
def test_an_acknowledged_row_is_found_at_once(tmp_path: Path, durability: str) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire, properties={"table.durability": durability})
        written = await table.upsert([row(1), row(2)])
        assert (written.base_offset, written.log_end_offset) == (0, 2)
        assert await table.get(id=1) == row(1)
        assert await table.get(id=3) is None
        changed = await table.upsert([row(1, "ann")], deletes=[{"id": 2}])
        assert await table.get(id=1) == row(1, "ann")
        assert await table.get(id=2) is None
        token = (changed.log_end_offset, changed.epoch)
        assert await table.lookup([{"id": 1}], at_least=token) == [(0, row(1, "ann"))]
        kinds = [
            (offset, kind, found["id"], found["name"]) for offset, kind, found in await table.changelog()
        ]
        assert kinds == [
            (0, INSERT, 1, "name 1"),
            (1, INSERT, 2, "name 2"),
            (2, BEFORE, 1, "name 1"),
            (3, AFTER, 1, "ann"),
            (4, DELETED, 2, "name 2"),
        ]

    serve(tmp_path, test)


def test_many_keys_are_found_in_the_order_they_were_asked_for(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire)
        count = 20_000
        ids = np.arange(count)
        batch = pa.record_batch([ids, [f"name {i}" for i in ids], ids / 2], schema=SCHEMA)
        await table.send(encoded(batch, changes=b"\3" * count))
        wanted = [{"id": int(one)} for one in np.random.default_rng(1).permutation(2 * count)[:10_000]]
        found = await table.lookup(wanted, columns=["name", "id"])
        assert [position for position, _ in found] == [i for i, key in enumerate(wanted) if key["id"] < count]
        assert all(
            list(one) == ["name", "id"] and one["id"] == wanted[position]["id"] for position, one in found
        )
        assert len(await table.scan()) == count
        facts = await table.facts()
        assert (facts.live_rows, facts.high_watermark) == (count, count)
        only = await table.scan(
            columns=["id"], predicate=to_wire((col("score") < 2.0).check(table.schema), table.schema)
        )
        assert sorted(one["id"] for one in only.values()) == [0, 1, 2, 3]

    serve(tmp_path, test)


def test_pipelined_upserts_of_any_size_keep_their_order(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire)

        async def write(number: int, count: int) -> None:
            await table.upsert([row(key, f"batch {number}") for key in range(count)])

        sizes = [1, 4000, 1, 2, 4000, 1, 1]
        await asyncio.gather(*(write(number, size) for number, size in enumerate(sizes)))
        found = await table.lookup([{"id": 0}, {"id": 1}, {"id": 3999}])
        assert [one["name"] for _, one in found] == ["batch 6", "batch 4", "batch 4"]

    serve(tmp_path, test)


def test_part_of_a_row_can_be_written(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire)
        await table.upsert([row(1, "ann", 1.0)])
        await table.upsert([{"id": 1, "score": 2.0}, {"id": 2, "score": 3.0}], columns=["id", "score"])
        assert await table.get(id=1) == row(1, "ann", 2.0)
        assert await table.get(id=2) == {"id": 2, "name": None, "score": 3.0}
        with pytest.raises(InvalidTargets, match="lack the key column 'id'"):
            await table.upsert([{"score": 1.0}], columns=["score"])

    serve(tmp_path, test)


def test_a_repeated_batch_is_applied_once(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire)
        writer = await wire.writer_id()
        first = await table.upsert([row(1)], writer_id=writer, batch_sequence=0)
        await table.upsert([row(1, "later")], writer_id=writer, batch_sequence=1)
        again = await table.upsert([row(1)], writer_id=writer, batch_sequence=0)
        assert (again.base_offset, again.log_end_offset) == (first.base_offset, first.log_end_offset)
        assert await table.get(id=1) == row(1, "later")

    serve(tmp_path, test)


def test_a_table_can_be_read_as_it_was(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire)
        then = await table.upsert([row(1), row(2)])
        await table.upsert([row(1, "ann"), row(3)], deletes=[{"id": 2}])
        ids = lambda rows: sorted((one["id"], one["name"]) for one in rows.values())  # noqa: E731
        assert ids(await table.scan(at=then.log_end_offset)) == [(1, "name 1"), (2, "name 2")]
        assert ids(await table.scan()) == [(1, "ann"), (3, "name 3")]
        recent = await table.scan_slice(start=then.log_end_offset, dead=True)
        assert np.frombuffer(whole(recent.dead or b""), "<i8").tolist() == [0, 1]
        assert len(split(whole(recent.records or b""))) == 1
        alone = await table.scan_slice(start=then.log_end_offset, dead=True, max_bytes=0)
        assert whole(alone.dead or b"") == whole(recent.dead or b"")
        assert not whole(alone.records or b"")
        with pytest.raises(NotYetVisible):
            await table.scan(at=1000)
        with pytest.raises(StaleEpoch):
            await table.scan(at=then.log_end_offset, at_epoch=17)

    serve(tmp_path, test)


def test_a_lookup_waits_for_what_it_must_see_and_no_longer_than_told(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire)
        first = await table.upsert([row(1)])
        waiting = asyncio.ensure_future(
            table.lookup([{"id": 2}], at_least=(first.log_end_offset + 1, first.epoch), timeout_ms=20_000)
        )
        await wire.settled()
        assert not waiting.done()
        await table.upsert([row(2)])
        assert await waiting == [(0, row(2))]
        with pytest.raises(RequestTimeout, match="not visible within 20 ms"):
            await table.lookup([{"id": 2}], at_least=(100, first.epoch), timeout_ms=20)
        with pytest.raises(StaleEpoch):
            await table.lookup([{"id": 2}], at_least=(1, first.epoch + 5))

    serve(tmp_path, test)


def test_a_changelog_is_filtered_where_it_tells_what_was_before(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire)
        predicate = to_wire((col("score") > 5.0).check(table.schema), table.schema)
        await table.upsert([row(1, "a", 1.0), row(2, "b", 9.0)])
        await table.upsert([row(1, "a", 9.0), row(2, "b", 1.0)])
        answer = await wire.fetch_rows(table.table_id, 0, predicate=predicate)
        seen = [
            (offset, kind)
            for header, view in split(whole(answer.records or b""))
            for offset, kind in zip(offsets(view, header).tolist(), changes(view, header), strict=True)  # type: ignore[arg-type]
        ]
        assert seen == [(1, INSERT), (3, INSERT), (4, DELETED)]
        other = await KeyTable.create(
            wire, "wal", SCHEMA, ["id"], properties={"table.changelog.image": "WAL"}
        )
        with pytest.raises(InvalidPredicate, match="cannot be filtered"):
            await wire.fetch_rows(other.table_id, 0, predicate=predicate)

    serve(tmp_path, test)


def test_rows_are_found_by_other_columns_once_there_is_an_index(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire, properties={"table.index.by_name": "name"})
        await table.upsert([row(1, "ann"), row(2, "bob"), row(3, "ann")])
        found = await table.lookup([{"name": "ann"}, {"name": "eve"}, {"name": "bob"}], index="by_name")
        assert sorted((position, one["id"]) for position, one in found) == [(0, 1), (0, 3), (2, 2)]
        with pytest.raises(IndexNotFound, match="it has: by_name"):
            await table.lookup([{"name": "ann"}], index="by_nothing")

    serve(tmp_path, test)


def test_what_may_find_many_rows_by_one_key_is_not_looked_up_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def noting(self: KeyTablet, *arguments: object, **options: object) -> object:
        seen.append(asyncio._get_running_loop() is not None)
        return found(self, *arguments, **options)  # type: ignore[arg-type]

    found = KeyTablet.lookup_index
    monkeypatch.setattr(KeyTablet, "lookup_index", noting)

    async def test(wire: Wire) -> None:
        table = await people(wire, properties={"table.index.by_name": "name"})
        await table.upsert([row(number, "ann") for number in range(10)])
        for _ in range(3):
            assert len(await table.lookup([{"name": "ann"}], index="by_name")) == 10
        assert seen == [False] * 3

    serve(tmp_path, test)


def test_rows_are_found_by_a_prefix_of_their_key(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        schema = pa.schema([("user", pa.int32()), ("item", pa.string()), ("count", pa.int64())])
        table = await KeyTable.create(wire, "cart", schema, ["user", "item"], bucket_key=["user"])
        await table.upsert([{"user": user, "item": item, "count": 1} for user in (1, 2) for item in "abc"])
        found = await table.lookup([{"user": 2}, {"user": 9}], index="$prefix")
        assert sorted((position, one["item"]) for position, one in found) == [(0, "a"), (0, "b"), (0, "c")]

    serve(tmp_path, test)


def test_new_rows_get_numbers_of_their_own(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await KeyTable.create(
            wire,
            "words",
            pa.schema([("word", pa.string()), ("number", pa.int64()), ("seen", pa.int32())]),
            ["word"],
            auto_increment="number",
            properties={"table.auto-increment.cache-size": "2"},
        )
        await table.upsert([{"word": word, "seen": 1} for word in "abcde"], columns=["word", "seen"])
        await table.upsert([{"word": word, "seen": 2} for word in "cf"], columns=["word", "seen"])
        found = {one["word"]: (one["number"], one["seen"]) for one in (await table.scan()).values()}
        assert found == {"a": (1, 1), "b": (2, 1), "c": (3, 2), "d": (4, 1), "e": (5, 1), "f": (6, 2)}
        with pytest.raises(InvalidTargets, match="auto-increment"):
            await table.upsert([{"word": "a", "number": 9, "seen": 1}])
        # A lookup that makes what it does not find; keys are a length and the text.
        made = await table.peer_lookup([b"\1a", b"\1z"], insert_if_not_exists=True)
        assert all(made)
        assert (await table.get(word="z")) == {"word": "z", "number": 7, "seen": None}
        assert await table.peer_lookup([b"\1z", b"\1y"]) == [made[1], None]

    serve(tmp_path, test)


def test_whoever_asks_wrongly_is_told_so_and_nothing_is_written(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire, properties={"table.delete.behavior": "disable"})
        log_table = await wire.create("events", SCHEMA)
        good = pa.record_batch([[1], ["ann"], [1.0]], schema=SCHEMA)
        other = KeyTable(wire, log_table, table.schema)
        refusals: list[tuple[type[StromError], str, Callable[[], Awaitable[object]]]] = [
            (InvalidAcks, "acks", lambda: table.upsert([row(1)], acks=7)),
            (MalformedBatch, "id is NOT NULL", lambda: table.upsert([{"id": None, "name": "x"}])),
            (MalformedBatch, "3 .* or 4", lambda: table.send(encoded(good, changes=b"\1"))),
            (MalformedBatch, "", lambda: table.send(encoded(good.select([0]), changes=b"\3"))),
            (InvalidTargets, "positions", lambda: table.send(encoded(good, changes=b"\3"), (0, 7))),
            (DeletionDisabled, "", lambda: table.upsert([], deletes=[{"id": 1}])),
            (InvalidProjection, "", lambda: table.scan_slice(columns=(9,))),
            (NotPrimaryKeyTable, "primary key", lambda: wire.produce(table.table_id, encoded(good))),
            (NotPrimaryKeyTable, "no primary key", lambda: other.upsert([row(1)])),
            (NotPrimaryKeyTable, "", lambda: other.get(id=1)),
            (NotPrimaryKeyTable, "", other.scan),
            (NotPrimaryKeyTable, "", other.facts),
        ]
        torn = own_keys.LookupRowsBucketRequest(bucket_id=0, keys=b"torn")
        nowhere = own_keys.LookupRowsBucketRequest(bucket_id=9, keys=encoded(good.select([0])))
        fine = own_keys.LookupRowsBucketRequest(bucket_id=0, keys=encoded(good.select([0])))
        request = own_keys.LookupRowsRequest(
            table_id=table.table_id, schema_id=1, buckets_req=[torn, nowhere, fine]
        )
        answers = (await wire.call(api.LOOKUP_ROWS, request)).buckets_resp
        assert [one.error_code for one in answers] == [CODES[TornBatch], CODES[UnknownBucket], None]
        for kind, words, attempt in refusals:
            with pytest.raises(kind, match=words or None):
                await attempt()
        assert await table.scan() == {}
        assert await table.changelog() == []

    serve(tmp_path, test)


def test_a_lookup_has_bounds(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await people(wire)
        for start in range(0, 50, 10):
            await table.upsert([row(number, "x" * 1000) for number in range(start, start + 10)])
        with pytest.raises(LimitExceeded, match="at most 50 keys"):
            await table.lookup([{"id": number} for number in range(51)])
        with pytest.raises(LimitExceeded, match="fewer keys"):
            await table.lookup([{"id": number} for number in range(50)])

    serve(tmp_path, test, {"kv.lookup.keys-max": 50, "server.request.max-bytes": 40_000})


def test_a_tuple_with_too_many_rows_is_refused_before_they_are_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered: list[int] = []

    def noting(directory: object, source: np.ndarray, *more: object, **named: object) -> object:
        gathered.append(len(source))
        return gather(directory, source, *more, **named)

    gather = reading.gather
    monkeypatch.setattr(reading, "gather", noting)

    async def test(wire: Wire) -> None:
        table = await people(wire, properties={"table.index.by_name": "name"})
        for start in range(0, 20_000, 1000):
            await table.upsert([row(number, "ann") for number in range(start, start + 1000)])
        await table.upsert([row(number, "bob") for number in range(30_000, 32_500)])
        with pytest.raises(LimitExceeded, match=r"scan\(where="):
            await table.lookup([{"name": "ann"}], index="by_name")
        assert sum(gathered) < 8_000
        found = await table.lookup([{"name": "bob"}], index="by_name")
        assert sorted(one["id"] for _, one in found) == list(range(30_000, 32_500))

    serve(tmp_path, test, {"server.request.max-bytes": 100_000})


def test_what_was_written_is_there_after_a_restart_also_when_it_was_carried(tmp_path: Path) -> None:
    settings: dict[str, object] = {"kv.segment.file-size": "16kb", "kv.snapshot.bytes": "16kb"}
    ids: list[int] = []

    async def write(wire: Wire) -> None:
        table = await people(wire, properties={"table.index.by_name": "name"})
        ids.append(table.table_id)
        for number in range(40):
            await table.upsert([row(key, f"v{number}") for key in range(number, number + 50)])

        async def carried_and_snapshotted() -> bool:
            facts = await table.facts()
            return bool(facts.base_files and facts.snapshot_offset)

        await until(carried_and_snapshotted)
        facts = await table.facts()
        assert facts.base_files
        assert facts.carried
        assert facts.snapshot_offset

    async def read(wire: Wire) -> None:
        table = KeyTable(wire, ids[0], KEYED)
        found = {one["id"]: one["name"] for one in (await table.scan()).values()}
        assert found == {key: f"v{min(key, 39)}" for key in range(89)}
        assert len(await table.lookup([{"name": "v39"}], index="by_name")) == 50
        await table.upsert([row(0, "again")])
        assert await table.get(id=0) == row(0, "again")

    serve(tmp_path, write, settings)
    serve(tmp_path, read, settings)


def test_a_server_of_log_tables_never_loads_the_kernels(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "import pyarrow as pa\n"
        "from strom.server.process.local import LocalServer\n"
        "from integration.wire import Wire, encoded\n"
        "async def main(address):\n"
        "    async with Wire(address) as wire:\n"
        "        table = await wire.create('t', pa.schema([('id', pa.int64())]))\n"
        "        await wire.produce(table, encoded(pa.record_batch([[1]], names=['id'])))\n"
        "        assert (await wire.fetch(table, 0)).high_watermark == 1\n"
        f"with LocalServer({str(tmp_path)!r}) as server:\n"
        "    asyncio.run(main(server.address))\n"
        "assert not [name for name in sys.modules if name.startswith('numba')]\n"
    )
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tests,
        env={**os.environ, "PYTHONPATH": tests},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
