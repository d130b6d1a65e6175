"""From the earliest row on, a log begins where the table does: in the lake, if the servers no longer have it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

import strom
import strom.aio
from cli.command import strom as run
from lake.read.test_union_edges import let_retention_drop
from lake.small_tierer import SmallTierer
from lake.union_place import lake_table
from strom.errors import Expired, InvalidRequest
from strom.testing.process import ServerProcess
from waiting import until_blocking

pytestmark = pytest.mark.slow

DAYS = {"id": "BIGINT", "day": "STRING"}
SHORT = {"table.log.retention-bytes": "1 b"}
"""A sealed segment goes as soon as the lake has it."""


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose segments are small, and go at once."""
    settings = {
        "log.segment.file-size": "1 kb",
        "kv.segment.file-size": "1 kb",
        "log.retention.check-interval": "100 ms",
    }
    with ServerProcess(tmp_path_factory.mktemp("short") / "data", settings=settings) as running:
        yield running


def starts(table: strom.Table) -> dict[Any, int]:
    return {key: at for key, at in table.offsets("earliest").items() if isinstance(key, tuple)}


def forget(db: strom.Database, table: strom.Table) -> None:
    """Wait until the servers have nothing that the lake has: every batch fills a segment."""
    held = {(one.partition, one.bucket): one.lake_offset for one in db.lake(table.name).buckets}
    assert all(held.values())
    until_blocking(lambda: starts(table) == held)


def events(*numbers: int) -> list[dict[str, Any]]:
    """Rows of a few hundred bytes that no compression makes smaller."""
    return [{"id": one, "day": hashlib.shake_128(str(one).encode()).hexdigest(200)} for one in numbers]


def write(table: strom.Table, *numbers: int) -> None:
    """Twenty rows in a batch: segments are sealed by the batch."""
    for low in range(0, len(numbers), 20):
        (table.upsert if table.primary_key else table.append)(events(*numbers[low : low + 20]))
        table.flush()


def followed(tail: Any, count: int) -> list[tuple[int, int, int]]:
    """Bucket, offset and id of so many rows."""
    found: list[tuple[int, int, int]] = []
    for batch in tail:
        found += zip(
            [batch.bucket.bucket] * batch.num_rows,
            batch.offsets.tolist(),
            batch.data.column("id").to_pylist(),
            strict=True,
        )
        assert set(batch.kinds.to_pylist()) == {"+A"}
        assert batch.timestamp_ms > 0
        if len(found) >= count:
            break
    return found


def history(server: ServerProcess, **options: Any) -> Any:
    """A table, for ``prepare``."""
    return lake_table(server, DAYS, **{"bucket_key": "id", **options})


def prepare(db: strom.Database, table: strom.Table, tierer: SmallTierer) -> None:
    """Rows 0 to 399 are in the lake alone, those up to 439 on the servers."""
    write(table, *range(400))
    table.alter(set=SHORT)
    tierer.round(table)
    write(table, *range(400, 440))
    forget(db, table)


def test_a_tail_from_the_earliest_row_reads_the_lake_and_goes_on_in_the_log(short: ServerProcess) -> None:
    with history(short, buckets=2) as (db, table, tierer):
        prepare(db, table, tierer)
        with table.tail("earliest", idle=20) as tail:
            found = followed(tail, 440)
            write(table, *range(440, 450))
            found += followed(tail, 10)
            positions = tail.positions
        assert sorted(number for _, _, number in found) == list(range(450))
        for bucket in (0, 1):
            offsets = [offset for one, offset, _ in found if one == bucket]
            assert offsets == list(range(len(offsets)))
            assert positions[None, bucket] == len(offsets)


def test_rows_that_leave_the_servers_while_the_lake_is_read_come_from_the_lake_too(
    short: ServerProcess,
) -> None:
    with history(short, buckets=2, file_rows=50) as (db, table, tierer):
        prepare(db, table, tierer)
        with table.tail("earliest", idle=20) as tail:
            found = followed(tail, 1)
            tierer.round(table)
            write(table, *range(440, 480))
            forget(db, table)
            found += followed(tail, 480 - len(found))
        assert sorted(number for _, _, number in found) == list(range(480))


def test_nobody_waits_for_a_partition_that_is_dropped_while_the_lake_is_read(short: ServerProcess) -> None:
    with lake_table(short, DAYS | {"part": "STRING"}, partition_by="part", file_rows=20) as (
        db,
        table,
        tierer,
    ):

        def put(part: str, first: int) -> None:
            table.append([row | {"part": part} for row in events(*range(first, first + 20))])
            table.flush()

        for first in (0, 20):
            put("a", first)
            put("b", 100 + first)
        table.alter(set=SHORT)
        tierer.round(table)
        put("a", 40)
        put("b", 140)
        forget(db, table)
        with table.tail("earliest", idle=20) as tail:
            found = followed(tail, 1)
            table.drop_partition({"part": "b"})
            tierer.round(table)
            put("a", 60)
            forget(db, table)
            found += followed(tail, 120 - len(found))
        assert sorted(number for _, _, number in found) == [*range(80), *range(100, 140)]


def test_positions_taken_amid_the_lake_are_gone_on_from(short: ServerProcess) -> None:
    with history(short, buckets=2, file_rows=50) as (db, table, tierer):
        prepare(db, table, tierer)
        found: list[tuple[int, int, int]] = []
        place: Any = "earliest"
        for _ in range(3):
            with table.tail(place, idle=20) as tail:
                found += followed(tail, 1)
                place = tail.positions
        assert len(found) < 400
        with table.tail(place, idle=20) as tail:
            found += followed(tail, 440 - len(found))
        assert sorted(number for _, _, number in found) == list(range(440))


def test_a_filter_columns_and_asyncio(short: ServerProcess) -> None:
    with history(short, buckets=2) as (db, table, tierer):
        prepare(db, table, tierer)
        with table.tail("earliest", columns=["id"], where="id >= 390", idle=20) as tail:
            found = followed(tail, 50)
            assert sorted(number for _, _, number in found) == list(range(390, 440))

        async def read() -> list[int]:
            other = await strom.aio.connect(short.address)
            rows: list[int] = []
            async for batch in (await other.table(table.name)).tail("earliest", where="id < 410"):
                rows += batch.data.column("id").to_pylist()
                if len(rows) >= 410:
                    break
            await other.close()
            return sorted(rows)

        assert asyncio.run(asyncio.wait_for(read(), 60)) == list(range(410))
        ended = list(table.tail("earliest", timeout=0.0))
        assert ended == []


def test_where_the_servers_begin_is_said_to_be_enough(short: ServerProcess) -> None:
    with history(short, buckets=1) as (db, table, tierer):
        prepare(db, table, tierer)
        with table.tail("earliest", missing="skip", idle=20) as tail:
            assert followed(tail, 1)[0][1] == 400
        assert table.changelog("earliest", missing="skip").to_arrow()["_log_offset"][0].as_py() == 400
        with pytest.raises(InvalidRequest, match="missing is 'error' or 'skip', not 'lake'"):
            table.tail("earliest", missing="lake")


def test_a_changelog_of_a_log_begins_in_the_lake(short: ServerProcess) -> None:
    with history(short, buckets=2) as (db, table, tierer):
        prepare(db, table, tierer)
        whole = table.changelog().to_arrow()
        assert sorted(whole["id"].to_pylist()) == list(range(440))
        assert set(whole["_change_type"].to_pylist()) == {"+A"}
        assert whole["_commit_timestamp"].null_count == 0
        for bucket in (0, 1):
            offsets = [
                one
                for one, of in zip(
                    whole["_log_offset"].to_pylist(), whole["_bucket"].to_pylist(), strict=True
                )
                if of == bucket
            ]
            assert offsets == list(range(len(offsets)))
        few = table.changelog(columns=["id"], where="id < 7").to_arrow()
        assert sorted(few["id"].to_pylist()) == list(range(7))
        assert table.changelog().count() == 440
        ran = run("changelog", table.name, "-o", "json", "--limit", "3", server=short.address)
        assert [json.loads(line)["_log_offset"] for line in ran.out.splitlines()] == [0, 1, 2]


def test_changes_of_a_primary_key_table_that_are_gone_are_an_error(short: ServerProcess) -> None:
    with lake_table(short, DAYS, primary_key="id", buckets=1) as (_, table, tierer):
        write(table, *range(400))
        assert table.changelog().count() == 400
        table.alter(set=SHORT)
        tierer.round(table)
        write(table, *range(400, 440))
        until_blocking(lambda: starts(table)[None, 0] == 400)
        for ask in (lambda: table.changelog().to_arrow(), lambda: table.tail("earliest")):
            with pytest.raises(
                Expired, match=r"begins at offset \d+, and what changed before is no longer kept"
            ):
                ask()
        assert table.changelog(missing="skip").to_arrow()["_log_offset"][0].as_py() == 400
        with table.tail("earliest", missing="skip", idle=20) as tail:
            assert next(tail).base_offset == 400
        assert table.changelog(start={0: 400}).count() == 40
        ran = run("changelog", table.name, server=short.address)
        assert ran.code != 0
        assert "--skip-missing" in ran.err
        ran = run("changelog", table.name, "--skip-missing", "-o", "json", server=short.address)
        assert len(ran.out.splitlines()) == 40


def test_a_partition_that_only_the_lake_has_comes_first_too(server: ServerProcess) -> None:
    with lake_table(server, DAYS, partition_by="day", buckets=1) as (_, table, tierer):
        table.append({"day": ["a", "a", "b"], "id": [1, 2, 3]})
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        with table.tail("earliest", idle=20) as tail:
            found = [number for _, _, number in followed(tail, 3)]
            assert sorted(found) == [1, 2, 3]
            assert tail.positions == {("a", 0): 2, ("b", 0): 1}
            place = tail.positions
        table.append({"day": ["b"], "id": [4]})
        table.flush()
        with table.tail(place, idle=20) as tail:
            assert [number for _, _, number in followed(tail, 1)] == [4]


def test_a_partition_of_keys_that_only_the_lake_has_is_missing_in_the_changelog(
    server: ServerProcess,
) -> None:
    keys: dict[str, Any] = {"primary_key": ["day", "id"], "partition_by": "day", "buckets": 1}
    with lake_table(server, DAYS, **keys) as (_, table, tierer):
        table.upsert({"day": ["a", "b"], "id": [1, 2]})
        tierer.round(table)
        assert table.changelog().count() == 2
        let_retention_drop(tierer, table, "a")
        with pytest.raises(Expired, match="partition a is in the lake alone"):
            table.changelog("earliest").to_arrow()
        assert table.changelog(missing="skip").to_arrow()["id"].to_pylist() == [2]


def test_a_table_that_never_was_in_the_lake_begins_where_it_does(short: ServerProcess) -> None:
    with strom.connect(short.address) as db:
        table = db.create_table("short_lived", {**DAYS}, buckets=1, properties=SHORT)
        write(table, *range(400))
        until_blocking(lambda: starts(table)[None, 0] == 380)
        with table.tail("earliest", idle=20) as tail:
            assert next(tail).base_offset == 380
        db.drop_table(table.name)
