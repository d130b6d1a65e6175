"""JSON from any client: a value is of the requested kind, or the document's error names its place."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from strom.errors import InvalidTable
from strom.model.document import INT_MAX, Document

KINDS: dict[str, object] = {
    "text": "x",
    "number": 7,
    "fraction": 7.5,
    "truth": True,
    "list": ["a"],
    "numbers": [1],
    "object": {"a": "b"},
    "nested": {"a": 1},
    "objects": [{"a": "b"}],
    "empty list": [],
    "empty object": {},
}

READS: dict[str, tuple[Any, set[str], str]] = {
    "text": (lambda one: one.text("k"), {"text"}, "must be text"),
    "text or none": (lambda one: one.text_or_none("k"), {"text"}, "must be text"),
    "integer": (lambda one: one.integer("k", low=1), {"number"}, "must be a whole number"),
    "flag": (lambda one: one.flag("k", default=False), {"truth"}, "must be true or false"),
    "texts": (lambda one: one.texts("k"), {"list", "empty list"}, "must be (a list|text)"),
    "mapping": (
        lambda one: one.mapping("k"),
        {"object", "empty object"},
        "must be (a JSON object|text)",
    ),
    "document": (
        lambda one: one.document("k").value,
        {"object", "nested", "empty object"},
        "must be a JSON object",
    ),
    "documents": (
        lambda one: [each.value for each in one.documents("k")],
        {"objects", "empty list"},
        "must be (a list|a JSON object)",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", READS)
def test_what_is_there_is_what_was_asked_for_or_is_refused(read: str, kind: str) -> None:
    reads, fitting, complaint = READS[read]
    document = Document({"k": KINDS[kind]}, "table", InvalidTable)
    if kind in fitting:
        found = reads(document)
        assert (list(found) if isinstance(found, tuple) else found) == KINDS[kind]
    else:
        with pytest.raises(InvalidTable, match=rf"^table\.k.* {complaint}") as refused:
            reads(document)
        assert str(refused.value.facts["path"]).startswith("table.k")


def test_what_is_absent_or_null_has_a_default_or_is_missed() -> None:
    for value in ({}, {"k": None}):
        document = Document(value, "table", InvalidTable)
        assert not document.has("k")
        assert document.text_or_none("k") is None
        assert document.integer("k", low=5, default=3) == 3
        assert document.texts("k") == ()
        assert document.mapping("k") == {}
        assert list(document.documents("k")) == []
        for must in (document.text, document.document, partial(document.integer, low=0)):
            with pytest.raises(InvalidTable, match=r"^table\.k must be"):
                must("k")
    assert Document({}, "table", InvalidTable).flag("k", default=True) is True


def test_numbers_lie_within_their_bounds() -> None:
    def read(number: int) -> int:
        return Document({"k": number}, "table", InvalidTable).integer("k", low=1)

    assert [read(1), read(INT_MAX)] == [1, 2**31 - 1]
    for wrong in (0, -1, INT_MAX + 1):
        with pytest.raises(InvalidTable, match=rf"^table\.k must be between 1 and {INT_MAX}, not {wrong}"):
            read(wrong)


def test_half_a_surrogate_pair_is_no_text_wherever_it_stands() -> None:
    for text in (
        r'{"k": "\ud800"}',
        r'{"k": ["\ud800"]}',
        r'{"k": {"\ud800": "x"}}',
        r'{"k": {"x": "\ud800"}}',
    ):
        document = Document.parse(text, "table", InvalidTable)
        read = {'"': document.text, "[": document.texts, "{": document.mapping}[text[6]]
        with pytest.raises(InvalidTable, match="surrogate"):
            read("k")  # type: ignore[operator]


@pytest.mark.parametrize("text", [b"", b"[1]", b"{", b'{"a": NaN}', b"\xff", b"null", b"[" * 100_000])
def test_what_is_no_object_in_json_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidTable, match=r"^(The )?table"):
        Document.parse(text, "table", InvalidTable)
