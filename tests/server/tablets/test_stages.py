"""Staged writes at a server: durable once sealed, published once decided, cut for plans, freed after a lease."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from integration.wire import encoded
from server.background.test_background import SCHEMA, Node
from strom.coordinator import commands
from strom.errors import StorageOffline
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.model.table import TableDescription, TableEntry, TablePath
from strom.protocol.error_codes import error_of
from strom.protocol.messages import stages as messages
from strom.protocol.messages.cut import CutBucketRequest, CutBucketResponse, CutBucketsRequest
from strom.record.batch import heaviest
from strom.record.layout import CHANGE_UPDATE_AFTER
from strom.rpc.budget import Budget
from strom.rpc.call_memory import BudgetShare
from strom.server.calls.keys.upserts import KEY_COPIES
from strom.server.calls.publish import stages as staging
from strom.server.tablets.tablets import wait_for
from strom.tablet.tablet import Tablet
from waiting import next_millisecond, until

A, B, C, D = (bytes([number]) * 16 for number in range(1, 5))
LEASE_MS = 60_000


def rows(*numbers: int) -> bytes:
    return encoded(pa.record_batch([list(numbers), ["x"] * len(numbers)], schema=SCHEMA))


class Place:
    """One bucket of a table, at the node that leads it."""

    def __init__(self, node: Node, table: TableEntry) -> None:
        self.node = node
        self.stages = node.node.stages
        self.cuts = node.node.cuts
        self.table_id = table.table_id
        self.number = table.leaders.index(0)
        self.bucket = BucketId(table.table_id, None, self.number)

    async def tablet(self) -> Tablet:
        return await wait_for(self.node.node.tablets.slot(self.bucket).opened())

    def has_folder(self) -> bool:
        return self.node.world.files.exists(f"{self.node.folder}/buckets/{self.table_id}")

    async def stage(
        self, stage_id: bytes, records: bytes | None, *, sequence: int = 0, seal: bool = False, **more: Any
    ) -> messages.StageRowsResponse:
        request = messages.StageRowsRequest(
            **{
                "table_id": self.table_id,
                "bucket_id": self.number,
                "stage_id": stage_id,
                "sink": "sink",
                "epoch": 1,
                "lease_ms": LEASE_MS,
                "sequence": sequence,
                "seal": seal,
                "records": None if records is None else bytearray(records),
                **more,
            }
        )
        call: Any = SimpleNamespace(request=request, share=BudgetShare(Budget(1 << 30)))
        answer = await self.stages.stage_rows(call)
        assert isinstance(answer, messages.StageRowsResponse)
        return answer

    async def apply(
        self, *commits: tuple[int, list[bytes]], overwrite: bool = False
    ) -> messages.ApplyStagesBucketResponse:
        wanted = messages.ApplyStagesBucketRequest(
            table_id=self.table_id,
            bucket_id=self.number,
            commits=[
                messages.ApplyCommit(number=n, sink="sink", epoch=n, stage_ids=ids, overwrite=overwrite)
                for n, ids in commits
            ],
        )
        answer = await self.stages.apply(messages.ApplyStagesRequest(buckets_req=[wanted]))
        return answer.buckets_resp[0]

    async def cut(self, number: int | None, **more: Any) -> CutBucketResponse:
        wanted = CutBucketRequest(bucket_id=self.number, at_least=more.pop("at_least", None))
        request = CutBucketsRequest(
            table_id=self.table_id,
            number=number,
            timeout_ms=more.pop("timeout_ms", 10_000),
            buckets_req=[wanted],
        )
        answer: Any = await self.cuts.cut_buckets(SimpleNamespace(request=request))  # type: ignore[arg-type]
        found: CutBucketResponse = answer.buckets_resp[0]
        return found


def on_node(folder: Path, test: Callable[[Place], Awaitable[None]], *, durability: str = "group") -> None:
    async def main() -> None:
        node = Node(folder)
        table = await node.create("t", buckets=4, table__durability=durability)
        await test(Place(node, table))
        await node.node.close()
        node.world.offload.close()

    asyncio.run(main())


def refused(answer: Any) -> type[BaseException]:
    """The class of the error in an answer."""
    assert answer.error_code is not None
    return type(error_of(answer.error_code, answer.error_message))


@pytest.mark.parametrize("durability", ["os", "group"])
def test_what_is_staged_and_decided_is_visible_and_its_stage_is_gone(tmp_path: Path, durability: str) -> None:
    async def test(place: Place) -> None:
        first = await place.stage(A, rows(1, 2))
        assert (first.rows, first.deadline_ms, first.bucket_id) == (2, None, place.number)
        sealed = await place.stage(A, None, sequence=1, seal=True)
        assert sealed.rows == 2
        assert sealed.deadline_ms is not None
        tablet = await place.tablet()
        assert tablet.stages.has(A)
        assert tablet.high_watermark == 0
        answer = await place.apply((3, [A]))
        assert (answer.error_code, answer.applied) == (None, 3)
        assert tablet.high_watermark == 2
        assert len(tablet.stages) == 0
        assert (await place.apply((3, [A]))).applied == 3
        assert tablet.high_watermark == 2
        samples = {sample["name"]: sample["value"] for sample in place.node.metrics.samples()}
        assert samples["strom_groups_published_total"] == 1
        assert samples["strom_stage_bytes"] == 0

    on_node(tmp_path, test, durability=durability)


def test_many_stages_are_made_durable_together(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        ids = [bytes([number]) * 16 for number in range(20)]
        answers = await asyncio.gather(*(place.stage(one, rows(1), seal=True) for one in ids))
        assert all(answer.deadline_ms for answer in answers)
        assert (await place.apply((1, ids[:10]), (2, ids[10:]))).applied == 2
        assert (await place.tablet()).high_watermark == 20

    on_node(tmp_path, test)


def test_what_is_wrong_is_answered_with_its_own_number(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        assert (await place.stage(A, rows(1), sequence=3)).error_code is not None
        assert refused(await place.stage(A, rows(1), sequence=3)).__name__ == "StageNotFound"
        assert refused(await place.stage(b"short", rows(1))).__name__ == "InvalidRequest"
        assert refused(await place.stage(A, b"\0" * 100)).__name__ == "MalformedBatch"
        assert refused(await place.stage(A, rows(1), columns=[0])).__name__ == "InvalidRequest"
        assert refused(await place.stage(A, rows(1), table_id=99)).__name__ == "UnknownBucket"
        assert refused(await place.apply((1, [B]))).__name__ == "StageNotFound"

    on_node(tmp_path, test)


def test_a_bound_is_told_as_one_that_passes(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        place.node.node.tablets.stage_room.bytes_max = 1000
        assert (await place.stage(A, rows(1))).error_code is None
        answer = await place.stage(A, rows(*range(200)), sequence=1)
        assert refused(answer).__name__ == "Busy"
        assert (await place.stage(A, None, sequence=1, seal=True)).rows == 1

    on_node(tmp_path, test)


def test_only_small_pieces_of_log_tables_are_staged_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes long, as it came or decompressed, or is read as changes of keys, would hold everybody else up."""
    plain = rows(*range(100))
    repeated = pa.record_batch([[7] * 2000, ["x" * 50] * 2000], schema=SCHEMA)
    packed = encoded(repeated, compression="ZSTD")
    threads: list[int] = []
    staged = Tablet.stage_piece

    def noted(self: Tablet, *given: Any, **named: Any) -> Any:
        threads.append(threading.get_ident())
        return staged(self, *given, **named)

    monkeypatch.setattr(Tablet, "stage_piece", noted)

    async def test(place: Place) -> None:
        async def on_the_loop(number: int, records: bytes, bound: int) -> bool:
            monkeypatch.setattr(staging, "INLINE_BYTES_MAX", bound)
            assert (await place.stage(bytes([number]) * 16, records)).error_code is None
            return threads[-1] == threading.get_ident()

        await place.tablet()
        assert await on_the_loop(1, plain, len(plain))
        assert not await on_the_loop(2, plain, len(plain) - 1)
        weight = KEY_COPIES * heaviest(memoryview(packed))
        assert weight > 10 * len(packed)
        assert await on_the_loop(3, packed, weight)
        assert not await on_the_loop(4, packed, weight - 1)

    on_node(tmp_path, test, durability="os")


def test_stages_can_be_given_up(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        async def ask(request: messages.ExpireStagesRequest) -> messages.ExpireStagesResponse:
            assert request.given_up
            return messages.ExpireStagesResponse(
                floor_ms=0, free=[one.stage_id for one in request.stages if bytes(one.stage_id) != D]
            )

        for one in (A, D):
            await place.stage(one, rows(1), seal=True)
        await place.stage(B, rows(1))
        wanted = messages.DropStagesBucketRequest(bucket_id=place.number, stage_ids=[A, B, C, D])
        request = messages.DropStagesRequest(table_id=place.table_id, buckets_req=[wanted])
        stages = (await place.tablet()).stages
        for asking, left in ((None, [A, D]), (ask, [D])):
            place.node.node.expiry.ask = asking
            answer: Any = await place.stages.drop_stages(SimpleNamespace(request=request))  # type: ignore[arg-type]
            assert answer.buckets_resp[0].error_code is None
            assert [one for one in (A, B, C, D) if stages.has(one)] == left
            assert len(stages) == len(left)

    on_node(tmp_path, test)


def test_a_planned_read_waits_for_what_was_decided_before_it(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await place.node.append(place.bucket, 5)
        assert (await place.cut(0)).grouped is False
        await place.stage(A, rows(1, 2), seal=True)
        await place.stage(B, rows(3), seal=True)
        waiting = asyncio.ensure_future(place.cut(1, at_least=1))
        await asyncio.sleep(0)
        assert not waiting.done()
        await place.apply((1, [A]))
        await place.apply((2, [B]))
        tablet = await place.tablet()
        found = await waiting
        assert (found.offset, found.start_offset, found.grouped) == (7, 0, True)
        assert (found.offset, found.epoch) == (7, tablet.epoch_before(7))
        assert (await place.cut(2)).offset == (await place.cut(None)).offset == 8
        late = await place.cut(3, at_least=3, timeout_ms=20)
        assert refused(late).__name__ == "RequestTimeout"
        assert len(tablet.pending) == 0

    on_node(tmp_path, test)


def test_a_planned_read_of_a_dropped_table_is_told_so(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await place.stage(A, rows(1), seal=True)
        assert place.has_folder()
        waiting = asyncio.ensure_future(place.cut(1, at_least=1))
        staging = asyncio.ensure_future(place.stage(B, rows(1), seal=True))
        assert (await staging).error_code is None
        assert not waiting.done()
        await place.node.view.perform(commands.drop_table, TablePath("fluss", "t"))
        assert refused(await waiting).__name__ == "UnknownBucket"
        assert refused(await place.stage(C, rows(1))).__name__ == "UnknownBucket"
        assert refused(await place.apply((1, [A]))).__name__ == "UnknownBucket"
        await until(lambda: not place.has_folder())
        assert not place.has_folder(), "stages of a dropped table go with it"

    on_node(tmp_path, test)


def test_stages_go_after_their_lease_when_the_coordinator_agrees(tmp_path: Path) -> None:
    asked: list[messages.ExpireStagesRequest] = []

    async def test(place: Place) -> None:
        async def ask(request: messages.ExpireStagesRequest) -> messages.ExpireStagesResponse:
            asked.append(request)
            return messages.ExpireStagesResponse(floor_ms=1, free=[A, C])  # C was not asked about

        expiry = place.node.node.expiry
        await place.stage(A, rows(1), seal=True, lease_ms=1)
        await place.stage(B, rows(1), seal=True, lease_ms=1)
        await place.stage(C, rows(1), seal=True)
        next_millisecond()
        assert await expiry.round() == 0  # nobody to ask
        expiry.ask = ask
        assert await expiry.round() == 1
        stages = (await place.tablet()).stages
        assert [stages.has(one) for one in (A, B, C)] == [False, True, True]
        assert sorted(bytes(one.stage_id) for one in asked[0].stages) == [A, B]
        assert [one.sink for one in asked[0].stages] == ["sink", "sink"]

    on_node(tmp_path, test)


def test_a_bucket_with_stages_is_not_closed_for_idleness(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        slot = place.node.node.tablets.slot(place.bucket)
        await place.tablet()
        assert slot.quiet
        await place.stage(A, rows(1))
        assert not slot.quiet
        await place.stage(A, None, sequence=1, seal=True)
        assert not slot.quiet
        await place.apply((1, [A]))
        assert slot.quiet

    on_node(tmp_path, test)


def test_stages_and_groups_are_found_again_after_a_restart(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await place.stage(A, rows(1, 2), seal=True)
        await place.stage(B, rows(3), seal=True)
        await place.apply((4, [A]))
        slot = place.node.node.tablets.slot(place.bucket)
        await slot.close()
        tablet = await place.tablet()
        assert (tablet.applied, tablet.high_watermark) == (4, 2)
        assert tablet.stages.has(B)
        assert (await place.apply((4, [A]), (5, [B]))).applied == 5
        assert tablet.high_watermark == 3

    on_node(tmp_path, test)


def test_a_bucket_that_cannot_be_opened_holds_no_room(tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        await place.stage(A, rows(1, 2), seal=True)
        slot, room = place.node.node.tablets.slot(place.bucket), place.node.node.tablets.stage_room
        held = room.bytes
        assert held > 0
        await slot.close()
        assert room.bytes == 0
        files = place.node.world.files
        broken = f"{place.node.folder}/buckets/{place.table_id}/-/{place.number}/epochs"
        files.make_folder(broken)
        with pytest.raises(StorageOffline):
            await place.tablet()
        assert room.bytes == 0
        files.remove_tree(broken)

    on_node(tmp_path, test)


def test_a_failed_sync_of_a_seal_takes_the_bucket_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(place: Place) -> None:
        tablet = await place.tablet()

        def broken(_: str) -> None:
            raise OSError("the disk is gone")

        await place.stage(A, rows(1))
        monkeypatch.setattr(place.node.world.files, "sync_folder", broken)
        assert refused(await place.stage(A, None, sequence=1, seal=True)) is StorageOffline
        assert tablet.error is not None
        assert refused(await place.stage(B, rows(1))) is StorageOffline
        monkeypatch.undo()

    on_node(tmp_path, test)


def test_a_primary_key_table_stages_changes(tmp_path: Path) -> None:
    async def main() -> None:
        node = Node(tmp_path)
        arrow = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string())])
        described = TableDescription(Schema.from_arrow(arrow, primary_key=["id"]), bucket_count=2)
        table = await node.view.perform(commands.create_table, TablePath("fluss", "k"), described, now_ms=2)
        place = Place(node, table)
        batch = pa.record_batch([[1, 2], ["a", "b"]], schema=arrow)
        records = encoded(batch, changes=bytes([CHANGE_UPDATE_AFTER] * 2))
        assert (await place.stage(A, records, seal=True)).rows == 2
        assert refused(await place.stage(B, records, columns=[1])).__name__ == "InvalidTargets"
        assert (await place.apply((1, [A]))).applied == 1
        tablet: Any = await place.tablet()
        assert tablet.live_rows() == 2
        assert (await place.apply((2, []), overwrite=True)).applied == 2
        assert tablet.live_rows() == 0
        await node.node.close()
        node.world.offload.close()

    asyncio.run(main())
