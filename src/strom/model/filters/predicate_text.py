"""Parses the text of a filter, in familiar SQL.

    price > 10 and (name = 'x' or day is null) and id in (1, 2)
    day between '2024-01-01' and '2024-01-31' and not active and name like 'x%'
    starts_with(name, 'x')    ends_with(name, 'x')    contains(name, 'x')

Keywords may be in any case. Column names that are not plain words are quoted in "double quotes" or `backticks`; text is
in single quotes, doubled inside; bytes are X'0aff'. A column alone means that it is true. LIKE takes ``%`` only at the
ends. Errors give the position.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, NoReturn

from strom.errors import InvalidPredicate
from strom.model.filters.predicate import Compare, In, IsNull, Like, LikeKind, Predicate, col
from strom.model.token_reader import TokenReader

LENGTH_MAX = 1 << 20
NESTING_MAX = 64

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<bytes>[xX]'(?:[0-9a-fA-F]{2})*')
      | (?P<word>[^\W\d]\w*)
      | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,6})?)
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>"(?:[^"]|"")+"|`(?:[^`]|``)+`)
      | (?P<sign><=|>=|<>|!=|==|[<>=(),+-])
    )""",
    re.VERBOSE,
)
_OPERATORS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FUNCTIONS: dict[str, LikeKind] = {"starts_with": "starts", "ends_with": "ends", "contains": "contains"}
_TYPED = ("date", "time", "timestamp", "timestamp_ltz")
_KEYWORDS = {"and", "or", "not", "is", "in", "like", "between", "null", "true", "false"}


def parse_predicate(text: str) -> Predicate:
    """The filter in a text; :class:`InvalidPredicate` says where it cannot be read."""
    if len(text) > LENGTH_MAX:
        raise InvalidPredicate(
            f"A filter has at most {LENGTH_MAX} characters, not {len(text)}", length=len(text)
        )
    reader = _Reader(text, _TOKEN)
    predicate = reader.either(0)
    if reader.kind != "end":
        reader.fail("'and', 'or' or the end")
    return predicate


class _Reader(TokenReader):
    """Recursive descent, one token ahead: either (OR) > all (AND) > negated (NOT) > leaf."""

    def fail(self, wanted: str) -> NoReturn:
        """Refuse the filter, with the place in it."""
        found = "the end" if self.kind == "end" else repr(self.token[:40])
        raise InvalidPredicate(
            f"Expected {wanted} at position {self.start}, found {found}: {_pointed(self.text, self.start)}",
            position=self.start,
        )

    def either(self, nesting: int) -> Predicate:
        predicate = self.all(nesting)
        while self.skip_word("or"):
            predicate = predicate | self.all(nesting)
        return predicate

    def all(self, nesting: int) -> Predicate:
        predicate = self.negated(nesting)
        while self.skip_word("and"):
            predicate = predicate & self.negated(nesting)
        return predicate

    def negated(self, nesting: int) -> Predicate:
        negations = 0
        while self.skip_word("not"):
            negations += 1
        if nesting > NESTING_MAX:
            self.fail(f"at most {NESTING_MAX} levels of parentheses")
        if self.skip("("):
            predicate = self.either(nesting + 1)
            self.need(")")
        else:
            predicate = self.leaf()
        return ~predicate if negations % 2 else predicate

    def leaf(self) -> Predicate:
        if self.kind in ("number", "text", "bytes", "sign") or self.at_literal_word():
            return self.mirrored()
        if self.kind == "word" and self.token.lower() in _FUNCTIONS:
            function = self.function()
            if function is not None:
                return function
        return self.about(self.column())

    def at_literal_word(self) -> bool:
        return self.kind == "word" and self.token.lower() in ("true", "false", "null")

    def about(self, column: str) -> Predicate:
        """The condition on a column."""
        if self.kind == "sign" and self.token in _OPERATORS:
            op = _OPERATORS[self.token]
            self.advance()
            return Compare(column, op, self.literal())
        if self.skip_word("is"):
            negated = self.skip_word("not") is not None
            if not self.skip_word("null"):
                self.fail("'null' or 'not null'")
            return IsNull(column, negated)
        negated = self.skip_word("not") is not None
        word = self.skip_word("in", "between", "like")
        if word is None:
            if negated:
                self.fail("'in', 'between' or 'like'")
            return Compare(column, "=", True)
        predicate = self.inside(column) if word == "in" else self.ranged(column, word)
        return ~predicate if negated else predicate

    def inside(self, column: str) -> Predicate:
        self.need("(")
        values: list[Any] = []
        if not self.skip(")"):
            values.append(self.literal())
            while self.skip(","):
                values.append(self.literal())
            self.need(")")
        return In(column, tuple(values))

    def ranged(self, column: str, word: str) -> Predicate:
        if word == "like":
            return self.like(column)
        low = self.literal()
        if not self.skip_word("and"):
            self.fail("'and'")
        return col(column).between(low, self.literal())

    def like(self, column: str) -> Predicate:
        start = self.start
        pattern = self.text_literal()
        piece = pattern.strip("%")
        if "%" in piece or "_" in piece or "\\" in piece:
            raise InvalidPredicate(
                f"LIKE takes '%' only at the ends (position {start}); for text with '%', '_' or '\\' in it use "
                "starts_with(), ends_with() or contains()",
                position=start,
            )
        before, after = pattern.startswith("%"), pattern.endswith("%")
        if not before and not after:
            return Compare(column, "=", piece)
        return Like(column, "contains" if before and after else "ends" if before else "starts", piece)

    def mirrored(self) -> Predicate:
        """``10 < price``."""
        value = self.literal()
        if self.kind != "sign" or self.token not in _OPERATORS:
            self.fail("a comparison")
        op = _MIRRORED[_OPERATORS[self.token]]
        self.advance()
        return Compare(self.column(), op, value)

    def function(self) -> Predicate | None:
        """``starts_with(name, 'x')``; None when the word is a column name."""
        after = self.text[self.position :].lstrip()
        if not after.startswith("("):
            return None
        kind = _FUNCTIONS[self.token.lower()]
        self.advance()
        self.need("(")
        column = self.column()
        self.need(",")
        text = self.text_literal()
        self.need(")")
        return Like(column, kind, text)

    def column(self) -> str:
        name = self.token
        if self.kind == "quoted":
            name = name[1:-1].replace(name[0] * 2, name[0])
        elif self.kind != "word" or name.lower() in _KEYWORDS:
            self.fail("the name of a column")
        self.advance()
        return name

    def text_literal(self) -> str:
        if self.kind != "text":
            self.fail("text in single quotes")
        text = self.token[1:-1].replace("''", "'")
        self.advance()
        return text

    def literal(self) -> Any:
        """A value: number, text, bytes, true, false, or DATE '…' and the like."""
        if self.kind == "text":
            return self.text_literal()
        if self.kind == "bytes":
            found = bytes.fromhex(self.token[2:-1])
            self.advance()
            return found
        word = self.skip_word("true", "false")
        if word is not None:
            return word == "true"
        if self.kind == "word" and self.token.lower() in _TYPED:
            self.advance()
            return self.text_literal()
        if self.kind == "word" and self.token.lower() == "null":
            self.fail("a value (nothing equals NULL; write 'is null' or 'is not null')")
        return self.number()

    def number(self) -> int | Decimal:
        sign = -1 if self.skip("-") else 1
        if sign == 1:
            self.skip("+")
        if self.kind != "number":
            self.fail("a value")
        token = self.token
        if len(token) > 400:
            self.fail("a number of at most 400 digits")
        self.advance()
        if token.isdecimal():
            return sign * int(token)
        found = Decimal(token)
        return found.copy_negate() if sign < 0 else found


def _pointed(text: str, start: int) -> str:
    """The text around a position, with a mark before it."""
    left = text[max(0, start - 30) : start]
    right = text[start : start + 30]
    return f"{'…' if start > 30 else ''}{left}▸{right}{'…' if len(text) > start + 30 else ''}"
