"""``t$lake``, ``t$snapshots`` and ``t$offsets`` on the command line: read, and nothing else."""

from __future__ import annotations

import json

import pytest

import strom
from cli.command import strom as run
from lake.small_tierer import small_tierer
from strom.errors import StromError
from strom.testing.process import ServerProcess

COMMANDS = [
    ["tail", "NAME"],
    ["table", "describe", "NAME"],
    ["lookup", "NAME", "1"],
    ["delete", "NAME", "1"],
    ["upsert", "NAME", "--set", "id=1"],
    ["changelog", "NAME"],
    ["index", "list", "NAME"],
    ["partition", "list", "NAME"],
]


@pytest.mark.slow
def test_system_tables_are_scanned_and_refuse_the_rest(server: ServerProcess) -> None:
    at, name = server.address, "cli_system"
    tiered = {"table.datalake.enabled": "true"}
    with strom.connect(at) as db:
        table = db.create_table(name, {"id": "BIGINT"}, buckets=1, properties=tiered)
        table.append([{"id": number} for number in range(10)])
        table.flush()
        with small_tierer(db) as tierer:
            tierer.round(table)
        found = run("scan", f"{name}$lake", "-c", "id", "--limit", "3", "-o", "json", server=at)
        assert [json.loads(line)["id"] for line in found.out.splitlines()] == [0, 1, 2], found.err
        assert run("scan", f"{name}$snapshots", "-o", "json", server=at).code == 0
        cut = run("scan", f"{name}$lake", "--start", "3", server=at)
        assert cut.code == 2
        assert "--at" in cut.err
        for command in COMMANDS:
            words = [f"{name}$lake" if word == "NAME" else word for word in command]
            refused = run(*words, server=at)
            assert refused.code in (1, 2), words
            assert "Traceback" not in refused.err, (words, refused.err)
            assert "can only be scanned" in refused.err, (words, refused.err)
        lake = db.table(f"{name}$lake")
        with pytest.raises(StromError, match="can only be scanned"):
            lake.lookup(1)
        assert not hasattr(lake, "lookup")
        with pytest.raises(AttributeError, match="has no attribute 'lokup'"):
            lake.lokup(1)
        db.drop_table(name)
