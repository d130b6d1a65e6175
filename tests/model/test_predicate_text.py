"""Filters as text: SQL that people know, read exactly, and complaints that point to the place."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strategies import predicates, schemas
from strom.errors import InvalidPredicate, StromError
from strom.model.filters.predicate import And, Compare, In, IsNull, Like, Or, Predicate, col
from strom.model.filters.predicate_text import LENGTH_MAX, parse_predicate
from strom.model.schema import Column, Schema
from strom.model.type_text import parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "price > 10 and (name = 'x' or day is null) and id in (1,2)",
            And(
                (
                    col("price") > 10,
                    Or((col("name") == "x", col("day").is_null())),
                    col("id").is_in([1, 2]),
                )
            ),
        ),
        ("a = 1 or b = 2 and c = 3", Or((col("a") == 1, And((col("b") == 2, col("c") == 3))))),
        ("NOT a = 1 AND b IS NOT NULL", And((col("a") != 1, col("b").is_not_null()))),
        ("not (a = 1 and b < 2)", Or((col("a") != 1, col("b") >= 2))),
        ("not not a = 1", col("a") == 1),
        ("a != 1", col("a") != 1),
        ("a == -1", col("a") == -1),
        ("a <> +1.5", col("a") != Decimal("1.5")),
        ("a = .5e3", col("a") == Decimal("500")),
        ("10 < price", col("price") > 10),
        ("-5 >= a", col("a") <= -5),
        ("a > -2.5 and b < +2.5", And((col("a") > Decimal("-2.5"), col("b") < Decimal("2.5")))),
        ("'x' = name", col("name") == "x"),
        ("name = 'it''s'", col("name") == "it's"),
        ("name = ''", col("name") == ""),
        ("raw = X'0aFF'", col("raw") == b"\x0a\xff"),
        ("raw = x''", col("raw") == b""),
        ("x = 1", col("x") == 1),
        ("active", col("active") == True),  # noqa: E712
        ("not active or a=1", Or((col("active") != True, col("a") == 1))),  # noqa: E712
        ("active = false", col("active") == False),  # noqa: E712
        ("true = active", col("active") == True),  # noqa: E712
        ("a in ()", In("a", ())),
        ("a not in (1, -2, 'x')", In("a", (1, -2, "x"), negated=True)),
        ("a between 1 and 5 and b = 2", And((col("a") >= 1, col("a") <= 5, col("b") == 2))),
        ("a not between 1 and 5", Or((col("a") < 1, col("a") > 5))),
        ("name like 'x%'", Like("name", "starts", "x")),
        ("name like '%x'", Like("name", "ends", "x")),
        ("name not like '%x%'", Like("name", "contains", "x", negated=True)),
        ("name like 'x'", Compare("name", "=", "x")),
        ("name like '%'", Like("name", "contains", "")),
        ("starts_with(name, 'x%')", Like("name", "starts", "x%")),
        ("not contains ( name , 'x' )", Like("name", "contains", "x", negated=True)),
        ("ends_with = 5", col("ends_with") == 5),
        ("day >= date '2024-01-01'", col("day") >= "2024-01-01"),
        ("at < TIMESTAMP '2024-01-01 00:00:00'", col("at") < "2024-01-01 00:00:00"),
        ("date = '2024-01-01'", col("date") == "2024-01-01"),
        ('"with space" is null', IsNull("with space")),
        ('`a``b` = 1 or "a""b" = 1', Or((col("a`b") == 1, col('a"b') == 1))),
        ("größe > 1", col("größe") > 1),
        ('"and" = 1', col("and") == 1),
    ],
)
def test_text_means_what_sql_means(text: str, expected: Predicate) -> None:
    assert parse_predicate(text) == expected


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_text_of_a_checked_filter_reads_back_to_the_same_filter(data: st.DataObject) -> None:
    schema = data.draw(schemas(max_columns=3))
    checked = data.draw(predicates(schema)).check(schema)
    assert repr(parse_predicate(str(checked)).check(schema)) == repr(checked)


@pytest.mark.parametrize("digits", range(10))
@pytest.mark.parametrize("word", ["TIME", "TIMESTAMP", "TIMESTAMP_LTZ"])
def test_the_text_of_a_moment_has_all_its_digits(word: str, digits: int) -> None:
    schema = Schema(1, (Column(0, "at", parse(f"{word}({digits})")),))
    fraction = "." + "123456789"[:digits] if digits else ""
    days = [""] if word == "TIME" else ["2026-11-18 ", "1969-12-31 ", "1970-01-01 "]
    for said in [f"{day}{time}{fraction}" for day in days for time in ("00:00:00", "23:59:59")]:
        checked = parse_predicate(f"at = '{said}'").check(schema)
        text = str(checked)
        assert said in text.replace("T", " ")
        assert repr(parse_predicate(text).check(schema)) == repr(checked)


@pytest.mark.parametrize(
    ("text", "position", "complaint"),
    [
        ("", 0, "the name of a column"),
        ("price >", 7, "a value"),
        ("price > > 5", 8, "a value"),
        ("price = null", 8, "is null"),
        ("price = NULL", 8, "is null"),
        ("price is 5", 9, "'null' or 'not null'"),
        ("price > 10 name = 'x'", 11, "'and', 'or' or the end"),
        ("(price > 10", 11, "')'"),
        ("a in (1, 2", 10, "')'"),
        ("a in 1", 5, "'('"),
        ("a between 1 or 2", 12, "'and'"),
        ("a not 5", 6, "'in', 'between' or 'like'"),
        ("name like 5", 10, "text in single quotes"),
        ("name = 'x", 7, "a value"),
        ("and = 1", 0, "the name of a column"),
        ("5", 1, "a comparison"),
        ("a = 1 ; drop table x", 6, "'and', 'or' or the end"),
        ("a = X'0'", 4, "a value"),
        ("starts_with(name)", 16, "','"),
        ("a = " + "9" * 401, 4, "400 digits"),
        ("(" * 100 + "a = 1" + ")" * 100, 65, "levels of parentheses"),
    ],
)
def test_text_that_makes_no_sense_is_refused_with_the_place(text: str, position: int, complaint: str) -> None:
    with pytest.raises(InvalidPredicate) as caught:
        parse_predicate(text)
    assert caught.value.facts["position"] == position
    assert complaint in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("pattern", ["a%b", "a_b", "a\\%", "%a%b%"])
def test_patterns_beyond_a_beginning_an_end_and_a_piece_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidPredicate, match="LIKE"):
        parse_predicate(f"name like '{pattern}'")


def test_text_without_end_is_refused() -> None:
    with pytest.raises(InvalidPredicate):
        parse_predicate("a" * (LENGTH_MAX + 1))


PIECES = [
    "a",
    "b",
    "1",
    "-2.5e3",
    "'x'",
    "'",
    "X'00'",
    "(",
    ")",
    ",",
    "=",
    "<>",
    ">=",
    "and",
    "or",
    "not",
    "is",
]
PIECES += ["null", "in", "like", "between", "true", "contains(", '"', "`", "\x00", "é", "\ud800", "date"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join))
@example("not " * 10_000 + "a")
@example("a=1 and " * 5000 + "b=1")
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        predicate = parse_predicate(text)
    except StromError:
        return
    assert parse_predicate(str(predicate)) == predicate
