"""What options may say, and what is answered to a wrong word."""

from __future__ import annotations

import datetime as dt

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from strom.errors import InvalidRequest
from strom.spark.connect.options import ConnectOptions, SourceOptions, place_text
from strom.spark.sink.stream_writer import named

SAID = {"bootstrap.servers": "localhost:9123", "table": "shop.orders"}


def options(**more: str) -> SourceOptions:
    return SourceOptions.of(CaseInsensitiveDict({**SAID, **more}))


def test_nothing_but_a_server_and_a_table_is_needed() -> None:
    found = options()
    assert (found.table, found.changelog, found.columns, found.pin) == ("shop.orders", False, None, "load")
    assert SourceOptions.of({"bootstrap.servers": "h", "path": "t"}).table == "t"


def test_a_changelog_is_a_table_with_a_suffix_or_an_option() -> None:
    assert options(table="shop.users$changelog").changelog
    assert options(table="shop.users$changelog").table == "shop.users"
    assert options(changelog="TRUE").changelog


def test_names_are_case_insensitive_as_all_of_sparks() -> None:
    assert options(MAXROWSPERTRIGGER="7").rows_per_trigger == 7


def test_places_are_words_moments_or_offsets() -> None:
    utc = dt.datetime(2026, 11, 15, 8, tzinfo=dt.UTC)
    assert options(start="earliest").start == "earliest"
    assert options(start="2026-11-15T08:00:00Z").start == utc
    assert options(start=str(int(utc.timestamp() * 1000))).start == utc
    assert options(start='{"0": 7, "1": 8}').start == {(None, 0): 7, (None, 1): 8}
    assert options(start='{"2026-11-15": {"0": 7}}').start == {("2026-11-15", 0): 7}


@pytest.mark.parametrize(
    "place",
    [dt.datetime(2026, 11, 15, 8, tzinfo=dt.UTC), {(None, 0): 7}, {("a", 1): 3, ("b", 0): 4}, "latest"],
)
def test_a_place_survives_being_an_option(place: object) -> None:
    assert options(end=place_text(place)).end == place  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"limti": "1"}, "there is no option 'limti' .did you mean 'limit'"),
        ({"limit": "many"}, "limit is a whole number from 0 on, not 'many'"),
        ({"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger is a whole number from 1 on"),
        ({"splitBytes": "64 elephants"}, "splitBytes is '64 elephants': a size looks like"),
        ({"changelog": "yes"}, "changelog is true or false, not 'yes'"),
        ({"pin": "never"}, "pin is load or query, not 'never'"),
        ({"start": "yesterday"}, "start is 'yesterday': say earliest, latest, a timestamp"),
        ({"start": "2026-11-15T08:00:00"}, "say in which time zone"),
        ({"start": '{"0": "x"}'}, "offsets are "),
        ({"at": "latest", "end": "latest"}, "at= is the table at an instant"),
        ({"at": "12"}, "no lake snapshot"),
        ({"maxRowsPerTrigger": "1", "maxBytesPerTrigger": "1 kb"}, "give one of them"),
        ({"columns": "[]"}, "columns is"),
    ],
)
def test_a_wrong_word_is_an_error_that_says_what_to_write(more: dict[str, str], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        options(**more)


def test_a_server_and_a_table_have_to_be_named() -> None:
    with pytest.raises(InvalidRequest, match="say where the server is"):
        SourceOptions.of({"table": "t"})
    with pytest.raises(InvalidRequest, match="say which table"):
        SourceOptions.of({"bootstrap.servers": "h"})


def test_a_password_is_never_shown() -> None:
    server = ConnectOptions.of({"bootstrap.servers": "h", "user": "ann", "password": "s3cret"})
    assert server.password == "s3cret"
    assert "s3cret" not in repr(server)


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("nightly\nid = 5b1f\nrunId = 77\nbatch = 3", "nightly"),
        ("two words<br/>id = 5b1f<br/>runId = 77<br/>batch = 3", "two words"),
        ("id = 5b1f\nrunId = 77\nbatch = 3", None),
        (None, None),
    ],
)
def test_a_query_is_known_by_the_name_in_the_description_of_its_job(
    description: str | None, name: str | None
) -> None:
    assert named(description) == name
