"""The two halves of a commit: nothing comes between them, and an outcome that nobody heard undoes nothing."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import strom
from api.place import table_on
from strom.aio import transaction as deciding
from strom.client.write.staging import StagedAppends
from strom.errors import ConnectionClosed, RequestTimeout, StorageFull
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def log(server: ServerProcess) -> Iterator[strom.Table]:
    with table_on(server, {"id": "BIGINT"}, buckets=2) as table:
        yield table


def database_of(table: strom.Table) -> strom.Database:
    return strom.connect(table._session.target.address)


def ids(table: strom.Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def answers_get_lost(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The coordinator decides, and the first answer never comes; how often it was asked."""
    decide, asked = deciding.decide, []

    async def decides(*given: Any, **named: Any) -> Any:
        asked.append(1)
        found = await decide(*given, **named)
        if len(asked) == 1:
            raise RequestTimeout("no answer in time")
        return found

    monkeypatch.setattr(deciding, "decide", decides)
    return asked


def test_no_row_is_added_between_the_halves_of_a_commit(log: strom.Table) -> None:
    with database_of(log) as db:
        tx = db.transaction()
        tx.append(log, [{"id": 1}])
        facts = db.session.run(tx._core.prepare())
        assert db.session.run(tx._core.prepare()) is facts, "it is prepared once"
        for late in (lambda: tx.append(log, [{"id": 2}]), lambda: tx.overwrite(log)):
            with pytest.raises(ConnectionClosed, match="begin another"):
                late()
        assert ids(log) == []
        tx.commit()
        assert ids(log) == [1]


def test_a_commit_whose_answer_was_lost_may_be_asked_for_again(
    log: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database_of(log) as db:
        tx = db.transaction("again", 1)
        tx.append(log, [{"id": 1}])
        asked = answers_get_lost(monkeypatch)
        with pytest.raises(RequestTimeout):
            tx.commit()
        assert tx.commit() is tx.commit()
        assert len(asked) == 2
        assert ids(log) == [1]


def test_giving_up_after_a_lost_answer_takes_no_published_row_away(
    log: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database_of(log) as db:
        tx = db.transaction()
        tx.append(log, [{"id": 1}])
        given_up: list[object] = []
        monkeypatch.setattr(StagedAppends, "give_up", given_up.append)
        answers_get_lost(monkeypatch)
        with pytest.raises(RequestTimeout):
            tx.commit()
        tx.abort()
        assert given_up == [], "its stages may be what was published"
        assert ids(log) == [1]


def test_when_one_table_cannot_be_prepared_the_others_are_given_up(
    server: ServerProcess, log: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table_on(server, {"id": "BIGINT"}, buckets=1) as other, database_of(log) as db:
        tx = db.transaction()
        tx.append(log, [{"id": number} for number in range(10)])
        tx.append(other, [{"id": 1}])
        seal, give_up = StagedAppends.seal, StagedAppends.give_up
        given_up: list[object] = []

        async def fails(writer: StagedAppends) -> Any:
            found = await seal(writer)
            if writer is tx._core._writers[other.table_id]:
                raise StorageFull("no room")
            return found

        async def gives_up(writer: StagedAppends) -> None:
            given_up.append(writer)
            await give_up(writer)

        monkeypatch.setattr(StagedAppends, "seal", fails)
        monkeypatch.setattr(StagedAppends, "give_up", gives_up)
        with pytest.raises(StorageFull):
            tx.commit()
        assert len(given_up) == 2
        with pytest.raises(ConnectionClosed):
            tx.append(log, [{"id": 2}])
        assert (ids(log), ids(other)) == ([], [])


def test_a_connection_forgets_transactions_that_are_over(log: strom.Table) -> None:
    with database_of(log) as db:
        over = []
        for commits in (True, False):
            tx = db.transaction()
            tx.append(log, [{"id": 1}])
            if commits:
                tx.commit()
            else:
                tx.abort()
            over.append(weakref.ref(tx._core))
            del tx
        gc.collect()
        assert [one() for one in over] == [None, None]
