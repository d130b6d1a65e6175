"""What one server acknowledged, every server knows: on virtual time, with servers that hear of changes late."""

from __future__ import annotations

import asyncio
import logging

import pytest

from server.membership.test_coordinators import calling, create, exists, now, simulated
from server.membership.test_tablets import cluster
from strom.aio.database import Database
from strom.errors import Retry
from strom.protocol.api_keys import (
    GET_TABLE_SCHEMA,
    LIST_DATABASES,
    LIST_PARTITION_INFOS,
    LIST_TABLES,
    TABLE_EXISTS,
)
from strom.protocol.messages import databases, partitions, tables
from strom.protocol.messages.tables import WireTablePath
from strom.rpc.caller import Caller
from strom.server.membership.hearing import HEARD_S
from strom.server.tablets.catalog_view import CATCH_UP_EVERY_S
from strom.testing.machines import PORT, RemoteStore, SimulatedMachines

LATE = ("t2", "c2")
"""A tablet server, and a coordinator that stands by."""


def store(machines: SimulatedMachines, name: str) -> RemoteStore:
    found = machines[name].store
    assert found is not None
    return found


async def deaf(machines: SimulatedMachines) -> Database:
    """A cluster in which some servers do not hear of anything by themselves; a client of the active coordinator."""
    await cluster(machines, "c1", "c2")
    for name in LATE:
        store(machines, name).hard_of_hearing = True
    return await machines.connect("client", f"c1:{PORT}")


async def listed(caller: Caller) -> list[str]:
    return list((await caller.call(LIST_DATABASES, databases.ListDatabasesRequest())).database_name)


async def tables_of(caller: Caller) -> list[str]:
    request = tables.ListTablesRequest(database_name="fluss")
    return list((await caller.call(LIST_TABLES, request)).table_name)


async def schema_id(caller: Caller, table: str) -> int:
    request = tables.GetTableSchemaRequest(table_path=WireTablePath(database_name="fluss", table_name=table))
    return (await caller.call(GET_TABLE_SCHEMA, request)).schema_id


async def has_table(caller: Caller, table: str) -> bool:
    request = tables.TableExistsRequest(table_path=WireTablePath(database_name="fluss", table_name=table))
    return (await caller.call(TABLE_EXISTS, request)).exists


async def partition_count(caller: Caller, table: str) -> int:
    path = WireTablePath(database_name="fluss", table_name=table)
    request = partitions.ListPartitionInfosRequest(table_path=path)
    return len((await caller.call(LIST_PARTITION_INFOS, request)).partitions_info)


def test_whatever_was_acknowledged_every_server_answers_with_it() -> None:
    async def main(machines: SimulatedMachines) -> None:
        database = await deaf(machines)
        late = [await calling(machines, name) for name in LATE]
        await create(await calling(machines, "c2"), "another")
        assert [await listed(one) for one in late] == [["another", "fluss"]] * 2
        made = await database.create_table("p", {"a": "INT", "d": "STRING"}, partition_by="d")
        assert [await tables_of(one) for one in late] == [["p", "t"]] * 2
        await made.create_partition({"d": "monday"})
        assert [await partition_count(one, "p") for one in late] == [1, 1]
        before = [await schema_id(one, "t") for one in late]
        await (await database.table("t")).add_column("b", "INT")
        assert [await schema_id(one, "t") for one in late] == [one + 1 for one in before]
        await database.drop_table("p")
        assert [await has_table(one, "p") for one in late] == [False, False]

    simulated(main)


def test_a_server_that_cannot_be_told_looks_before_it_says_that_something_is_not_there() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await deaf(machines)
        await asyncio.sleep(1.0)
        machines.network.stall("c1", "t2")
        began = now()
        await create(await calling(machines, "c1"), "another")
        assert now() - began < HEARD_S + 0.1
        assert await exists(await calling(machines, "t2"), "another")
        began = now()
        await create(await calling(machines, "c1"), "third")
        assert now() - began < HEARD_S / 2, "nobody waits for a server that is silent"

    simulated(main)


def test_questions_for_what_is_not_there_read_the_metadata_no_more_often_than_allowed() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await deaf(machines)
        caller = await calling(machines, "t2")
        reads, began = store(machines, "t2").reads, now()
        while now() - began < 0.2:
            assert not any(await asyncio.gather(*(exists(caller, "nothing") for _ in range(30))))
        assert 3 < store(machines, "t2").reads - reads <= 0.2 / CATCH_UP_EVERY_S + 2

    simulated(main)


def test_a_server_that_cannot_look_does_not_say_that_something_is_not_there() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await deaf(machines)
        caller = await calling(machines, "t2")
        store(machines, "t2").cut()
        with pytest.raises(Retry):
            await exists(caller, "nothing")
        assert await exists(caller, "fluss")

    simulated(main)


def test_copies_of_a_dropped_table_go_without_a_complaint(caplog: pytest.LogCaptureFixture) -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        database = await machines.connect("client", f"c1:{PORT}")
        await database.drop_table("t")
        await asyncio.sleep(1.0)

    with caplog.at_level(logging.WARNING):
        simulated(main)
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR] == []
