"""A program of another language that is told to end by its standard input, and says what it does line by line."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from waiting import until_blocking

ENDS_WITHIN_S = 180


class ForeignProgram:
    """One run of it."""

    def __init__(self, command: Sequence[str | Path], output: Path) -> None:
        self.output = output
        self._file = output.open("wb")
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=self._file, stderr=subprocess.STDOUT
        )

    @property
    def rounds(self) -> int:
        """Rounds that it has finished: every row of them was acknowledged."""
        return sum(line.startswith("round ") for line in self.output.read_text().splitlines())

    def goes_on(self, within_s: float = 120.0) -> None:
        """Wait until another round is done."""
        before = self.rounds
        until_blocking(lambda: self._process.poll() is not None or self.rounds > before + 1, within_s)
        assert self._process.poll() is None, self.output.read_text()[-3000:]

    def end(self) -> int:
        """Have it read everything back, and end; returns how many rounds it found whole."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.close()
        code = self._process.wait(ENDS_WITHIN_S)
        said = self.output.read_text()
        assert code == 0, said[-3000:]
        return int(said.splitlines()[-1].removeprefix("whole "))

    def close(self) -> None:
        """Nothing of it is left."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._file.close()
