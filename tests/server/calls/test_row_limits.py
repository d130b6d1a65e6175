"""Whatever row is taken can be read back, by every way; one that could not is refused when it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

import strom
from strom.errors import RecordTooLarge
from strom.model.filters.predicate import col
from strom.record.batch import DEFAULT_LIMITS
from strom.rpc.client_connection import RESPONSE_BYTES_MAX
from strom.runtime.settings_list import SETTINGS
from strom.server.process.local import LocalServer

LIMIT = 1 << 20
COLUMNS = {"id": "BIGINT NOT NULL", "v": "STRING", "w": "STRING", "n": "BIGINT"}


@pytest.mark.slow
def test_a_row_that_was_taken_is_found_again(tmp_path: Path) -> None:
    taken, refused = 0, 0
    with (
        LocalServer(tmp_path, {"server.request.max-bytes": "1mb"}) as server,
        strom.connect(server.address) as database,
    ):
        table = database.create_table("t", COLUMNS, primary_key="id", indexes={"by_n": "n"})
        for number, less in enumerate([8000, 6000, 5000, 4500, 2000, 700, 500, 400]):
            row = {"id": [number], "v": ["x" * (LIMIT - less)], "w": [None], "n": [number]}
            try:
                table.upsert(row)
                table.flush()
            except RecordTooLarge:
                refused += 1
                assert table.lookup(number) is None
                continue
            taken += 1
            found = table.lookup(number)
            assert found is not None
            assert len(found["v"]) == LIMIT - less
            assert table.lookup_many([number]).num_rows == 1
            assert table.lookup_index("by_n", number).num_rows == 1
            assert table.scan(where=col("id") == number).to_arrow().num_rows == 1
        assert table.scan().to_arrow().num_rows == taken
    assert taken >= 2
    assert refused >= 2


@pytest.mark.slow
def test_a_row_does_not_grow_too_large_by_parts(tmp_path: Path) -> None:
    """Each part fits, the row would not: the second is refused, and the row stays as it was and can go."""
    with (
        LocalServer(tmp_path, {"server.request.max-bytes": "1mb"}) as server,
        strom.connect(server.address) as database,
    ):
        table = database.create_table("t", COLUMNS, primary_key="id")
        half = "y" * (LIMIT * 6 // 10)
        table.upsert({"id": [1], "v": [half]}, columns=["id", "v"])
        table.flush()
        table.upsert({"id": [1], "w": [half]}, columns=["id", "w"])
        with pytest.raises(RecordTooLarge, match=r"server\.request\.max-bytes"):
            table.flush()
        found = table.lookup(1)
        assert found is not None
        assert (found["v"], found["w"]) == (half, None)
        table.delete([1])
        table.flush()
        assert table.lookup(1) is None


def test_no_setting_lets_in_what_clients_do_not_take() -> None:
    """A batch that a server takes is one that our clients decode, in an answer that they take."""
    most = {setting.name: setting.maximum for setting in SETTINGS}
    assert most["server.batch.decompressed-bytes-max"] == DEFAULT_LIMITS.decompressed_bytes_max
    largest = most["server.request.max-bytes"]
    assert largest is not None
    assert largest <= RESPONSE_BYTES_MAX - LIMIT
