"""How the demo talks: chapters, steps with the time they took, and checks that count."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from strom.cli.terminal.watch import Watch, bracketed

WIDTH = 80
INDENT = " " * 11
LIFE_S = 10.0
"""Between two signs of life."""


class Story:
    """Prints the story and remembers which checks failed."""

    def __init__(self) -> None:
        self.watch = Watch()
        self._began = self.watch.now()
        self._chapter = 0
        self.checks = 0
        self.failed: list[str] = []

    def chapter(self, title: str, *lines: str) -> None:
        """A new part, with what it is about."""
        self._chapter += 1
        head = f"── {self._chapter}. {title} "
        print(f"\n{head}" + "─" * max(2, WIDTH - len(head)), flush=True)
        for line in lines:
            _print("   ", line)
        self.watch.lap()

    def say(self, text: str) -> None:
        """A step that was done, with the time it took."""
        _print(f"{bracketed(self.watch.lap())} ", text)

    def rate(self, what: str, rows: int) -> None:
        """A step that moved rows."""
        seconds = max(self.watch.lap(), 1e-9)
        _print(f"{bracketed(seconds)} ", f"{rows:,} {what} ({rows / seconds:,.0f} a second)")

    def note(self, text: str) -> None:
        """Something to know before a step."""
        _print(INDENT, text)

    @contextmanager
    def patience(self, doing: Callable[[], str] = str) -> Iterator[None]:
        """While something takes long, a sign of life every few seconds, with what is being done."""
        over = threading.Event()
        began = self.watch.now()

        def tell() -> None:
            while not over.wait(LIFE_S):
                self.note(f"… {self.watch.now() - began:,.0f} s {doing()}".rstrip())

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A small table below the last line; numbers are right-aligned."""
        cells = [[_cell(value) for value in row] for row in rows]
        widths = [max(len(line[at]) for line in [columns, *cells]) for at in range(len(columns))]
        right = [bool(rows) and _is_number(rows[0][at]) for at in range(len(columns))]
        for line in [columns, ["─" * width for width in widths], *cells]:
            aligned = [
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(line, widths, right, strict=True)
            ]
            print(f"{INDENT}{'  '.join(aligned)}".rstrip(), flush=True)
        self.watch.lap()

    def check(self, truth: bool, text: str, found: object = None, expected: object = None) -> None:
        """A check. If it fails, the story continues and exits with 1."""
        self.checks += 1
        if truth:
            _print("         ✔ ", text)
            return
        self.failed.append(text)
        _print("         ✘ ", text)
        if found is not None or expected is not None:
            print(f"           found {found!s:.300}\n           expected {expected!s:.300}", flush=True)

    def equal(self, found: object, expected: object, text: str) -> None:
        """Two answers to the same question."""
        self.check(found == expected, text, found, expected)

    def end(self) -> bool:
        """The last line; whether every check held."""
        seconds = self.watch.now() - self._began
        if self.failed:
            print(f"\n{len(self.failed)} of {self.checks} checks FAILED in {seconds:,.0f} s:", flush=True)
            for text in self.failed:
                print(f"   ✘ {text}", flush=True)
            return False
        print(f"\nAll {self.checks} checks held, in {seconds:,.0f} s.", flush=True)
        return True


def _print(begin: str, text: str) -> None:
    """Wrap text after a prefix within 80 columns; paths stay whole."""
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )
    print("\n".join(lines or [begin.rstrip()]), flush=True)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _cell(value: object) -> str:
    return (
        f"{value:,.2f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )
