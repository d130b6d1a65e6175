"""Reading short texts token by token, for recursive descent: one token ahead, with positions for the complaint."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import NoReturn


class TokenReader(ABC):
    """A text and the token at hand: its ``kind``, the ``token`` itself, and its ``start`` in the text.

    ``kind`` is the name of the pattern's group that matched; "end" at the end of the text, "other" where nothing
    matched.
    """

    def __init__(self, text: str, pattern: re.Pattern[str]) -> None:
        """``pattern`` skips blanks and has one named group per kind of token, "word" and "sign" among them."""
        self.text = text
        self.position = 0
        self._pattern = pattern
        self.advance()

    @abstractmethod
    def fail(self, wanted: str) -> NoReturn:
        """Refuse the text: ``wanted`` was expected at ``start``."""

    def advance(self) -> None:
        """Read the next token."""
        match = self._pattern.match(self.text, self.position)
        if match is None:
            rest = self.text[self.position :].lstrip()
            self.start = len(self.text) - len(rest)
            self.kind, self.token = ("other" if rest else "end"), rest[:1]
            return
        self.kind = match.lastgroup or ""
        self.token, self.start, self.position = match[self.kind], match.start(self.kind), match.end()

    def skip(self, sign: str) -> bool:
        """Go past a sign if it is next."""
        if self.kind != "sign" or self.token != sign:
            return False
        self.advance()
        return True

    def need(self, sign: str) -> None:
        """Go past a sign that must be next."""
        if not self.skip(sign):
            self.fail(f"'{sign}'")

    def skip_word(self, *words: str) -> str | None:
        """Go past one of these words, given in lower case, if it is next; the word."""
        word = self.token.lower()
        if self.kind != "word" or word not in words:
            return None
        self.advance()
        return word
