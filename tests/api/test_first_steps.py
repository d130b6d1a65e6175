"""What people run into in their first hour: each is told what to do, or just works."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import strom
from api.place import events, ids_of, table_on
from strom.errors import Expired, InvalidProjection, TableExists
from strom.testing.process import ServerProcess


def test_columns_are_a_list(server: ServerProcess) -> None:
    with table_on(server) as table:
        with pytest.raises(InvalidProjection, match=r"columns=\['id'\]"):
            table.scan(columns="id")
        with pytest.raises(InvalidProjection, match="list of names"):
            table.changelog(columns="id")


def test_a_table_that_exists_names_the_way_to_take_it(server: ServerProcess) -> None:
    with table_on(server) as table, strom.connect(server.address) as db:
        with pytest.raises(TableExists, match="if_exists"):
            db.create_table(table.name, {"id": "BIGINT"})
        assert db.create_table(table.name, {"id": "BIGINT"}, if_exists="ignore").table_id == table.table_id


def test_a_dropped_partition_takes_rows_again_at_once(server: ServerProcess) -> None:
    schema = {"id": "BIGINT", "name": "STRING"}

    def rows(*numbers: int) -> list[dict[str, Any]]:
        return [{"id": number, "name": "a"} for number in numbers]

    with table_on(server, schema, partition_by="name") as table:
        table.append(rows(1))
        table.flush()
        table.drop_partition({"name": "a"})
        table.append(rows(2))
        table.flush()
        assert ids_of(table.scan().to_arrow()) == [2]


def test_a_log_that_was_overwritten_is_not_empty_at_an_instant_before(server: ServerProcess) -> None:
    with table_on(server) as table, strom.connect(server.address) as db:
        table.append(events(1, 2, 3))
        table.flush()
        (bucket,) = table.describe().buckets
        then = datetime.now(UTC)
        assert ids_of(table.scan(at=then).to_arrow()) == [1, 2, 3]
        with db.transaction() as tx:
            tx.overwrite(table)
            tx.append(table, events(7))
        for at in (then, {0: bucket.end_offset}, {0: 1}):
            with pytest.raises(Expired, match="overwritten"):
                table.scan(at=at).to_arrow()
        assert ids_of(table.scan().to_arrow()) == [7]
        assert ids_of(table.scan(at=datetime.now(UTC)).to_arrow()) == [7]
        with db.transaction() as tx:
            tx.overwrite(table)
        assert table.scan(at=datetime.now(UTC)).to_arrow().num_rows == 0
