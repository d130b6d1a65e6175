"""``strom sink``: who published what, and where."""

from __future__ import annotations

import json

import pytest

import strom
from api.place import new_name
from cli.command import strom as run
from strom.api.staging import publish
from strom.client.write.decision import Sink
from strom.errors import InvalidRequest
from strom.testing.process import ServerProcess


def test_a_sink_is_listed_with_its_tables_and_its_query_by_name(either: ServerProcess) -> None:
    with strom.connect(either.address) as db:
        kept, dropped = (db.create_table(new_name("sunk"), {"id": "BIGINT"}, buckets=1) for _ in range(2))
        plain, called = new_name("plain"), new_name("called")
        with db.transaction(plain, 3) as transaction:
            transaction.append(kept, [{"id": 1}])
            transaction.append(dropped, [{"id": 1}])
        publish(db, Sink(called, "7-of-9", query_name="nightly copy"), 4, [kept.table_id], [])
        db.drop_table(dropped.name)
        lines = run("sink", "list", "-o", "json", server=either.address).out.splitlines()
        found = {one["sink"]: one for one in map(json.loads, lines)}
        gone = f"table {dropped.table_id} (dropped)"
        assert (found[plain]["tables"], found[plain]["query"]) == (f"{kept.name}, {gone}", plain)
        assert (found[called]["tables"], found[called]["query"]) == (kept.name, "nightly copy")
        assert found[called]["version"] == 4
        assert kept.name in run("sink", "list", server=either.address).out
        assert "queryName" in run("sink", "list", "--help").out
        with pytest.raises(InvalidRequest, match="a query's name has 1 to 300 characters, not 301"):
            publish(db, Sink(called, "7-of-9", query_name="x" * 301), 5, [kept.table_id], [])
        db.drop_table(kept.name)
