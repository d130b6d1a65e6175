"""Names: what may stand in a shell, a URL and a lake catalog."""

from __future__ import annotations

import difflib

import pytest

from strom.errors import InvalidDatabase, InvalidTable
from strom.model.names import COMPARED_MAX, check_name, nearest
from strom.model.table import TablePath


@pytest.mark.parametrize("name", ["t", "T_1", "_x", "a-b", "0day", "x" * 200, "1-2-3"])
def test_plain_names_are_allowed(name: str) -> None:
    check_name("table", name)
    assert TablePath.parse(name) == TablePath("fluss", name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "-x", "__x", "x" * 201, "größe", "a\n", "a\0", "٣", "a$b", "a.b.c"]
)
def test_names_that_could_be_paths_or_worse_are_refused(name: str) -> None:
    with pytest.raises(InvalidTable):
        check_name("table", name)
    with pytest.raises(InvalidDatabase):
        check_name("database", name)


def test_a_path_is_a_table_in_a_database() -> None:
    assert TablePath.parse("db.t") == TablePath("db", "t")
    assert TablePath.parse("t", database="other") == TablePath("other", "t")
    assert str(TablePath("db", "t")) == "db.t"
    with pytest.raises(InvalidDatabase):
        TablePath.parse(".t")
    with pytest.raises(InvalidTable):
        TablePath.parse("db.t.x")


def test_a_long_name_is_not_repeated_in_full() -> None:
    with pytest.raises(InvalidTable) as caught:
        check_name("table", "x" * 10_000)
    assert len(caught.value.message) < 200


def test_the_nearest_name_is_suggested_or_nothing() -> None:
    assert nearest("prise", ["price", "name"]) == " (did you mean 'price'?)"
    assert nearest("zzz", ["price", "name"]) == ""


def test_among_very_many_names_only_some_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    matches = difflib.get_close_matches

    def counted(word: str, known: list[str], count: int) -> list[str]:
        compared.append(len(known))
        return matches(word, known, count)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    names = [f"t{number}" for number in range(20_000)] + ["events"]
    assert nearest("evants", names) == " (did you mean 'events'?)"
    nearest("t20001", names)
    assert max(compared) <= COMPARED_MAX
