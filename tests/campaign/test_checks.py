"""The checkers of a campaign can fail: each of them sees what it is there for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from campaign.checks import Broken, check_actors, check_log, check_tails
from campaign.copies import check_copies, check_nothing_left
from campaign.log_actors import LogTail, LogWriter
from integration.wire import encoded
from strom.errors import OutOfOrderSequence
from strom.record.batch import stamp

SCHEMA = pa.schema([("number", pa.int64())])


def writer(acknowledged: set[int], tried: set[int] | None = None) -> LogWriter:
    """One that never ran."""
    one = LogWriter(1, "nowhere", 0)
    one.acknowledged, one.tried = acknowledged, tried or set()
    return one


def log(*buckets: list[int]) -> dict[int, list[tuple[int, int]]]:
    return {bucket: [(1, number) for number in numbers] for bucket, numbers in enumerate(buckets)}


def test_a_log_that_holds_what_it_should_passes() -> None:
    assert check_log(log([0, 2, 3], [1]), [writer({0, 1, 2}, {3, 4})]) == 3


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (log([0, 1]), "acknowledged rows are lost"),
        (log([0, 1, 1, 2]), "out of order or doubled"),
        (log([0, 2, 1]), "out of order or doubled"),
        (log([0, 1, 2], [2]), "twice, in two buckets"),
        (log([0, 1, 2, 9]), "nobody wrote"),
    ],
)
def test_a_log_that_does_not_is_broken(found: dict[int, list[tuple[int, int]]], word: str) -> None:
    with pytest.raises(Broken, match=word):
        check_log(found, [writer({0, 1, 2})])


def test_a_tail_that_saw_something_else_is_broken() -> None:
    tail = LogTail(1, "nowhere", 0)
    tail.seen = log([0, 5])
    with pytest.raises(Broken, match="differ from offset 1 on"):
        check_tails(log([0, 1, 2]), [tail])
    tail.seen = log([0, 1, 2, 3])
    with pytest.raises(Broken, match="saw 4 rows, there are 3"):
        check_tails(log([0, 1, 2]), [tail])


def test_an_actor_that_was_told_what_nobody_should_be_told_is_broken() -> None:
    one = writer(set())
    one.failure = OutOfOrderSequence("sequence 5 came, 4 was expected")
    with pytest.raises(Broken, match="sequence 5"):
        check_actors([one])


def copy(folder: Path, server: str, *numbers: int) -> Path:
    """A server's folder with a copy of one bucket: a batch for each number."""
    home = folder / server
    place = home / "buckets" / "1" / "-" / "0" / "p7"
    place.mkdir(parents=True)
    batches = [bytearray(encoded(pa.record_batch([[number]], schema=SCHEMA))) for number in numbers]
    for offset, batch in enumerate(batches):
        stamp(batch, base_offset=offset, timestamp_ms=5)
    (place / f"{0:020}.log").write_bytes(b"".join(batches))
    return home


def test_copies_are_compared_byte_by_byte(tmp_path: Path) -> None:
    one, other = copy(tmp_path, "one", 1, 2), copy(tmp_path, "other", 1, 2)
    assert check_copies({"one": one, "other": other}, 2) == 2
    different = copy(tmp_path, "different", 1, 3)
    with pytest.raises(Broken, match="the batch at 1 differs"):
        check_copies({"one": one, "different": different}, 2)
    shorter = copy(tmp_path, "shorter", 1)
    with pytest.raises(Broken, match="end at different batches"):
        check_copies({"one": one, "shorter": shorter}, 2)
    with pytest.raises(Broken, match="has copies on"):
        check_copies({"one": one}, 2)


def test_what_is_left_behind_is_found(tmp_path: Path) -> None:
    home = copy(tmp_path, "one", 1)
    check_nothing_left({"one": home})
    (home / "buckets" / "1" / "-" / "0" / "p7.copying").mkdir()
    with pytest.raises(Broken, match="left behind"):
        check_nothing_left({"one": home})
