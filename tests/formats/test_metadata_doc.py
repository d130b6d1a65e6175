"""docs/formats/metadata.md says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

from strom.coordinator import keys
from strom.metadata import changes, layout, salvage
from strom.metadata.database import BUSY_SECONDS_MAX
from strom.metadata.recovery import Action, Condition, decide
from strom.metadata.zookeeper import commit_plan, feed, znodes
from strom.model.bucket import BucketId
from strom.model.table import TablePath
from strom.replication.bucket_entry import decode_bucket, encode_bucket
from strom.server.migration.migrate import MOVED_PREFIX

PAGE = (Path(__file__).parents[2] / "docs/formats/metadata.md").read_text()


def rows(title: str) -> dict[str, list[str]]:
    """The table whose first column has this title: the first cell of each row, and the others."""
    lines = PAGE.split(f"\n\n| {title} |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: rest for first, *rest in cells}


def test_the_files_are_named() -> None:
    named = {layout.DATABASE_FILE, layout.COPY_FILE, layout.BUILDING_FILE, layout.DAMAGED_FILE}
    named |= {layout.DAMAGED_COPY_FILE, f"{MOVED_PREFIX}.db", f"{MOVED_PREFIX}.copy"}
    assert rows("file").keys() == {f"`{name}`" for name in named}


def test_the_definitions_are_the_ones_that_are_compared() -> None:
    block = PAGE.split("```sql\n")[1].split("\n```")[0]
    assert block.splitlines() == list(layout.TABLES.values())


def test_the_header_of_the_copy() -> None:
    header = rows("header")
    assert header["magic"][1] == f"8 bytes, `{layout.COPY_MAGIC.decode()}`"
    assert header["*end*"][0] == str(layout.COPY_HEADER.size)
    assert [header[name][0] for name in ("magic", "format", "crc")] == ["0", "8", "12"]
    assert layout.COPY_HEADER.format == "<8sII"


def test_the_record_of_the_copy() -> None:
    record, head = rows("record"), layout.RECORD_HEAD.size
    assert (layout.RECORD_HEAD.format, layout.RECORD_FOOT.format) == ("<IB", "<QII")
    assert record["body"][0] == str(head)
    assert record["version"][0] == f"{head} + length"
    assert record["crc"][0] == f"{head + layout.RECORD_FOOT.size - layout.RECORD_CRC_BYTES} + length"
    assert record["*end*"][0] == f"{head + layout.RECORD_FOOT.size} + length"
    kinds = {name: int(cells[0]) for name, cells in rows("kind").items()}
    assert kinds == {"snapshot": layout.KIND_SNAPSHOT, "commit": layout.KIND_COMMIT}


def test_the_changes_of_the_copy() -> None:
    change = rows("change")
    assert layout.CHANGE_HEAD.format == "<BHIQ"
    assert change["key"][0] == str(layout.CHANGE_HEAD.size)
    assert change["value"][0] == f"{layout.CHANGE_HEAD.size} + key_length"
    what = {name: int(cells[0]) for name, cells in rows("what").items()}
    assert what == {"delete": layout.CHANGE_DELETE, "put": layout.CHANGE_PUT}


def test_the_numbers_in_the_text() -> None:
    text = " ".join(PAGE.split())
    assert f"The number is {layout.FORMAT}" in text
    assert f"both {layout.COPY_BYTES_MIN:,} bytes and {layout.COPY_GROWTH_MAX} times its snapshot" in text
    assert f"at most {changes.VALUE_BYTES_MAX:,} bytes and a key {changes.KEY_BYTES_MAX:,}" in text
    assert f"raised by {salvage.GAP:,}" in text
    assert f"busy timeout of {BUSY_SECONDS_MAX:.0f} seconds" in text
    assert layout.CRC_SUM_MODULUS == 2**62


def test_the_keys() -> None:
    made = {
        keys.database("n"),
        keys.name(TablePath("d", "t")),
        keys.table(1),
        keys.schema(1, 2),
        keys.partition(1, 2),
        keys.server(1),
        keys.COORDINATOR,
        keys.ACTIVE,
        keys.alive_server(1),
        keys.alive_coordinator("a1"),
        keys.TABLE_COUNTER,
        keys.PARTITION_COUNTER,
        keys.WRITER_COUNTER,
        keys.number_counter(1),
        keys.DECISION_COUNTER,
        keys.sink("s"),
        keys.floor(1),
        keys.lake(1),
        keys.lake(1, 1),
        keys.ROUND_COUNTER,
        keys.replicas(BucketId(1, 2, 3)),
        keys.tag(1),
        keys.REBALANCE,
        keys.moves("a1", 0),
        keys.losses(BucketId(1, 2, 3)),
    }
    documented = [key.strip("`") for key in rows("key")]
    patterns = [re.sub("<[^>]*>", "[a-z0-9]+", key) for key in documented]
    assert all(any(re.fullmatch(pattern, key) for pattern in patterns) for key in made)
    assert len(documented) == len(made)


def test_the_entry_of_a_bucket_in_the_text_is_one() -> None:
    example = next(line for line in PAGE.splitlines() if line.startswith('{"drawn"')).encode()
    assert encode_bucket(decode_bucket("replicas/1/-/0", example)) == example
    fields = {name.strip("`") for row in rows("field") for name in row.split(", ")}
    assert set(json.loads(example)) == fields


def test_the_starts_that_are_refused() -> None:
    whole, broken, gone = Condition(True, 5), Condition(True, 7, "x"), Condition(False)
    assert PAGE.count("**refused**") == 3
    for database, copy in ((whole, broken), (broken, broken), (gone, broken), (broken, gone)):
        assert decide(database, copy).action is Action.REFUSE


def test_the_nodes_in_zookeeper() -> None:
    paths = znodes.NodePaths("")
    named = {
        paths.identity,
        paths.filling,
        paths.head,
        paths.deletions,
        f"{paths.head}/<name>",
        paths.change("<name>"),
    }
    assert rows("node").keys() == {f"`{path[1:]}`" for path in named | {f"{paths.entries}/<shard>/<name>"}}
    assert f"the format, {znodes.FORMAT}" in rows("node")["`identity`"][0]
    assert f"{znodes.TOKEN_BYTES} random bytes" in rows("node")["`head/<name>`"][0]
    assert f"newest {feed.CHANGES_KEPT:,} are kept" in rows("node")["`changes/<name>`"][0]
    assert f"modulo {znodes.SHARD_COUNT}, in two" in PAGE
    assert f"(from {znodes.COMPRESS_FROM_BYTES:,} bytes on" in PAGE
    assert f"`{znodes.PLAIN.decode()}` and then the value, or `{znodes.COMPRESSED.decode()}`" in PAGE
    assert f"at most {commit_plan.REQUEST_BYTES_MAX:,} bytes" in PAGE
    assert f"divisible by {feed.PRUNE_EVERY} " in PAGE
    assert znodes.node_name("tables/5") == "tables:5"


def test_a_change_in_zookeeper() -> None:
    part, head = rows("part"), znodes.CHANGE_HEAD.size
    assert znodes.CHANGE_HEAD.format == "<BHI"
    assert [part[name][0] for name in ("deed", "key_length", "value_length", "key")] == [
        "0",
        "1",
        "3",
        str(head),
    ]
    assert part["value"][0] == f"{head} + key_length"
    deeds = {name: int(cells[0]) for name, cells in rows("deed").items()}
    assert deeds == {one.name.lower(): one.value for one in znodes.Deed}
