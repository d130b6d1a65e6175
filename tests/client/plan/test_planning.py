"""A scan is planned before its first row, and the plan is plain data."""

from __future__ import annotations

import datetime as dt
import pickle

import pyarrow as pa
import pytest

from client.play import Stay, description_of, play_out, playing
from strom.client.cluster.metadata import PartitionInfo, TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.plan.filters import filter_of, prune
from strom.client.plan.log_place import EARLIEST, LATEST, PlaceKind, place_of
from strom.client.plan.log_plan import BucketRange, ScanPlan, buckets_of, check_kept, check_place, plan_scan
from strom.client.plan.partition_choice import choose_partitions, partition_texts
from strom.client.read.log_scan import LogScan
from strom.client.write.append_writer import AppendWriter
from strom.errors import Expired, InvalidPartition, InvalidRequest, PartitionNotFound, TableNotPartitioned
from strom.model.bucket import BucketId
from strom.model.filters.predicate import And, Or, Predicate, col
from strom.model.filters.predicate_text import parse_predicate
from strom.model.table import TablePath
from strom.protocol.messages import cut as cuts
from strom.rpc.call import Call

DESCRIPTION = description_of(
    ("id", pa.int64()),
    ("day", pa.date32()),
    ("year", pa.int16()),
    ("region", pa.string()),
    ("at", pa.timestamp("ms")),
    buckets=2,
    partition_keys=("day", "year", "region"),
)
PARTITIONS = [
    PartitionInfo(number, "$".join(values), values)
    for number, values in enumerate(
        (day, year, region)
        for day in ("2026-01-01", "2026-01-02")
        for year in ("9", "2026")
        for region in ("eu", "us")
    )
]


def table(buckets: int = 2) -> TableInfo:
    return TableInfo(7, TablePath("fluss", "t"), description_of(buckets=buckets), 0, 0)


def plan(*ranges: tuple[int, int]) -> ScanPlan:
    return ScanPlan(
        7, tuple(BucketRange(BucketId(7, None, i), None, start, end) for i, (start, end) in enumerate(ranges))
    )


def test_ranges_are_cut_to_what_is_there_and_empty_ones_left_out() -> None:
    buckets = list(buckets_of(table(4), None))
    a, b, c, d = (bucket for bucket, _ in buckets)
    found = plan_scan(
        table(4),
        buckets,
        first={a: 5, b: 0, c: 0, d: 3},
        last={a: 10, b: 10, c: 0, d: 9},
        starts={a: 0, b: 3, c: 0, d: 9},
        ends={a: 99, b: 7, c: 5, d: 9},
    )
    assert [(one.bucket, one.start, one.end) for one in found.ranges] == [(a, 5, 10), (b, 3, 7)]
    assert found.rows == 9


@pytest.mark.parametrize(
    ("start", "last", "end", "kept"),
    [
        (0, 10, 0, True),  # before the first row of all: an empty table
        (5, 10, 7, True),
        (5, 10, 5, False),  # its first rows are gone, and what it held then among them
        (5, 5, 5, True),  # it has no rows at all, and that is what it held
        (5, 10, 4, False),
        (5, 5, 4, False),
    ],
)
def test_a_log_is_read_as_it_was_unless_all_that_it_held_then_is_gone(
    start: int, last: int, end: int, kept: bool
) -> None:
    bucket = BucketId(7, None, 0)
    asked = {bucket: start}, {bucket: last}, {bucket: end}
    if kept:
        check_kept(table(), *asked)
        return
    with pytest.raises(Expired, match=f"begins at offset {start}, and ended at {end}"):
        check_kept(table(), *asked)


def test_a_limit_keeps_the_first_rows_in_order() -> None:
    whole = plan((0, 10), (5, 10), (0, 100))
    assert whole.limited(None) == whole
    assert whole.limited(12) == plan((0, 10), (5, 7))
    assert whole.limited(10) == plan((0, 10))
    assert whole.limited(0).ranges == ()
    assert whole.limited(1000) == whole


def test_a_plan_travels_to_other_processes() -> None:
    whole = plan((0, 10), (5, 10))
    assert pickle.loads(pickle.dumps(whole)) == whole
    assert repr(whole) == "ScanPlan(2 buckets, 15 rows before filters)"


def test_buckets_come_by_partition_then_number() -> None:
    found = list(buckets_of(table(2), PARTITIONS[:2]))
    assert [(bucket.partition_id, bucket.bucket, name) for bucket, name in found] == [
        (0, 0, "2026-01-01$9$eu"),
        (0, 1, "2026-01-01$9$eu"),
        (1, 0, "2026-01-01$9$us"),
        (1, 1, "2026-01-01$9$us"),
    ]


def test_places_are_read_as_people_say_them() -> None:
    assert place_of(None, default=LATEST) is LATEST
    assert place_of("earliest", default=LATEST) == EARLIEST
    assert place_of(5, default=LATEST).value == 5
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert place_of(moment, default=LATEST).value == 1767225600000
    assert (
        place_of(dt.datetime(2026, 1, 1), default=LATEST).value == dt.datetime(2026, 1, 1).timestamp() * 1000
    )
    each = place_of({0: 3, ("a", 1): 4, BucketId(7, 9, 2): 5}, default=LATEST)
    assert each.kind is PlaceKind.EACH
    assert each.offset_in(BucketId(7, None, 0), None) == 3
    assert each.offset_in(BucketId(7, 1, 0), "b") is None, "a bare number means a table without partitions"
    assert each.offset_in(BucketId(7, 1, 1), "a") == 4
    assert each.offset_in(BucketId(7, 9, 2), "c") == 5
    for wrong in (-1, True, 1.5, "noon", {0: -1}, {"a": 1}, {(1, 2, 3): 4}, {0: "x"}):
        with pytest.raises(InvalidRequest):
            place_of(wrong, default=LATEST)  # type: ignore[arg-type]


def test_offsets_for_buckets_that_are_not_there_are_refused() -> None:
    buckets = list(buckets_of(table(2), None))
    check_place(place_of({0: 1, (None, 1): 2}, default=LATEST), buckets)
    for wrong in ({2: 1}, {("a", 0): 1}):
        with pytest.raises(InvalidRequest, match="no bucket"):
            check_place(place_of(wrong, default=LATEST), buckets)


def test_partitions_are_chosen_by_name_or_by_some_of_their_values() -> None:
    def names(wanted: object) -> list[str]:
        return [one.name for one in choose_partitions(DESCRIPTION, PARTITIONS, wanted)]  # type: ignore[arg-type]

    assert len(names(None)) == 8
    assert names("2026-01-01$9$eu") == ["2026-01-01$9$eu"]
    assert names({"year": 9, "region": "eu"}) == ["2026-01-01$9$eu", "2026-01-02$9$eu"]
    assert names([{"day": dt.date(2026, 1, 2), "year": 9}, "2026-01-02$9$us"]) == [
        "2026-01-02$9$eu",
        "2026-01-02$9$us",
    ]
    assert names({"region": "asia"}) == [], "a part of a name may fit nothing"
    assert names([]) == []
    with pytest.raises(PartitionNotFound, match="did you mean '2026-01-01\\$9\\$eu'"):
        names("2026-01-01$9$eux")
    with pytest.raises(PartitionNotFound):
        names({"day": "2030-01-01", "year": 9, "region": "eu"})
    with pytest.raises(InvalidPartition):
        names({"month": 1})
    with pytest.raises(TableNotPartitioned):
        choose_partitions(description_of(), [], {"day": 1})


def test_partition_values_become_the_text_of_their_names() -> None:
    values = {"region": "eu", "day": dt.date(2026, 1, 2)}
    assert partition_texts(DESCRIPTION, values) == {"day": "2026-01-02", "region": "eu"}


def test_a_filter_leaves_out_partitions_by_their_values() -> None:
    def names(text: str) -> list[str]:
        predicate = parse_predicate(text).check(DESCRIPTION.schema)
        return [one.name for one in prune(PARTITIONS, DESCRIPTION, predicate)]

    assert names("region = 'eu' and year > 10 and id = 5") == ["2026-01-01$2026$eu", "2026-01-02$2026$eu"]
    assert names("day >= '2026-01-02' and region <> 'eu'") == ["2026-01-02$9$us", "2026-01-02$2026$us"]
    assert len(names("year < 100")) == 4, "as numbers, not as text"
    assert len(names("region = 'eu' or id = 5")) == 8
    assert len(names("region = 'eu' or (region = 'us' and id = 5)")) == 8
    assert len(names("id = 5")) == 8
    assert names("region is null") == []
    assert len(names("starts_with(region, 'e')")) == 4


def test_a_partition_whose_values_cannot_be_read_is_kept() -> None:
    """A Fluss client may give a partition any name; the others are pruned all the same."""
    odd = [
        PartitionInfo(90, "someday$9$eu", ("someday", "9", "eu")),
        PartitionInfo(91, "2026-01-01$99999$eu", ("2026-01-01", "99999", "eu")),
    ]
    predicate = parse_predicate("region = 'eu' and year > 10").check(DESCRIPTION.schema)
    found = [one.name for one in prune([odd[0], *PARTITIONS, odd[1]], DESCRIPTION, predicate)]
    assert found == [odd[0].name, "2026-01-01$2026$eu", "2026-01-02$2026$eu", odd[1].name]


def test_a_filter_on_other_columns_leaves_out_no_partition_by_itself() -> None:
    description = description_of(
        ("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64()), partition_keys=("a", "b")
    )
    four = [
        PartitionInfo(n, name, tuple(name.split("$"))) for n, name in enumerate(["1$2", "1$3", "2$2", "2$3"])
    ]
    a, b, c = col("a") > 1, col("b") > 2, col("c") > 3

    def kept(predicate: Predicate) -> list[str]:
        return [one.name for one in prune(four, description, predicate.check(description.schema))]

    everything = ["1$2", "1$3", "2$2", "2$3"]
    assert kept(a) == ["2$2", "2$3"]
    assert kept(c) == everything
    assert kept(And.of(a, c)) == ["2$2", "2$3"]
    assert kept(Or.of(a, c)) == everything
    assert kept(Or.of(a, And.of(b, c))) == ["1$3", "2$2", "2$3"]
    assert kept(And.of(Or.of(a, c), c)) == everything


def test_a_count_reads_the_cheapest_column_of_the_filter() -> None:
    found = filter_of("region = 'x' and year = 5 and id = 1", DESCRIPTION.schema)
    assert found is not None
    assert found.cheapest_column(DESCRIPTION.schema) == "year"


def test_partitions_by_true_and_false_are_told_apart() -> None:
    description = description_of(("id", pa.int64()), ("sold", pa.bool_()), partition_keys=("sold",))
    both = [PartitionInfo(number, text, (text,)) for number, text in enumerate(("false", "true"))]
    for text in ("false", "true"):
        wanted = filter_of(f"sold = {text}", description.schema)
        assert wanted is not None
        assert [one.name for one in prune(both, description, wanted.predicate)] == [text]


def test_ends_are_those_of_whole_transactions_where_any_bucket_ever_had_one() -> None:
    async def main() -> None:
        async with playing(description_of(buckets=2)) as (play, cluster, info):
            writer = await AppendWriter(cluster, info, WriterOptions(batch_bytes_max=1024)).open()
            await writer.append({"id": list(range(1000))})
            await writer.close()
            one, other = (BucketId(7, None, number) for number in range(2))
            numbers: list[tuple[int | None, list[int | None]]] = []

            def cut(call: Call) -> cuts.CutBucketsResponse:
                numbers.append(
                    (call.request.number, [bucket.at_least for bucket in call.request.buckets_req])
                )
                found = play.answer_cut_buckets(call.request)
                found.buckets_resp[1].grouped = True
                if call.request.number is not None:  # the other bucket saw more since
                    found.buckets_resp[1].offset = 3
                return found

            pending = cuts.PendingBucket(table_id=7, bucket_id=1, number=4)
            play.faults["CutBuckets"] = [Stay(cut)]
            play.faults["Snapshot"] = [Stay(lambda call: cuts.SnapshotResponse(number=5, pending=[pending]))]
            scan = LogScan(cluster, info)
            ends = {one.bucket: one.end for one in (await scan.plan()).ranges}
            assert ends == {one: play.logs[one].end, other: 3}
            assert numbers == [(None, [None, None]), (5, [None, 4])], (
                "the decision is waited for where it is pending"
            )

    play_out(main())
