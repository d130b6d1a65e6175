"""The lake's calls through the client, on one tablet server and on three."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

import strom
import strom.aio
from strom.client.admin.lake_admin import Ended, Heartbeat, LakeAdmin, Running
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.cut import CutTerms
from strom.errors import (
    InvalidConfig,
    InvalidRequest,
    LakeAhead,
    LakeSnapshotNotFound,
    StaleEpoch,
    TableNotFound,
)
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeReport
from strom.model.table import TablePath
from strom.protocol import api_keys as api
from strom.protocol.messages import own_keys, tables
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
TIERED = {"table.datalake.enabled": "true"}


class Place:
    """A table in the lake, and the admin."""

    def __init__(self, db: strom.aio.Database, table: strom.aio.Table) -> None:
        self.db = db
        self.table = table
        self.cluster = db.session.cluster
        self.admin = LakeAdmin(self.cluster)

    @property
    def info(self) -> TableInfo:
        return self.table.info

    @property
    def path(self) -> TablePath:
        return self.info.path

    def bucket(self, number: int) -> BucketId:
        return BucketId(self.info.table_id, None, number)

    async def write(self, *ids: int) -> None:
        rows = [{"id": number, "name": f"n{number}"} for number in ids]
        await (self.table.upsert(rows) if self.info.description.has_primary_key else self.table.append(rows))
        await self.db.flush()

    async def fill(self) -> None:
        """Rows in every bucket, more than five."""
        await self.write(*range(60))

    async def round(self, service: str = "s", **more: Any) -> int:
        """Take this table, whatever else is due on the shared server; the round's number."""
        told = await self.admin.heartbeat(Heartbeat(service, wants=1, tables=[self.info.table_id], **more))
        (one,) = told.assigned
        assert one.path == self.path
        return one.round


def on(server: ServerProcess, test: Callable[[Place], Awaitable[None]], **options: Any) -> None:
    """A table of its own for one test."""

    async def main() -> None:
        db = await strom.aio.connect(server.address)
        try:
            name = f"lake_{test.__qualname__.split('.')[0]}_{server.address.rpartition(':')[2]}"
            given = {"buckets": 3, "bucket_key": "id", "properties": TIERED, **options}
            if "primary_key" in given:
                del given["bucket_key"]
            table = await db.create_table(name[:100], SCHEMA, **given)
            try:
                await test(Place(db, table))
            finally:
                await db.drop_table(table.name, if_missing="ignore")
        finally:
            await db.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def report(*offsets: int, **more: Any) -> LakeReport:
    places = {LakeKey(None, bucket): Tiered(offset, 0) for bucket, offset in enumerate(offsets)}
    return LakeReport(more.pop("snapshot_id", 77), places, **more)


def test_a_table_in_the_lake_goes_through_its_states(either: ServerProcess) -> None:
    async def test(place: Place) -> None:
        await place.fill()
        facts = await place.admin.describe(place.info)
        assert (facts.state, facts.enabled, facts.freshness_ms, facts.record) == (
            "waiting",
            True,
            180_000,
            None,
        )
        assert facts.config is not None
        assert facts.config.warehouse.startswith("file:///")
        number = await place.round("spark-1")
        running = Running(place.info.table_id, number, 5, 9, 100)
        told = await place.admin.heartbeat(Heartbeat("spark-1", running=[running]))
        assert not told.cancelled
        assert told.lease_ms == 60_000
        facts = await place.admin.describe(place.path)
        assert (facts.state, facts.service_id, facts.running) == ("tiering", "spark-1", running)
        refusal = await place.admin.report(
            place.info.table_id, report(3, 4, 5, rows=12, files=3), service_id="spark-1", round=number
        )
        assert refusal is None
        facts = await place.admin.describe(place.info)
        assert (facts.state, facts.snapshot_id, facts.rows, facts.files) == ("active", 77, 12, 3)
        assert facts.record is not None
        assert facts.record.offset_of(None, 2) == 5
        assert facts.fresh_ms is not None
        assert facts.ended_ms is not None
        assert facts.fresh_ms <= facts.ended_ms <= facts.now_ms
        (listed,) = [one for one in await place.admin.tables() if one.path == place.path]
        assert (listed.state, listed.snapshot_id, listed.record) == ("active", 77, None)
        nothing = await place.admin.heartbeat(Heartbeat("spark-1", wants=1, tables=[place.info.table_id]))
        assert not nothing.assigned
        assert nothing.next_due_ms is not None
        assert 0 < nothing.next_due_ms <= 180_000

    on(either, test)


def test_a_round_that_failed_shows_its_error_and_a_stopped_service_frees_its_table(
    either: ServerProcess,
) -> None:
    async def test(place: Place) -> None:
        first = await place.round("one")
        await place.admin.heartbeat(Heartbeat("one", ended=[Ended(place.info.table_id, first, "no room")]))
        facts = await place.admin.describe(place.info)
        assert (facts.error, facts.running) == ("no room", None)
        taken = await place.round("two", at_once=True) if facts.error is None else None
        assert taken is None, "a failed table pauses"

    on(either, test)


def test_two_services_never_have_one_table(either: ServerProcess) -> None:
    async def test(place: Place) -> None:
        number = await place.round("one")
        running = [Running(place.info.table_id, number)]
        told = await place.admin.heartbeat(
            Heartbeat("two", wants=1, tables=[place.info.table_id], at_once=True)
        )
        assert not told.assigned
        assert (await place.admin.heartbeat(Heartbeat("two", running=running))).cancelled == {number}
        assert not (await place.admin.heartbeat(Heartbeat("one", running=running))).cancelled
        await place.admin.heartbeat(Heartbeat("one", running=running, leaving=True))
        assert await place.round("two") > number

    on(either, test)


def test_a_late_report_is_not_stored_and_a_rebuild_is(either: ServerProcess) -> None:
    async def test(place: Place) -> None:
        await place.fill()
        table_id = place.info.table_id
        number = await place.round()
        assert await place.admin.report(table_id, report(5, 5, 5), service_id="s", round=number) is None
        late = report(4, 5, 5, snapshot_id=76)
        assert "older" in (await place.admin.report(table_id, late, service_id="s", round=number - 1) or "")
        assert await place.admin.report(table_id, late, service_id="s", rebuild=True) is None
        record = (await place.admin.describe(place.info)).record
        assert record is not None
        assert (record.snapshot_id, record.offset_of(None, 0)) == (76, 4)
        with pytest.raises(TableNotFound):
            await place.admin.report(10**9, report(1), service_id="s")

    on(either, test)


def test_the_lake_of_a_table_that_is_not_there_is_asked_for_in_vain(either: ServerProcess) -> None:
    async def test(place: Place) -> None:
        known = await place.admin.describe_id(place.info.table_id)
        assert known.path == place.path
        with pytest.raises(TableNotFound, match="no table with id 1000000"):
            await place.admin.describe_id(1_000_000)

    on(either, test)


def test_a_quarantined_table_is_given_to_nobody_until_it_is_rebuilt(either: ServerProcess) -> None:
    async def test(place: Place) -> None:
        await place.fill()
        table_id = place.info.table_id
        number = await place.round()
        bad = report(5, 5, 5, state="quarantined", reason="rows were appended by somebody else")
        await place.admin.report(table_id, bad, service_id="s", round=number)
        facts = await place.admin.describe(place.info)
        assert (facts.state, facts.reason) == ("quarantined", "rows were appended by somebody else")
        told = await place.admin.heartbeat(Heartbeat("s", wants=1, tables=[table_id], at_once=True))
        assert not told.assigned
        assert await place.admin.report(table_id, report(5, 5, 5), service_id="s", rebuild=True) is None
        assert await place.round("s", at_once=True) > number

    on(either, test)


def test_a_table_that_is_not_in_the_lake_says_so_and_is_given_to_nobody(either: ServerProcess) -> None:
    async def test(place: Place) -> None:
        facts = await place.admin.describe(place.info)
        assert (facts.enabled, facts.state) == (False, "off")
        told = await place.admin.heartbeat(
            Heartbeat("s", wants=1, tables=[place.info.table_id], at_once=True)
        )
        assert not told.assigned
        await place.table.alter(set=TIERED)
        assert await place.round() > 0, "it may be put there later"

    on(either, test, properties={})


def test_bad_heartbeats_and_reports_are_refused(either: ServerProcess) -> None:
    async def test(place: Place) -> None:
        with pytest.raises(InvalidRequest, match="service"):
            await place.admin.heartbeat(Heartbeat(""))
        with pytest.raises(InvalidRequest, match="tables at a time"):
            await place.admin.heartbeat(Heartbeat("s", wants=10**6))
        request: Any = api.REPORT_LAKE.request(
            table_id=place.info.table_id, service_id="s", round=1, report_json=b"{oops"
        )
        with pytest.raises(InvalidRequest, match="JSON"):
            await place.cluster.ask(api.REPORT_LAKE, request)

    on(either, test)


def test_only_who_holds_a_round_reports_it_and_no_bucket_is_further_than_it_ends(
    either: ServerProcess,
) -> None:
    """Retention deletes what the record says is in the lake, and a bucket takes no writes below it."""

    async def test(place: Place) -> None:
        await place.fill()
        admin, table_id, said = place.admin, place.info.table_id, report(3, 4, 5)
        number = await place.round("mine")
        for refused, told in (
            (await admin.report(table_id, said, service_id="mine"), "only a round may report"),
            (await admin.report(table_id, said, service_id="mine", round=-1), "only a round may report"),
            (await admin.report(table_id, said, service_id="other", round=number), "not service other's"),
            (await admin.report(table_id, said, service_id="mine", round=number + 1), "not service mine's"),
            (await admin.report(table_id, said, service_id="mine", round=10**9), "not service mine's"),
            (await admin.report(table_id, report(3, 4, 10**7), service_id="mine", round=number), "ends at"),
        ):
            assert refused is not None
            assert told in refused
        facts = await admin.describe(place.info)
        assert facts.record is None
        assert facts.running is not None, "the round is not over"
        await place.write(*range(60, 120))
        assert await admin.report(table_id, said, service_id="mine", round=number, goes_on=True) is None
        assert (await admin.describe(place.info)).running is not None, "nor by a report in its midst"
        assert await admin.report(table_id, said, service_id="mine", round=number) is None
        assert await admin.report(table_id, report(5, 5, 5), service_id="mine", round=number) is None, (
            "upkeep"
        )
        assert "was not service other's" in str(
            await admin.report(table_id, said, service_id="other", round=number)
        )
        record = (await admin.describe(place.info)).record
        assert record is not None
        assert [record.offset_of(None, bucket) for bucket in range(3)] == [5, 5, 5]

    on(either, test)


def test_a_round_may_say_that_the_lake_is_ahead_of_a_bucket(either: ServerProcess) -> None:
    """As after a loss: what the lake has is told first, then the bucket goes on behind it."""

    async def test(place: Place) -> None:
        await place.fill()
        table_id, number = place.info.table_id, await place.round()
        far = report(5, 5, 10**6)
        told = await place.admin.report(table_id, far, service_id="s", round=number, goes_on=True, ahead=True)
        assert told is None
        assert await place.admin.report(table_id, far, service_id="s", round=number) is None, (
            "as it was known"
        )

    on(either, test)


def test_the_peers_question_for_the_lake_snapshot_is_answered(either: ServerProcess) -> None:
    async def ask(place: Place, snapshot_id: int | None = None) -> tables.GetLakeSnapshotResponse:
        path = tables.WireTablePath(database_name=place.path.database, table_name=place.path.table)
        request = tables.GetLakeSnapshotRequest(table_path=path, snapshot_id=snapshot_id)
        return await place.cluster.ask(api.GET_LAKE_SNAPSHOT, request)

    async def test(place: Place) -> None:
        with pytest.raises(LakeSnapshotNotFound):
            await ask(place)
        await place.fill()
        await place.admin.report(
            place.info.table_id, report(3, 4, 5), service_id="s", round=await place.round()
        )
        found = await ask(place)
        assert found.snapshot_id == 77
        assert {one.bucket_id: one.log_offset for one in found.bucket_snapshots} == {0: 3, 1: 4, 2: 5}
        with pytest.raises(LakeSnapshotNotFound):
            await ask(place, 78)

    on(either, test)


# --- buckets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["os", "group"])
def test_a_cut_tells_synced_ends_and_checks_what_is_known_of_the_lake(
    either: ServerProcess, durability: str
) -> None:
    async def test(place: Place) -> None:
        await place.write(*range(100))
        buckets = [place.bucket(number) for number in range(3)]
        vector = await place.admin.cut(place.info, buckets, CutTerms(sync=True))
        assert sum(cut.end for cut in vector.values()) == 100
        known = {bucket: Tiered(cut.end, cut.epoch or 0) for bucket, cut in vector.items()}
        assert await place.admin.cut(place.info, buckets, CutTerms(known=known)) == vector
        first = max(buckets, key=lambda bucket: vector[bucket].end)  # one bucket may have taken all rows
        other = next(bucket for bucket in buckets if bucket != first)
        with pytest.raises(LakeAhead, match="lake holds it up to") as ahead:
            await place.admin.cut(
                place.info, buckets, CutTerms(known={first: Tiered(vector[first].end + 1, 0)})
            )
        assert ahead.value.facts["bucket"] == first
        with pytest.raises(StaleEpoch) as stale:
            await place.admin.cut(
                place.info,
                buckets,
                CutTerms(known={first: Tiered(vector[first].end, known[first].epoch + 5)}),
            )
        assert stale.value.facts["bucket"] == first
        nothing = await place.admin.cut(place.info, buckets, CutTerms(known={first: Tiered(0, -1)}))
        assert nothing == vector
        short = await place.admin.cut(place.info, buckets, CutTerms(at_most={first: 3}))
        assert short[first].end == 3
        assert short[first].epoch == vector[first].epoch
        assert short[other] == vector[other]

    on(either, test, properties={**TIERED, "table.durability": durability})


def test_a_scan_from_the_lakes_end_checks_the_epoch_there(either: ServerProcess) -> None:
    async def test(place: Place) -> None:
        await place.write(*range(30))
        bucket = place.bucket(0)
        cut = (await place.admin.cut(place.info, [bucket], CutTerms(sync=True, at_most={bucket: 1})))[bucket]
        assert cut.end > 1, "a change of a key is never cut in two"
        await place.write(*range(10))
        at = (await place.admin.cut(place.info, [bucket]))[bucket]

        async def scan(start_epoch: int | None) -> own_keys.ScanRowsResponse:
            request = own_keys.ScanRowsRequest(
                table_id=bucket.table_id,
                bucket_id=bucket.bucket,
                at=at.end,
                at_epoch=at.epoch,
                start=cut.end,
                start_epoch=start_epoch,
                max_bytes=1 << 20,
                dead=True,
                schema_id=1,
            )
            address = place.cluster.leader(bucket)
            return await place.cluster.call(address, api.SCAN_ROWS, request)

        good = await scan(cut.epoch)
        assert not good.error_code
        assert good.dead
        assert (await scan(None)).dead == good.dead
        assert (await scan((cut.epoch or 0) + 1)).error_code == 24

    on(either, test, primary_key="id")


# --- what a table in the lake may be ---------------------------------------------------------------------------------


def test_times_finer_than_the_lake_are_refused_when_made_and_when_altered(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        fine = {"id": "BIGINT", "at": "TIMESTAMP(9)"}
        with pytest.raises(InvalidConfig, match=r"'at'.*precision 6"):
            db.create_table("too_fine", fine, properties=TIERED)
        nested = {"id": "BIGINT", "many": "ARRAY<ROW<x TIMESTAMP_LTZ(7)>>"}
        with pytest.raises(InvalidConfig, match="'many'"):
            db.create_table("too_fine", nested, properties=TIERED)
        table = db.create_table("too_fine", fine)
        with pytest.raises(InvalidConfig, match="'at'"):
            table.alter(set=TIERED)
        db.drop_table("too_fine")
        rough = db.create_table("rough", {"id": "BIGINT", "at": "TIMESTAMP(6)"}, properties=TIERED)
        with pytest.raises(InvalidConfig, match="'later'"):
            rough.add_column("later", "TIME(9)")
        db.drop_table("rough")


def test_only_the_format_that_is_written_is_taken(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        for name in ("paimon", "lance"):
            with pytest.raises(InvalidConfig, match="iceberg"):
                db.create_table("other", SCHEMA, properties={**TIERED, "table.datalake.format": name})
        with pytest.raises(InvalidConfig, match="at least 1000"):
            db.create_table("other", SCHEMA, properties={"table.datalake.freshness": "900 ms"})
        table = db.create_table("plain", SCHEMA, properties={**TIERED, "table.datalake.format": "iceberg"})
        assert "table.datalake.format" not in table.properties
        assert table.properties["table.datalake.enabled"] == "true"
        db.drop_table("plain")
